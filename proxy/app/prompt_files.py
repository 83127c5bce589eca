"""The files of the prompts that come along: where they are, and the text of one."""

from pathlib import Path

import proxy


def prompts_folder() -> Path:
    """The prompts that come along: ``prompts/``, beside the package."""
    return Path(proxy.__file__).parent.parent / "prompts"


def prompt_text(file: Path) -> str:
    """The text of a prompt's file, byte for byte but for blank lines around it. Raises ValueError for a file that is
    missing, unreadable or empty."""
    try:
        text = _without_front_matter(file.read_text(encoding="utf-8")).strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read") from error
    if not text.strip():
        raise ValueError(f"{file} holds no text")
    return text


def _without_front_matter(text: str) -> str:
    """A prompt file's text without the block between ``---`` lines at its head."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return text
    for index, line in enumerate(lines[1:], start=1):
        if line.strip() == "---":
            return "".join(lines[index + 1 :])
    return text

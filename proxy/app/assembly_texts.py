"""Reads the words of structured context from the files that come along, or from a folder of the same form."""

from dataclasses import fields
from pathlib import Path

from proxy.app.factories import prompts_folder, without_front_matter
from proxy.core.structured.assembly.texts import AssemblyTexts

_ACKNOWLEDGEMENTS = frozenset({"ok", "urls_ok", "review_ok"})


def load_assembly_texts(folder: Path | None = None) -> AssemblyTexts:
    """The texts of the files in ``folder``, one for each field; default: ``prompts/tiered_assembly``. A header gets a
    blank line behind it. Raises ValueError for a file that is missing, unreadable or empty."""
    place = folder or prompts_folder() / "tiered_assembly"
    return AssemblyTexts(**{field.name: _text(place / f"{field.name}.md") for field in fields(AssemblyTexts)})


def prompt_text(file: Path) -> str:
    """The text of a prompt's file, byte for byte but for blank lines around it. Raises ValueError for a file that is
    missing, unreadable or empty."""
    try:
        text = without_front_matter(file.read_text(encoding="utf-8")).strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read") from error
    if not text.strip():
        raise ValueError(f"{file} holds no text")
    return text


def _text(file: Path) -> str:
    text = prompt_text(file)
    return text if file.stem in _ACKNOWLEDGEMENTS else f"{text}\n\n"

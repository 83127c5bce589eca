"""Reads the words of live panels from the file that comes along, or from another one of the same form."""

from collections import Counter
from dataclasses import fields
from pathlib import Path

from proxy.app.prompt_files import prompt_text, prompts_folder
from proxy.core.structured.panels.texts import ISO_TIME, SYSTEM, PanelTexts

_HEADING = "## "
_NEEDED = {"timestamp": ISO_TIME, "datetime": ISO_TIME, "repeat": SYSTEM}


def load_panel_texts(file: Path | None = None) -> PanelTexts:
    """The texts of ``file``, one under a heading of its name for each field; default: ``prompts/panels.md``. Raises
    ValueError for a file that is unreadable, and for a text that is missing, empty, there twice, unknown, or without
    its placeholder."""
    file = file or prompts_folder() / "panels.md"
    named = _named(prompt_text(file))
    names = [field.name for field in fields(PanelTexts)]
    for name, times in Counter(name for name, _ in named).items():
        if name not in names:
            raise ValueError(f"{file}: there is no text '{name}'")
        if times > 1:
            raise ValueError(f"{file}: the text '{name}' stands twice")
    texts = dict(named)
    for name in names:
        if not texts.get(name, "").strip():
            raise ValueError(f"{file} holds no text '{name}'")
        if _NEEDED.get(name, "") not in texts[name]:
            raise ValueError(f"{file}: the text '{name}' must hold {_NEEDED[name]}")
    return PanelTexts(**texts)


def _named(written: str) -> list[tuple[str, str]]:
    """Each heading's name and the text below it, without the blank lines around it."""
    found: list[tuple[str, list[str]]] = []
    for line in written.splitlines(keepends=True):
        if line.startswith(_HEADING):
            found.append((line.removeprefix(_HEADING).strip(), []))
        elif found:
            found[-1][1].append(line)
    return [(name, "".join(lines).strip("\r\n")) for name, lines in found]

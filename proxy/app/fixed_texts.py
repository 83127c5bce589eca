"""The fixed words of the proxy, read from the shipped files of ``prompts/``, or from other files of the same form.

Each reader raises ValueError for a file that is missing, unreadable or empty.
"""

import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

from proxy.core.structured.assembly.sections import AssemblyTexts, ContextTexts
from proxy.core.structured.history.compaction import CompactionTexts
from proxy.core.structured.panels.pairs import ISO_TIME, SYSTEM, PanelTexts
from proxy.core.window.shortening import PartName, WindowTexts
from proxy.prompting.files import SHIPPED

_FRONT_MATTER = re.compile(r"\A[ \t]*+---[ \t\r]*+\n.*?^[ \t]*+---[ \t\r]*+$\n?", re.DOTALL | re.MULTILINE)
_ACKNOWLEDGEMENTS = frozenset({"ok", "urls_ok", "review_ok"})
_HEADING = "## "
_NEEDED = {"timestamp": ISO_TIME, "datetime": ISO_TIME, "repeat": SYSTEM}
_IN_MESSAGE = (PartName.INSTRUCTION, PartName.SELECTION, PartName.PREFIX, PartName.SUFFIX)


def prompt_text(file: Path) -> str:
    """The text of a prompt's file without its front matter and without the blank lines around it. It is otherwise
    unchanged, byte for byte. Raises ValueError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read") from error
    front = _FRONT_MATTER.match(text)
    text = text[front.end() if front else 0 :].strip("\r\n")
    if not text.strip():
        raise ValueError(f"{file} holds no text")
    return text


def load_context_texts() -> ContextTexts:
    """The fixed words with which structured context is assembled. Raises ValueError."""
    return ContextTexts(load_assembly_texts(), load_panel_texts(), load_compaction_texts())


def load_assembly_texts(folder: Path = SHIPPED / "tiered_assembly") -> AssemblyTexts:
    """The texts of the files in ``folder``, one for each field. A header is followed by a blank line. Raises
    ValueError."""
    texts = {field.name: prompt_text(folder / f"{field.name}.md") for field in fields(AssemblyTexts)}
    return AssemblyTexts(**{name: text if name in _ACKNOWLEDGEMENTS else f"{text}\n\n" for name, text in texts.items()})


def load_compaction_texts(folder: Path = SHIPPED) -> CompactionTexts:
    """The texts of the files in ``folder``. Raises ValueError."""
    return CompactionTexts(
        prompt=prompt_text(folder / "compaction.md"),
        header=prompt_text(folder / "history_summary.md"),
        ok=prompt_text(folder / "history_summary_ok.md"),
    )


def load_panel_texts(file: Path = SHIPPED / "panels.md") -> PanelTexts:
    """The texts of ``file``, one for each field, under a heading with the field's name. Raises ValueError, also for a
    text that is missing, empty, there twice, unknown, or without its placeholder."""
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


def load_window_texts() -> WindowTexts:
    """The words around the parts of a request. The words around a summary are the same as for a compaction. Raises
    ValueError."""
    summary = load_compaction_texts()
    above = {name: prompt_text(SHIPPED / "window" / f"{name}.md") for name in _IN_MESSAGE}
    return WindowTexts({**above, PartName.SUMMARY: summary.header}, summary.ok)


def _named(written: str) -> list[tuple[str, str]]:
    """Each heading's name and the text below it, without the blank lines around it."""
    found: list[tuple[str, list[str]]] = []
    for line in written.splitlines(keepends=True):
        if line.startswith(_HEADING):
            found.append((line.removeprefix(_HEADING).strip(), []))
        elif found:
            found[-1][1].append(line)
    return [(name, "".join(lines).strip("\r\n")) for name, lines in found]

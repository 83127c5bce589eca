"""Reads the words that structured context is assembled with, from the files that come along or from folders of the same
form."""

from dataclasses import fields
from pathlib import Path

from proxy.app.panel_texts import load_panel_texts
from proxy.app.prompt_files import prompt_text, prompts_folder
from proxy.core.structured.assembly.texts import AssemblyTexts, ContextTexts
from proxy.core.structured.history.compaction_texts import CompactionTexts

_ACKNOWLEDGEMENTS = frozenset({"ok", "urls_ok", "review_ok"})


def load_context_texts() -> ContextTexts:
    """The words of the files that come along. Raises ValueError for a file that is missing, unreadable or empty."""
    return ContextTexts(load_assembly_texts(), load_panel_texts(), load_compaction_texts())


def load_assembly_texts(folder: Path | None = None) -> AssemblyTexts:
    """The texts of the files in ``folder``, one for each field; default: ``prompts/tiered_assembly``. A header gets a
    blank line behind it. Raises ValueError for a file that is missing, unreadable or empty."""
    place = folder or prompts_folder() / "tiered_assembly"
    texts = {field.name: prompt_text(place / f"{field.name}.md") for field in fields(AssemblyTexts)}
    return AssemblyTexts(**{name: text if name in _ACKNOWLEDGEMENTS else f"{text}\n\n" for name, text in texts.items()})


def load_compaction_texts(folder: Path | None = None) -> CompactionTexts:
    """The texts of the files in ``folder``; default: ``prompts``. Raises ValueError for a file that is missing,
    unreadable or empty."""
    place = folder or prompts_folder()
    return CompactionTexts(
        prompt=prompt_text(place / "compaction.md"),
        header=prompt_text(place / "history_summary.md"),
        ok=prompt_text(place / "history_summary_ok.md"),
    )

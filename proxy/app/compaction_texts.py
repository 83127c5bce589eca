"""Reads the words of compactions from the files that come along, or from a folder of the same form."""

from pathlib import Path

from proxy.app.assembly_texts import prompt_text
from proxy.app.factories import prompts_folder
from proxy.core.structured.history.compaction_texts import CompactionTexts


def load_compaction_texts(folder: Path | None = None) -> CompactionTexts:
    """The texts of the files in ``folder``; default: ``prompts``. Raises ValueError for a file that is missing,
    unreadable or empty."""
    place = folder or prompts_folder()
    return CompactionTexts(
        prompt=prompt_text(place / "compaction.md"),
        header=prompt_text(place / "history_summary.md"),
        ok=prompt_text(place / "history_summary_ok.md"),
    )

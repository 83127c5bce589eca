"""Reads the words around the parts of a request from the files that come along, or from a folder of the same form."""

from pathlib import Path

from proxy.app.prompt_files import prompt_text, prompts_folder
from proxy.core.window.texts import WindowTexts


def load_window_texts(folder: Path | None = None) -> WindowTexts:
    """The texts of the files in ``folder``; default: ``prompts``. A summary has the words that stand around one of a
    compaction. Raises ValueError for a file that is missing, unreadable or empty."""
    place = folder or prompts_folder()
    return WindowTexts(
        instruction=prompt_text(place / "window" / "instruction.md"),
        selection=prompt_text(place / "window" / "selection.md"),
        prefix=prompt_text(place / "window" / "prefix.md"),
        suffix=prompt_text(place / "window" / "suffix.md"),
        summary=prompt_text(place / "history_summary.md"),
        summary_ok=prompt_text(place / "history_summary_ok.md"),
    )

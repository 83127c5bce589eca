"""Reads the words around the parts of a request from the files that come along."""

from proxy.app.prompt_files import prompt_text, prompts_folder
from proxy.core.window.shortening import PartName
from proxy.core.window.texts import WindowTexts

_IN_MESSAGE = (PartName.INSTRUCTION, PartName.SELECTION, PartName.PREFIX, PartName.SUFFIX)


def load_window_texts() -> WindowTexts:
    """The texts of the files. A summary has the words that stand around one of a compaction. Raises ValueError for a
    file that is missing, unreadable or empty."""
    place = prompts_folder()
    above = {name: prompt_text(place / "window" / f"{name}.md") for name in _IN_MESSAGE}
    return WindowTexts(
        above={**above, PartName.SUMMARY: prompt_text(place / "history_summary.md")},
        summary_ok=prompt_text(place / "history_summary_ok.md"),
    )

"""Reads all words that structured context is assembled with."""

from proxy.app.assembly_texts import load_assembly_texts
from proxy.app.compaction_texts import load_compaction_texts
from proxy.app.panel_texts import load_panel_texts
from proxy.core.structured.assembly.texts import ContextTexts


def load_context_texts() -> ContextTexts:
    """The words of the files that come along. Raises ValueError for a file that is missing, unreadable or empty."""
    return ContextTexts(load_assembly_texts(), load_panel_texts(), load_compaction_texts())

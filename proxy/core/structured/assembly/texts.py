"""The words between which structured context stands. They are read from ``prompts`` at the rim."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.layout.tiers import Tier
from proxy.core.structured.history.compaction_texts import CompactionTexts
from proxy.core.structured.panels.texts import PanelTexts


@dataclass(frozen=True, slots=True)
class AssemblyTexts:
    """Headers end with a blank line; ``ok``, ``urls_ok`` and ``review_ok`` are the assistant's words behind them.

    The words are those of the tiered assembly, byte for byte. ``{count}`` in ``file_count`` is the number of files.
    """

    repository_map: str
    repository_map_continued: str
    reference_l0: str
    reference_l1: str
    reference_l2: str
    reference_l3: str
    file_tree: str
    file_count: str
    urls: str
    review: str
    review_summary: str
    review_log: str
    review_symbols: str
    review_diffs: str
    working_files: str
    ok: str
    urls_ok: str
    review_ok: str

    @property
    def files(self) -> Mapping[Tier, str]:
        """The header of the files of each tier."""
        reference = (self.reference_l0, self.reference_l1, self.reference_l2, self.reference_l3)
        return dict(zip(Tier, (*reference, self.working_files), strict=True))


@dataclass(frozen=True, slots=True)
class ContextTexts:
    """All words that an assembly adds: those of the tiers, of live panels, and of compactions."""

    tiered: AssemblyTexts
    panels: PanelTexts
    compaction: CompactionTexts

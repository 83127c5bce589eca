"""What an operator sets of the assembly of structured context."""

from dataclasses import dataclass

from proxy.core.layout.tiers import ClassicPolicy
from proxy.core.structured.history.metas import DetachTerms
from proxy.core.structured.session.uploads import UPLOAD_BYTES

MOST_UNFOLDED_CHARS = 16 << 20
"""More than any model reads; to assemble so much takes a third of a second."""


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """``policy`` is ``economic`` or ``classic``; ``classic`` are the flags of the latter, whose target follows the
    model's minimum unless ``has_target``. ``text_bytes`` bounds the texts, ``session_bytes`` all other state, and
    ``most_chars`` the texts that one request shows together. ``detach`` are the minimums by which the oldest part of a
    conversation is frozen; None: only what a client asks for is. ``repeats_for`` names the cache profiles whose models
    read the system text again behind the panels. ``keep_exchanges`` are the newest user exchanges that a compaction
    never leaves out. ``keeps_alive``: a prefix may be kept alive beyond its life."""

    policy: str = "economic"
    classic: ClassicPolicy = ClassicPolicy()
    has_target: bool = False
    text_bytes: int = UPLOAD_BYTES
    session_bytes: int = 64 << 20
    most_chars: int = MOST_UNFOLDED_CHARS
    detach: DetachTerms | None = DetachTerms()
    keep_exchanges: int = 2
    repeats_for: frozenset[str] = frozenset()
    keeps_alive: bool = False

    @property
    def is_classic(self) -> bool:
        """Whether tiers decide the layout."""
        return self.policy == "classic"

"""Breaks of the cache: the kinds of causes, and a break with its culprit and its price."""

from collections.abc import Mapping
from enum import StrEnum

from proxy.core.diagnosis.record import SYSTEM, TOOL
from proxy.core.shadow.deviations import LOST, Deviation
from proxy.core.value import dataclass


class BreakKind(StrEnum):
    """How the request differs from the one that it continues. A cache miss without such a difference is a ``Deviation``
    of the provider: expired, evicted, partitioned, out of reach and others."""

    CHANGED = "changed"
    APPEARED = "appeared"
    DISAPPEARED = "disappeared"
    REORDERED = "reordered"
    TOOLS = "tools"
    PARAMETERS = "parameters"
    MODEL_SWITCHED = "model-switched"
    ROUTE_SWITCHED = "route-switched"
    COMPACTED = "compacted"
    """Turns were replaced by a shorter text: a summary, or a note that they were cleared."""
    BELOW_MINIMUM = "below-minimum"
    """Nothing is stored, because the prompt is shorter than the shortest one that the provider stores."""


KINDS: tuple[str, ...] = (*BreakKind, *sorted(LOST))
"""All kinds that a break can have."""

_CAUSES: Mapping[str, str] = {TOOL: "tools-changed", SYSTEM: "system-changed"}
"""The names that providers give to a difference in a piece of this kind (``proxy.core.response.miss_diagnostics``)."""


@dataclass(frozen=True, slots=True)
class Break:
    """One request whose prompt was read less than it could have been.

    ``culprit`` is the key of the first piece that differs and ``culprit_kind`` its kind; both are empty if no piece
    differs. ``place`` is its index on the wire (-1: none), and ``line`` the number of the first line that differs,
    counted from 1 (0: not known). ``before``, ``tokens`` and ``behind`` are the tokens of this request in front of the
    culprit, in it, and behind it. ``lost`` are the tokens that would have been read in addition if nothing had
    differed, and ``usd`` is the cost of that. The whole loss of a request belongs to its first culprit. ``is_waste``:
    the client could have sent the same content without the loss.
    """

    kind: BreakKind | Deviation
    culprit: str = ""
    culprit_kind: str = ""
    place: int = -1
    line: int = 0
    before: int = 0
    tokens: int = 0
    behind: int = 0
    lost: int = 0
    usd: float = 0.0
    is_waste: bool = False

    @property
    def expected_cause(self) -> str:
        """The cause that a provider which compares requests would report; empty if it would report none."""
        if self.kind is BreakKind.MODEL_SWITCHED:
            return "model-changed"
        if not self.culprit_kind:
            return ""
        return _CAUSES.get(self.culprit_kind, "messages-changed")

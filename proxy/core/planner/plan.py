"""A plan: what is sent for one request, and why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.caches.prompt import Bill
from proxy.core.modes import Mode

TREATED, CONTROL = "treated", "control"
"""The arms of the hold-out."""

UNMARKED = "unmarked"
"""The segment behind the last marker."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A piece that changed its tier with this request."""

    key: str
    source: str
    target: str
    reason: str


@dataclass(slots=True)
class Plan:
    """What is sent for one request, and why. ``body`` is complete JSON, ready for the wire.

    ``original`` is the client's request with only the edits that every mode allows; it is what a retry after a
    refused rewrite sends. ``rewritten`` says whether the two differ. ``reason`` is from a closed vocabulary
    (proxy.core.reasons). ``predicted`` and ``own`` are the shadow cache's bills of this plan and of the client's own
    layout with its own markers. ``tier_tokens`` are the tokens of context pieces by their tier, ``segment_tokens`` the
    whole prompt's by segment: what stands between two markers. ``moves`` and ``deviation``
    (``proxy.core.shadow.deviations``; empty where nothing was reported) are filled when the exchange is settled.
    ``headers`` are added to the request's where the client has none of that name. ``arm`` is the hold-out's (empty
    without one). ``session`` is the planner's name for the conversation (empty where it saw none). ``ticket`` is
    private to the planner; ``surprise`` is an error of ours that was contained. ``writing`` writes ``body``, where that
    is still to be done (``TierPlanner.written``).
    """

    body: bytes
    original: bytes
    mode: Mode
    reason: str
    rewritten: bool = False
    predicted: Bill | None = None
    own: Bill | None = None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    segment_tokens: Mapping[str, int] = field(default_factory=dict)
    moves: Sequence[Moved] = ()
    deviation: str = ""
    arm: str = ""
    session: str = ""
    headers: Sequence[tuple[str, str]] = ()
    ticket: object = None
    surprise: Exception | None = None
    writing: Callable[[], bytes] | None = None

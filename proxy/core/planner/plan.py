"""A plan: what is sent for one request, and why. Also the options that an operator may turn on and off."""

from collections.abc import Callable, Mapping, Sequence

from proxy.core.caches.prompt import Bill
from proxy.core.digest import digest
from proxy.core.layout.inventory import Inventory
from proxy.core.layout.tiers import Change
from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.planner.in_flight import InFlight
from proxy.core.planner.incoming_chat import TextsInFlight
from proxy.core.prompts.turn_texts import Again
from proxy.core.reasons import Edit, Reason
from proxy.core.request.body_changes import BodyChanges
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.json_body import Unreadable

_BUCKETS = 1 << 32


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """``holdout`` is the share of sessions that are sent unchanged, as controls. ``routing_keys``: if a provider keeps
    a conversation's requests together by a key, a key is sent to it. ``steady_tools``: tools that come again in another
    order or form are sent as they first came. ``texts_again`` says when the operator's text of an earlier turn is sent
    again. ``prices_mark``: after each request the planner computes what it would have cost in mode mark."""

    holdout: float = 0.0
    routing_keys: bool = True
    steady_tools: bool = True
    texts_again: Again = Again.BY_PRICE
    prices_mark: bool = False

    def is_control(self, scope: str, opening: bytes) -> bool:
        """Whether a session is one of the controls. The hash of its scope and its opening decides this, so that the
        answer is the same for all its requests in every process."""
        drawn = int.from_bytes(digest(b"holdout", scope.encode(), opening)[:4])
        return drawn < self.holdout * _BUCKETS


TREATED, CONTROL = "treated", "control"
"""The arms of the hold-out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent for one request, and why. ``body`` is complete JSON, ready for the wire. If ``write`` is not None,
    it has still to make the body, and until then ``body`` is the original.

    ``original`` is the client's request with only the edits that every mode allows; a retry after a refused rewrite
    sends it. ``reason`` is from a closed vocabulary (``proxy.core.reasons``). ``predicted`` and ``own`` are the shadow
    cache's bills: of this plan, and of the client's own layout with the client's own markers. ``tier_tokens`` are the
    tokens of context pieces by their tier. ``segment_tokens`` are the tokens of the whole prompt by segment; a segment
    ends at a marker. ``arm`` is the arm of the hold-out, empty without one. ``session`` is the planner's name for the
    conversation, empty if it saw none. ``headers`` are added unless the client sends a header of that name. Only the
    planner changes ``in_flight``. ``client`` is the recogniser that knows the client's texts, empty if none does.
    ``price`` is the model's price in USD a token, if it is known. ``texts`` are the operator's texts in the request,
    which the planner remembers. ``counted`` is called once when the exchange counts, with the reported usage. It
    returns the moves of pieces that the planner does not track itself. ``edits`` says how many messages or panels were
    edited because a client asked for it, by the reason. ``contents`` measures what the request consists of, if it was
    assembled from structured context; any thread may call it. ``changes`` are the changes that lead from the client's
    request to ``body``; None if these can only be the edits that every mode allows. ``surprise`` is an internal error
    of the proxy that was contained.
    """

    body: bytes
    original: bytes
    mode: Mode
    reason: str
    predicted: Bill | None = None
    own: Bill | None = None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    segment_tokens: Mapping[str, int] = field(default_factory=dict)
    arm: str = ""
    session: str = ""
    headers: Sequence[tuple[str, str]] = ()
    in_flight: InFlight | None = None
    client: str = ""
    price: Price | None = field(default=None, compare=False, repr=False)
    texts: TextsInFlight | None = field(default=None, compare=False, repr=False)
    counted: Callable[[Usage | None], Sequence[Change]] | None = field(default=None, compare=False, repr=False)
    edits: Mapping[Edit, int] = field(default_factory=dict)
    contents: Callable[[], Inventory] | None = field(default=None, compare=False, repr=False)
    surprise: Exception | None = None
    changes: BodyChanges | None = field(default=None, compare=False, repr=False)
    write: Callable[[], BodyChanges] | None = field(default=None, compare=False, repr=False)

    def written(self, *, has_body: bool = True) -> "Plan":
        """The plan with its changes, and with its body if it ``has_body``. This changes no other state, so another
        thread may call it."""
        if self.write is None:
            return self
        try:
            changes = self.write()
            return replace(self, body=changes.body() if has_body else self.body, changes=changes, write=None)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            return as_it_came(self.original, self.mode, error)

    @property
    def rewritten(self) -> bool:
        """Whether the body has more changes than the edits that every mode allows."""
        return self.body is not self.original and self.body != self.original


def as_it_came(original: bytes, mode: Mode, error: Exception) -> Plan:
    """The plan after an internal error of the proxy: caching never fails a request (fidelity rule 7)."""
    if isinstance(error, Unreadable):
        return Plan(original, original, mode, Reason.UNREADABLE)
    return Plan(original, original, mode, Reason.INTERNAL_ERROR, surprise=error)

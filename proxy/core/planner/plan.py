"""A plan: what is sent for one request, and why.

``planned_changes`` writes the decided layout as changes of the client's body. ``PlannerOptions`` are the parts of
planning that an operator may turn on and off.
"""

from collections.abc import Callable, Mapping, Sequence

import orjson

from proxy.core.caches.cache import Bill
from proxy.core.digest import digest
from proxy.core.layout.inventory import Inventory
from proxy.core.layout.render import patches, render_messages, render_tools, written_front
from proxy.core.layout.tiers import Change
from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.planner.candidates import IncomingChat, PlanAnalysis, TextsInFlight
from proxy.core.planner.in_flight import InFlight
from proxy.core.prompts.steadiness import Again
from proxy.core.providers.affinity_key import NO_BOUNDARIES
from proxy.core.reasons import Edit, Reason
from proxy.core.request.message import Message
from proxy.core.request.parsed_body import BodyChanges
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


_CHANGES_NOTHING = frozenset(
    {
        Reason.CLIENT_OPTIMAL, Reason.NATURAL_ORDER, Reason.NOTHING_STABLE, Reason.ONE_SHOT, Reason.BELOW_MINIMUM,
    }
)  # fmt: skip


def planned_changes(incoming: IncomingChat, analysis: PlanAnalysis) -> BodyChanges:
    """The changes for the plan's order, markers, tools and routing key."""
    parsed, route, mode, choice = incoming.parsed, analysis.route, incoming.mode, analysis.choice
    changes = dict(parsed.edits(route.model))
    if analysis.key.member is not None:
        name, key = analysis.key.member
        changes[name] = orjson.dumps(key)
    if analysis.steady_tools is not None:
        changes["tools"] = analysis.steady_tools
    messages = analysis.recognised.messages
    own = choice.reason in (Reason.CLIENT_OPTIMAL, Reason.REGRET_BOUND)
    # In mode mark the client's markers stay, even if the provider ignores or refuses them.
    if own and (mode is Mode.MARK or not analysis.own.has_foreign_marks):
        return changes_as_read(incoming, messages, changes)
    if choice.layout.seed.is_implicit is not analysis.own.natural.seed.is_implicit:
        changes["prompt_cache_options"] = NO_BOUNDARIES
    dialect = route.profile.dialect
    keep = mode is Mode.MARK and choice.reason is not Reason.SPLIT and not incoming.front
    marks = {p: life for p, life in choice.marks.items() if not keep or choice.layout.parts[p].own_mark is None}
    if analysis.elements.tools:
        last = len(analysis.elements.tools[0].parts) - 1
        raw_tools = analysis.steady_tools or bytes(parsed.members["tools"])
        changes["tools"] = render_tools(raw_tools, marks.get(last), dialect, keep_own=keep)
    if choice.layout is analysis.own.natural and parsed.span is not None and not incoming.front:
        marked = incoming.transcript.marked
        rewritten = patches(choice.layout, messages, marks, dialect, marked, keep_own=keep)
        return BodyChanges(parsed, changes, {**_inlaid(incoming, messages), **rewritten})
    written = render_messages(choice.layout, messages, marks, dialect, keep_own=keep)
    return BodyChanges(parsed, changes, messages=written)


def written_reason(reason: str, mode: Mode, *, has_foreign_marks: bool) -> str:
    """The reason of a plan whose body is written. If the only change is that markers which this provider refuses are
    removed, the reason says so."""
    is_removal = mode is Mode.TIER and reason in _CHANGES_NOTHING and has_foreign_marks
    return Reason.MARKERS_REMOVED if is_removal else reason


def changes_as_read(
    incoming: IncomingChat, messages: Sequence[Message], changes: Mapping[str, bytes | None]
) -> BodyChanges:
    """These changes of top-level members. The messages are the client's messages, with two exceptions: the operator's
    texts that ``messages`` may contain, and the messages that were sent in another form before."""
    front = incoming.front
    if not front:
        return BodyChanges(incoming.parsed, changes, _inlaid(incoming, messages))
    written = [*written_front(front, messages), *(message.raw for message in messages[incoming.laid_out :])]
    return BodyChanges(incoming.parsed, changes, messages=written)


def _inlaid(incoming: IncomingChat, messages: Sequence[Message]) -> Mapping[int, bytes]:
    """The messages that the operator's texts were inserted into, by their index."""
    if not incoming.route.has_texts:
        return {}
    came = incoming.transcript.messages
    return {i: new.raw for i, (old, new) in enumerate(zip(came, messages, strict=True)) if old.raw != new.raw}

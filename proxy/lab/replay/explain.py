"""``stratiform explain``: the layout of one recorded request, with a reason for every piece.

The description comes from the planner's own analysis (``explain_request``).
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import orjson
from rich.text import Text

from proxy.cli import Output, fail, plain_failures, plain_table, print_result
from proxy.kit.modes import Mode, Reason
from proxy.kit.value import dataclass
from proxy.lab import Trace, TraceError
from proxy.lab.replay import Ours, ReplayedContexts, Setting
from proxy.lab.replay.command import add_options, replayable, setting
from proxy.planner.candidates import UNMARKED
from proxy.planner.layout import Layout
from proxy.planner.plan import InFlight
from proxy.planner.record import Break
from proxy.planner.shadow import cost_of
from proxy.protocol.caches import Bill, Life
from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.recognition import TAG_OPEN, ContextPiece, PieceKind
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import Message

_TIER_STYLES = {"L0": "green", "L1": "cyan", "L2": "blue", "L3": "magenta"}
_SHOWN_CHARS = 40
_UNLIKELY = 0.5

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        Reason.PASSTHROUGH_MODE: "the mode asks for no change: the request is sent as it came",
        Reason.NOT_CHAT: "this is no chat request: nothing is planned",
        Reason.NOT_PLANNED: "the request ended before it was planned: it was refused, or asked for a breakdown alone",
        Reason.OBSERVE_MODE: "the request is planned and priced, and sent as it came",
        Reason.HOLD_OUT: "this is a control session of the hold-out: the request is sent as it came",
        Reason.UNREADABLE: "the proxy cannot read the request: it is sent as it came",
        Reason.SIGNED_THINKING: "what signed thinking binds goes out as it was laid out when the thinking was made",
        Reason.INTERNAL_ERROR: "the proxy met an error of its own: the request is sent as it came",
        Reason.BARRED: "the upstream refused an earlier rewrite of this session: the request is sent as it came",
        Reason.NO_PROFILE: "the rules of this upstream's cache are not known",
        Reason.MARKS_WITHOUT_PROFILE: "the client marks for a cache that is not known: set the upstream's profile",
        Reason.BELOW_MINIMUM: "the prompt is shorter than the provider caches: it is sent as it came",
        Reason.MARKERS_IGNORED: "the upstream ignores markers: the request is sent as it came",
        Reason.ONE_SHOT: "requests like this one are not continued: a cache write would be wasted",
        Reason.CLIENT_OPTIMAL: "the client's own order and markers are at least as good as ours",
        Reason.HOISTED_NOTICE: "the upstream moves a new system message to the front, so text behind it is not read",
        Reason.MARKERS_REMOVED: "this provider refuses the client's markers: they are taken out",
        Reason.NOTHING_STABLE: "no prefix is expected to be read again",
        Reason.REGRET_BOUND: "cheaper plans would exceed the allowance for mistakes: the request is sent as it came",
        Reason.STEADY_TOOLS: "the tools are sent in the order and form in which they came first, all else as it came",
        Reason.MARKED: "the order stays as it is, and markers are placed",
        Reason.SPLIT: "the order stays as it is, a system text is sent in two parts, and markers are placed",
        Reason.ORDERED: "the context is laid out anew, stable pieces first",
        Reason.KEPT: "the layout of an earlier request is continued",
        Reason.COMPACTION: "the proxy asks a model for a summary of the oldest part of a conversation",
        Reason.KEEP_ALIVE: "the proxy refreshes a cached prefix while the client pauses",
        Reason.NATURAL_ORDER: "the client's order is already the best",
        Reason.ASSEMBLED_TIERS: "the structured context is assembled in tiers, each of which ends at a marker",
        Reason.ASSEMBLED_FLAT: "the structured context is assembled flat, without markers",
    }
)

_REASONS: Mapping[ElementKind, str] = MappingProxyType(
    {
        ElementKind.SYSTEM: "system prompt without what moves in it, shared by all sessions",
        ElementKind.TAG: "lines that tell the time, moved out of the system prompt",
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """One piece, or a part of a piece that has a marker inside.

    ``position`` is its first position in the provider's count. ``read_again`` is P(the next request comes in time and
    repeats everything up to its end). ``segment`` is the number of the stretch between two markers. ``tier`` is the
    tracker's tier of a context piece; it is empty for everything else.
    """

    position: int
    segment: str
    tier: str
    what: str
    tokens: int
    marker: Life | None
    read_again: float
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One request's plan. ``request`` counts from 1. ``own`` is the bill for the client's own layout and markers, and
    ``predicted`` is the bill for the layout that is described here. Costs are in tokens at the plain price. ``broke``
    says what breaks the cache (None: nothing differs from the request before)."""

    trace: str
    request: int
    requests: int
    session: str
    reason: str
    meaning: str
    rewritten: bool
    rows: tuple[Row, ...] = ()
    predicted: Bill | None = None
    own: Bill | None = None
    predicted_cost: float | None = None
    own_cost: float | None = None
    broke: Break | None = None


def explain_request(trace: Trace, setting: Setting, number: int) -> Explanation:
    """Replay the requests before the one with this number, plan that one and describe the plan. ``number`` counts from
    1."""
    ours = Ours(setting)
    for step in trace.steps[: number - 1]:
        ours.send(step, ours.assembled(step))
    last, profile = trace.steps[number - 1], setting.profile
    plan = ours.plan(last, ours.assembled(last))
    hit = plan.predicted.hit if plan.predicted is not None else -1
    described = _Description(plan.in_flight, profile, hit, ours.contexts) if plan.in_flight is not None else None
    return Explanation(
        trace=trace.name,
        request=number,
        requests=len(trace.steps),
        session=last.session,
        reason=str(plan.reason),
        meaning=MEANINGS.get(plan.reason, ""),
        rewritten=plan.rewritten and plan.mode > Mode.OBSERVE,
        rows=tuple(described.rows()) if described is not None else (),
        predicted=plan.predicted,
        own=plan.own,
        predicted_cost=cost_of(profile, plan.predicted) if plan.predicted is not None else None,
        own_cost=cost_of(profile, plan.own) if plan.own is not None else None,
        broke=plan.in_flight.expected_break(plan.predicted) if plan.in_flight is not None else None,
    )


class _Description:
    """The rows of one draft: the chosen layout, or the client's own layout if that one is sent. ``hit`` is the position
    up to which the cache is read. ``contexts`` has assembled the structured context."""

    def __init__(self, in_flight: InFlight, profile: CacheProfile, hit: int, contexts: ReplayedContexts | None) -> None:
        self._profile, self._hit, self._contexts = profile, hit, contexts
        analysis = self._analysis = in_flight.analysis
        chosen = analysis.choice
        if in_flight.sends_own:
            self._layout = Layout(chosen.layout.seed, analysis.elements.natural)
            self._marks: Mapping[int, Life] = self._layout.own_marks() if profile.family is Family.MARKER else {}
        else:
            self._layout, self._marks = chosen.layout, chosen.marks
        self._survival = analysis.pricing().forecast.positions(self._layout.elements)

    def rows(self) -> Iterator[Row]:
        """In sending order."""
        layout, ends = self._layout, sorted(self._marks)
        for index, element in enumerate(layout.elements):
            start, last = layout.starts[index], layout.last_position(index)
            cuts = [position for position in ends if start <= position < last]
            spans = zip([start, *(c + 1 for c in cuts)], [*cuts, last], strict=True)
            for number, (first, end) in enumerate(spans, 1):
                what, reason = self._told(element)
                if element.ack >= 0 and number > 1:
                    what, reason = "assistant: the acknowledgement", "stays with what it acknowledges"
                elif cuts and element.ack < 0:
                    what += f" (part {number} of {len(cuts) + 1})"
                # An element without parts has no position, and no tokens.
                tokens = layout.ends[end] - (layout.ends[first - 1] if first else 0) if first <= end else 0
                is_marked = bool(ends) and end <= ends[-1]
                panel = self._contexts.panels.get(element.message) if self._contexts is not None else None
                if panel is not None:
                    written = ("written", self._profile.write) if is_marked else ("plain", 1.0)
                    how, price = ("read", self._profile.read) if end <= self._hit else written
                    reason = f"{panel}: {how}, costs as {tokens * price:,.0f} plain tokens"
                yield Row(
                    position=first,
                    segment=next((str(at) for at, mark in enumerate(ends, 1) if end <= mark), UNMARKED),
                    tier=self._tier(element) if number == 1 or element.ack < 0 else "",
                    what=what,
                    tokens=tokens,
                    marker=self._marks.get(end),
                    read_again=self._survival[end] if first <= end else 0.0,
                    reason=reason,
                )

    def _tier(self, element: Element) -> str:
        """The tier of an element. For a message of several pieces, it is the tier of the least stable piece."""
        given = self._contexts.tier_of(element) if self._contexts is not None else None
        if given is not None:
            return given
        tiers = [self._analysis.session.tracker.tier(item.key) for item in self._items(element)]
        return max(tiers).label if tiers else ""

    def _told(self, element: Element) -> tuple[str, str]:
        """The name of an element, and the reason for its position."""
        recognised, role = self._analysis.recognised, element.role
        if element.kind is ElementKind.TOOLS:
            return f"tools: {len(element.parts)}", "tools, shared by all sessions"
        if element.kind is ElementKind.WHOLE:
            items = self._items(element)
            return f"{role}: {', '.join(map(_name, items))}", "; ".join(dict.fromkeys(map(self._item_reason, items)))
        if element.kind is ElementKind.MESSAGE:
            return f"{role}: {first_words(recognised.messages[element.message])}", self._message_reason(element)
        what = _name(element.item) if element.item is not None else _short(element.lead.removeprefix(TAG_OPEN))
        why = self._item_reason(element.item) if element.item is not None else str(element.kind)
        return f"{role}: {what}", _REASONS.get(element.kind, why)

    def _items(self, element: Element) -> Sequence[ContextPiece]:
        """The pieces of an element that is a context message, or a part of one."""
        if element.kind is ElementKind.WHOLE:
            groups = (group for group in self._analysis.recognised.groups if group.message == element.message)
            return next((group.items for group in groups), ())
        return [element.item] if element.item is not None else []

    def _message_reason(self, element: Element) -> str:
        analysis = self._analysis
        if element.key == "system":
            seen, changes = analysis.session.own_head.of(element.message + 1)
            told = f"changed in {changes} of {seen} requests" if changes else "shared by all sessions"
            return f"system prompt, {told}"
        if element.message >= analysis.recognised.last_user:
            return "the last exchange stays last"
        is_repeated = analysis.pricing().forecast.turns.get(element.message, 1.0) >= _UNLIKELY
        return "turn" if is_repeated else "turn, so far seldom repeated by the next request"

    def _item_reason(self, item: ContextPiece) -> str:
        """The reason for a piece's position: what the prompt says about it, or else its age."""
        analysis, key = self._analysis, item.key
        age = analysis.observation.ages.get(key, 0)
        sign = analysis.pieces.signs.get(key)
        if sign is not None and (sign.is_named or sign.is_answered):
            return f"named in {'the prompt' if sign.is_named else 'the latest turns'}: likely to be edited"
        if analysis.session.items.get(key) is None and analysis.session.cohort.items.get(key) is None:
            return "new"
        return f"unchanged {age} request{'' if age == 1 else 's'}" if age else "just changed"


def _name(item: ContextPiece) -> str:
    """A piece's key without the name of its group: ``file:src/app.py``."""
    return item.key if item.kind is PieceKind.DOCUMENT else item.key.partition("/")[2]


def first_words(message: Message) -> str:
    """A message's beginning on one line. A call is shown by its name."""
    body = orjson.loads(message.raw)
    content = body.get("content")
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        content = next((text for text in texts if isinstance(text, str)), f"{len(content)} parts")
    if isinstance(content, str) and content.strip():
        return _short(content)
    calls = body.get("tool_calls")
    if not isinstance(calls, list):
        return ""
    names = [call.get("function", {}).get("name", "?") for call in calls if isinstance(call, dict)]
    return _short("calls " + ", ".join(map(str, names)))


def _short(text: str) -> str:
    line = " ".join(text[: 4 * _SHOWN_CHARS].split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a recorded session (.jsonl, .xz, .gz)")
    parser.add_argument(
        "--request", type=int, metavar="N", help="the number of the request, counted from 1 (default: the last one)"
    )
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay up to the request and show the plan for it."""
    with plain_failures(TraceError):
        trace = replayable(arguments.trace)
        count = len(trace.steps)
        number = count if arguments.request is None else arguments.request
        if not 1 <= number <= count:
            fail(f"{arguments.trace}: --request must be between 1 and {count}")
        explanation = explain_request(trace, setting(arguments), number)
        print_result(arguments, explanation, lambda: _print_explanation(explanation))
    return 0


def _print_explanation(explanation: Explanation) -> None:
    output = Output()
    output.print(f"{explanation.trace}, request {explanation.request} of {explanation.requests}")
    headings = ("at", "segment", "tier", "what", "tokens", "marker", "read again", "why")
    cells = (
        (
            str(row.position), row.segment, Text(row.tier, _TIER_STYLES.get(row.tier, "dim")), row.what,
            f"{row.tokens:,}", row.marker or "", f"{row.read_again:.0%}", row.reason,
        )
        for row in explanation.rows
    )  # fmt: skip
    if explanation.rows:
        output.print(plain_table(headings, ("at", "tokens", "read again"), cells))
    if explanation.broke is not None:
        broke = explanation.broke
        where = f"{broke.culprit_kind} {broke.culprit}" + (f", line {broke.line}" if broke.line else "")
        lost = f"{broke.lost:,} tokens more would be read, which costs as {broke.usd:,.0f} plain tokens"
        waste = " (waste)" if broke.is_waste else ""
        output.print(f"breaks the cache: {broke.kind}: {where}, behind {broke.before:,} tokens; {lost}{waste}")
    output.print(f"plan: {explanation.reason} ({explanation.meaning})")
    is_assembled = explanation.reason in (Reason.ASSEMBLED_TIERS, Reason.ASSEMBLED_FLAT)
    sent = "rewritten" if explanation.rewritten else "as it was assembled" if is_assembled else "as it came"
    output.print(f"sent: {sent}")
    output.print(f"predicted bill: {_bill(explanation.predicted, explanation.predicted_cost)}")
    output.print(f"bill of the client's own layout: {_bill(explanation.own, explanation.own_cost)}")


def _bill(bill: Bill | None, cost: float | None) -> str:
    if bill is None or cost is None:
        return "not known"
    share = f" ({cost / bill.total:.3f} of no caching)" if bill.total else ""
    kinds = f"read {bill.read:,}, written {bill.write:,}, plain {bill.plain:,}"
    return f"{kinds}: costs as {cost:,.0f} plain tokens{share}"

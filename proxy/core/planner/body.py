"""A draft as the body that is sent: the client's own bytes, and what the plan changes in them."""

from collections.abc import Mapping, Sequence

import orjson

from proxy.core.layout.render import patches, render_messages, render_tools
from proxy.core.modes import Mode
from proxy.core.planner.analysis import Draft
from proxy.core.providers import Dialect
from proxy.core.providers.affinity_key import NO_BOUNDARIES
from proxy.core.reasons import Reason
from proxy.core.request.body_cache import ParsedBody
from proxy.core.request.message import MARK_KEYS, Message
from proxy.core.request.route import Route
from proxy.core.request.transcript import Transcript
from proxy.core.wire.edits import transport_edits
from proxy.core.wire.json_body import ChatRequest, Patch

_CHANGES_NOTHING = frozenset(
    {
        Reason.CLIENT_OPTIMAL, Reason.NATURAL_ORDER, Reason.NOTHING_STABLE, Reason.ONE_SHOT, Reason.BELOW_MINIMUM,
    }
)  # fmt: skip


def planned_body(request: ChatRequest, cut: ParsedBody, draft: Draft, route: Route, mode: Mode) -> bytes:
    """The request with the plan's order, markers, tools and routing key; all else as it came."""
    choice, dialect = draft.choice, route.profile.dialect
    changes = dict(transport_edits(request, route.model))
    if draft.key.member is not None:
        name, key = draft.key.member
        changes[name] = orjson.dumps(key)
    if draft.steady is not None:
        changes["tools"] = draft.steady
    transcript = draft.recognised.transcript
    messages = transcript.messages
    own = choice.reason in (Reason.CLIENT_OPTIMAL, Reason.REGRET_BOUND)
    # In mode mark the client's markers stay, whatever the provider makes of them.
    if own and (mode is Mode.MARK or not has_foreign_marks(request, transcript, dialect)):
        return as_read(request, cut, messages, changes)
    if choice.layout.seed.is_implicit is not draft.natural.seed.is_implicit:
        changes["prompt_cache_options"] = NO_BOUNDARIES
    keep = mode is Mode.MARK and choice.reason is not Reason.SPLIT
    marks = {p: life for p, life in choice.marks.items() if not keep or choice.layout.parts[p].own_mark is None}
    within: list[Patch] = []
    if choice.layout is draft.natural and cut.span is not None and not route.reminder:
        changed = patches(choice.layout, messages, marks, dialect, transcript.marked, keep_own=keep)
        places = ((cut.starts[index], index) for index in changed)
        within = [(place, place + len(messages[index].raw), changed[index]) for place, index in places]
    else:
        changes["messages"] = render_messages(choice.layout, messages, marks, dialect, keep_own=keep)
    if draft.material.tools:
        last = len(draft.material.tools[0].parts) - 1
        raw_tools = draft.steady or bytes(request.members["tools"])
        changes["tools"] = render_tools(raw_tools, marks.get(last), dialect, keep_own=keep)
    return request.edited(changes, within)


def as_written(reason: str, request: ChatRequest, draft: Draft, route: Route, mode: Mode) -> str:
    """The reason of a plan whose body is written: markers that this provider refuses were taken out of it."""
    is_quiet = mode is Mode.TIER and reason in _CHANGES_NOTHING
    if is_quiet and has_foreign_marks(request, draft.recognised.transcript, route.profile.dialect):
        return Reason.MARKERS_REMOVED
    return reason


def as_read(
    request: ChatRequest, cut: ParsedBody, messages: Sequence[Message], changes: Mapping[str, bytes | None]
) -> bytes:
    """The messages as the client sent them, but for the operator's reminder; everything else as it came."""
    came = cut.transcript.messages if cut.transcript is not None else ()
    changed = [i for i, (old, new) in enumerate(zip(came, messages, strict=True)) if old.raw != new.raw]
    if not changed:
        return request.edited(changes)
    if cut.span is None or request.span != cut.span:
        written = b"[" + b",".join(message.raw for message in messages) + b"]"
        return request.edited({**changes, "messages": written})
    places = ((cut.starts[index], index) for index in changed)
    return request.edited(changes, [(at, at + len(came[i].raw), messages[i].raw) for at, i in places])


def own_count(request: ChatRequest, transcript: Transcript) -> int:
    """Markers that the client wrote, honoured or not: within a JSON string the key's quotes would be escaped."""
    raw = [transcript.messages[index].raw for index in transcript.marked]
    if "tools" in request.members:
        raw.append(bytes(request.members["tools"]))
    return sum(text.count(b'"cache_control"') + text.count(b'"prompt_cache_breakpoint"') for text in raw)


def has_foreign_marks(request: ChatRequest, transcript: Transcript, dialect: Dialect) -> bool:
    """Whether the client marks in a dialect that this provider refuses: such markers are re-placed, or taken out."""
    raw = [transcript.messages[index].raw for index in transcript.marked]
    if "tools" in request.members:
        raw.append(bytes(request.members["tools"]))
    foreign = [b'"%s"' % key.encode() for key in MARK_KEYS if key != dialect.key]
    return any(key in text for text in raw for key in foreign)

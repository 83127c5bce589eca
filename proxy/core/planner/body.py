"""Writes a decided layout as changes of the client's body."""

from collections.abc import Mapping, Sequence

import orjson

from proxy.core.layout.render import patches, render_messages, render_tools
from proxy.core.layout.sent_front import written_front
from proxy.core.modes import Mode
from proxy.core.planner.analysis import PlanAnalysis
from proxy.core.planner.incoming_chat import IncomingChat
from proxy.core.providers.affinity_key import NO_BOUNDARIES
from proxy.core.reasons import Reason
from proxy.core.request.body_changes import BodyChanges
from proxy.core.request.message import Message

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

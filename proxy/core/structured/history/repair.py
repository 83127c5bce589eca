"""Groups of calls and results in the form that providers accept: no call without a result, no result without a call,
and the calls of one turn in one message."""

from itertools import groupby

from proxy.core.request.message import MARK_KEYS
from proxy.core.structured.history.groups import (
    MADE,
    Entry,
    Group,
    Shape,
    Sort,
    call_members,
    entry_of,
    is_given,
    is_known,
)
from proxy.core.structured.messages import Turn
from proxy.core.wire.json_body import Members, join_members

PLACEHOLDER = "No result was recorded: the call was interrupted, or its result was lost."
"""The text in the place of a missing result, if other calls of the same message have their results."""


def repaired(group: Group) -> tuple[Group, int]:
    """The group with all results behind their calls and no call without a result, and how many of its messages were
    changed or left out for that. A group for which ``is_known`` is False stays as it came.

    A message loses its calls if none of them is answered, and is left out if it has no other content. There is one
    exception: a message with content behind a message whose calls are answered keeps its calls, and they get
    placeholders. Without its calls it would stand between the other message's calls and their results.
    """
    if not any(each.shape.sort in (Sort.CALLS, Sort.RESULT) for each in group) or not is_known(group):
        return group, 0
    asked = {call_id for each in group if each.shape.sort is Sort.CALLS for call_id in each.shape.ids}
    answered = asked.intersection(each.shape.ids[0] for each in group if each.shape.sort is Sort.RESULT)
    kept: Group = []
    missing: list[Entry] = []
    repairs = behind_result = 0
    for each in group:
        sort = each.shape.sort
        if sort is Sort.RESULT and each.shape.ids[0] not in answered:
            repairs += 1
            continue
        if sort is Sort.CALLS and not answered.issuperset(each.shape.ids):
            repairs += 1
            if answered.isdisjoint(each.shape.ids) and not (each.shape.has_content and behind_result):
                kept += _without_calls(each)
                continue
            missing += _placeholders(each.shape, answered)
        kept.append(each)
        behind_result = len(kept) if sort is not Sort.SYSTEM else behind_result
    return [*kept[:behind_result], *missing, *kept[behind_result:]], repairs


def _without_calls(entry: Entry) -> Group:
    """The rest of a message without its calls; empty if it has no other content."""
    if not entry.shape.has_content:
        return []
    left = Turn.of(join_members(entry.shape.members, {"tool_calls": None}))
    return [entry_of(entry.origin, left)]


def _placeholders(shape: Shape, answered: set[str]) -> Group:
    """A result for each call of the message that has none."""
    calls = zip(shape.ids, call_members(shape.members), strict=True)
    missing = [bytes(call["id"]) for call_id, call in calls if call_id not in answered]
    behind = b',"content":"' + PLACEHOLDER.encode() + b'"}'
    return [entry_of(MADE, Turn.of(b'{"role":"tool","tool_call_id":' + raw + behind)) for raw in missing]


_JOINED = frozenset({"role", "content", "tool_calls", *MARK_KEYS})
_TEXT_JOINT = rb"\n"
"""The separator between the texts of two messages, as JSON writes it."""


def merged(group: Group) -> tuple[Group, int]:
    """The group with neighbouring calls in one message, and how many messages were joined to another one. A message is
    not joined if it has members besides its content and calls that the first message does not have in the same way. A
    group for which ``is_known`` is False stays as it came."""
    if sum(each.shape.sort is Sort.CALLS for each in group) < 2 or not is_known(group):
        return group, 0
    found: Group = []
    for is_calls, neighbours in groupby(group, lambda each: each.shape.sort is Sort.CALLS):
        run = list(neighbours)
        found += _chained(run) if is_calls else run
    return found, len(group) - len(found)


def _chained(run: Group) -> Group:
    """Consecutive messages that call tools, with those joined that can be joined."""
    chains: list[Group] = []
    for each in run:
        if chains and _says_no_more(each.shape.members, chains[-1][0].shape.members):
            chains[-1].append(each)
        else:
            chains.append([each])
    return [_joined(chain) for chain in chains]


def _says_no_more(members: Members, first: Members) -> bool:
    own = (name for name in members if name not in _JOINED and is_given(members, name))
    return all(name in first and bytes(first[name]) == bytes(members[name]) for name in own)


def _joined(chain: Group) -> Entry:
    if len(chain) == 1:
        return chain[0]
    parts = [each.shape.members for each in chain]
    calls = b",".join([bytes(members["tool_calls"])[1:-1] for members in parts])
    changes: dict[str, bytes | None] = {"tool_calls": b"[" + calls + b"]"}
    content = _content([bytes(members["content"]) for members in parts if is_given(members, "content")])
    if content is not None:
        changes["content"] = content
    for name in MARK_KEYS:
        marks = [bytes(members[name]) for members in parts if is_given(members, name)]
        if marks:
            changes[name] = marks[-1]
    return entry_of(chain[0].origin, Turn.of(join_members(chain[0].shape.members, changes)))


def _content(contents: list[bytes]) -> bytes | None:
    """The contents as one: a text if all are texts, otherwise a list of parts; None if there is none."""
    if not contents:
        return None
    if len(contents) == 1:
        return contents[0]
    if all(content.startswith(b'"') for content in contents):
        return b'"' + _TEXT_JOINT.join([content[1:-1] for content in contents]) + b'"'
    return b"[" + b",".join(filter(None, map(_parts, contents))) + b"]"


def _parts(content: bytes) -> bytes:
    """The content's parts as JSON without the brackets of the list; empty if there are none."""
    return b'{"type":"text","text":' + content + b"}" if content.startswith(b'"') else content[1:-1].strip()

"""Calls without results, and results without calls: a provider refuses a request that has any."""

from msgspec import Raw

from proxy.core.structured.history.groups import MADE, Entry, Group, entry_of, is_known
from proxy.core.structured.history.shape import Shape, Sort, call_members
from proxy.core.structured.messages.turn import Turn
from proxy.core.wire.json_body import join_members

PLACEHOLDER = "No result was recorded: the call was interrupted, or its result was lost."
"""What stands in place of a result that is missing, where other calls of the same message have theirs."""


def repaired(group: Group) -> tuple[Group, int]:
    """The group with all results behind their calls and no call without a result, and how many of its messages were
    changed or left out for that. A group that is not known whole stays as it came.

    A message of which no call is answered loses its calls, and is left out where nothing else is said in it. Behind a
    message whose calls are answered it keeps what it says, so that it keeps its calls, too, and they get placeholders:
    without them it would stand between the others' calls and their results.
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
    """What is left of a message without its calls."""
    if not entry.shape.has_content:
        return []
    left = Turn.of(join_members(entry.shape.members, {"tool_calls": None}))
    return [entry_of(entry.origin, left)]


def _placeholders(shape: Shape, answered: set[str]) -> Group:
    """A result for each call of the message that has none."""
    calls = zip(shape.ids, call_members(shape.members), strict=True)
    return [entry_of(MADE, _placeholder(call["id"])) for call_id, call in calls if call_id not in answered]


def _placeholder(call_id: Raw) -> Turn:
    raw = b'{"role":"tool","tool_call_id":' + bytes(call_id) + b',"content":"' + PLACEHOLDER.encode() + b'"}'
    return Turn.of(raw)

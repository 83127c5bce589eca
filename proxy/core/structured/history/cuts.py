"""Where a conversation may be cut in two: in front of a user message, and never within a group of calls and results."""

from collections.abc import Sequence

from proxy.core.structured.history.shape import Sort, shape_of
from proxy.core.structured.messages.turn import Turn


def cuts(turns: Sequence[Turn]) -> tuple[int, ...]:
    """The indices of the user messages in front of which the conversation may be cut, in ascending order.

    A call and its results are a group, with all that stands between them. What cannot be read may answer the call in
    front of it, and is taken for a result. The time is that of finding the messages' members.
    """
    sorts, ends = _groups(turns)
    found, reach = [], -1
    for index, turn in enumerate(turns):
        if turn.role == "user" and sorts[index] is Sort.PLAIN and reach < index:
            found.append(index)
        reach = max(reach, ends[index])
    return tuple(found)


def _groups(turns: Sequence[Turn]) -> tuple[list[Sort], list[int]]:
    """What each message is, and where the last result of its calls stands: -1 for a message without any."""
    sorts: list[Sort] = []
    ends = [-1] * len(turns)
    callers: dict[str, int] = {}
    latest = -1
    for index, turn in enumerate(turns):
        shape = shape_of(turn)
        sorts.append(shape.sort)
        if shape.sort is Sort.CALLS:
            callers.update(dict.fromkeys(shape.ids, index))
        elif shape.sort in (Sort.RESULT, Sort.UNREAD):
            caller = callers.get(shape.ids[0], latest) if shape.ids else latest
            if caller >= 0:
                ends[caller] = index
        if turn.role == "assistant":
            latest = index
    return sorts, ends

"""Tool groups: messages that call tools, one behind another, and the results behind them.

A provider takes a call only where its results follow directly, so that a call and its results are matched within their
group. Ids need not be unique in the whole conversation: several models number the calls of each answer anew.
"""

from collections.abc import Iterable, Iterator

import msgspec

from proxy.core.structured.history.shape import Shape, Sort, shape_of
from proxy.core.structured.messages.turn import Turn

MADE = -1
"""The origin of a message that the client did not send."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A message on its way through the rules. ``origin`` is its index in the client's conversation, or ``MADE``."""

    origin: int
    turn: Turn
    shape: Shape


Group = list[Entry]


def entry_of(origin: int, turn: Turn) -> Entry:
    """The message with what is known of it."""
    return Entry(origin, turn, shape_of(turn))


def grouped(entries: Iterable[Entry]) -> Iterator[Group]:
    """The messages, cut so that calls are together with their results; any other message is a group of its own. What
    cannot be read belongs to the group that it stands in, and system messages part no group."""
    group: Group = []
    last = Sort.PLAIN
    for each in entries:
        sort = each.shape.sort
        if group and (sort is Sort.PLAIN or (sort is Sort.CALLS and last is Sort.RESULT)):
            yield group
            group = []
        group.append(each)
        last = last if sort is Sort.SYSTEM else sort
        if sort is Sort.PLAIN:
            yield group
            group = []
    if group:
        yield group


def is_known(group: Group) -> bool:
    """Whether it is known which call each result of the group answers: every message can be read, and no two of its
    calls have the same id."""
    if any(each.shape.sort is Sort.UNREAD for each in group):
        return False
    ids = [call_id for each in group if each.shape.sort is Sort.CALLS for call_id in each.shape.ids]
    return len(set(ids)) == len(ids)

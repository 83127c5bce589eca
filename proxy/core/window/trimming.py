"""Which of the oldest messages are left out, with hysteresis.

A window that slides by one turn with every request changes the front of the prompt each time, and a cached prefix is
never read again. Here the cut stays where it is while the conversation fits. Where it does not fit any more, the cut
moves on until three quarters of the room are taken, so that many requests fit behind it before it moves again.

Nobody has to remember the cut: it is found by going through the conversation from its beginning, request by request as
the client has sent them. All workers find the same cut, and a restart changes nothing. The room is rounded down to a
coarse step, so that a few tokens more or less in what stands around the conversation change nothing, either.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.window.turns import Moment, Steps

_LOW_WATER = (3, 4)
# A limit of messages is reached after few turns of few tokens: with three quarters the cut would move too often.
_LOW_MESSAGES = (1, 2)
_STEPS = 64


@dataclass(frozen=True, slots=True)
class Room:
    """What the conversation may take: tokens, and messages in front of the newest turn (None: any number)."""

    tokens: int
    messages: int | None = None


def coarse(tokens: int, budget_tokens: int) -> int:
    """The tokens, rounded down to a multiple of a sixty-fourth of the budget."""
    step = max(1, budget_tokens // _STEPS)
    return max(0, tokens - tokens % step)


def advance(cut: int, steps: Steps, moment: Moment, room: Room) -> int:
    """The cut after a request: as it was while everything fits, else moved on to the low-water mark. ``cut`` is how
    many steps are left out. What cannot be left out at that moment stays, be it too much."""
    if _fits(cut, steps, moment, room):
        return cut
    last = steps.legal[moment.droppable]
    low = _low(steps, moment, last, room)
    while cut < last and not (_fits(cut, steps, moment, low) and steps.legal[cut] == cut):
        cut += 1
    return cut


def cut_of(steps: Steps, room: Room) -> int:
    """The cut of the newest request, found by going through all requests. The time is linear: the cut only moves on."""
    cut = 0
    for moment in steps.moments:
        cut = advance(cut, steps, moment, room)
    return cut


def _fits(cut: int, steps: Steps, moment: Moment, room: Room) -> bool:
    if moment.tokens - steps.tokens_before[cut] > room.tokens:
        return False
    return room.messages is None or moment.older_messages - steps.messages_before[cut] <= room.messages


def _low(steps: Steps, moment: Moment, last: int, room: Room) -> Room:
    """The low-water mark: three quarters of the room that is left beside what must stay."""
    held = min(room.tokens, moment.tokens - steps.tokens_before[last])
    few, many = _LOW_MESSAGES
    messages = None if room.messages is None else room.messages * few // many
    share, whole = _LOW_WATER
    return Room(held + (room.tokens - held) * share // whole, messages)


def kept(cut: int, steps: Steps, count: int) -> Sequence[int]:
    """The indices of those of ``count`` messages that are sent."""
    return [index for index in range(count) if steps.gone_from[index] > cut]

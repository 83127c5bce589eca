"""Chooses the oldest messages that are left out, with hysteresis.

A window that moves by one turn with every request changes the front of the prompt each time, and a cached prefix is
never read again. Here the cut stays where it is while the conversation fits. If it does not fit any more, the cut moves
on until three quarters of the room are taken, so that many requests fit after it before it moves again.

The cut need not be remembered: it is found by going through the conversation from its beginning, request by request as
the client has sent them. All workers find the same cut, and a restart changes nothing. The room is rounded down to a
coarse step, so that a few tokens more or less around the conversation change nothing either.
"""

from collections.abc import Sequence
from itertools import accumulate

from proxy.core.request.message import Message
from proxy.core.value import dataclass

_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Moment:
    """A request that the client has sent, or would have sent. ``tokens`` are those of all messages up to then, and
    ``older_messages`` are those in front of its newest turn. Any number of the ``droppable`` steps may be left out."""

    tokens: int
    older_messages: int
    droppable: int


@dataclass(frozen=True, slots=True)
class Steps:
    """``gone_from`` says for each message how many steps must be left out until it is gone. ``tokens_before`` and
    ``messages_before`` give for each number of steps what these first steps hold. ``legal`` gives for each number of
    steps the largest number up to it that separates no result from its call. ``moments`` are the requests so far, the
    newest last."""

    gone_from: Sequence[int]
    tokens_before: Sequence[int]
    messages_before: Sequence[int]
    moments: Sequence[Moment]
    legal: Sequence[int]


@dataclass(slots=True)
class _Turn:
    """A turn, as the indices of its messages: those before the first answer, and the groups. ``is_asked``: a user has
    begun the turn."""

    is_asked: bool
    head: list[int]
    groups: list[list[int]]


def steps_of(messages: Sequence[Message]) -> Steps:
    """The steps of a conversation without its leading system messages. The time is linear."""
    turns = _turns(messages)
    gone_from = [_NEVER] * len(messages)
    moments: list[Moment] = []
    count = tokens_so_far = older = 0
    for turn in turns:
        first, is_newest = count, turn is turns[-1]
        for group in _steps_in(turn, is_newest=is_newest):
            count += 1
            for index in group:
                gone_from[index] = count
        # One request for the user message, and one for each group after it.
        for number, indices in enumerate((turn.head, *turn.groups)):
            if indices:
                tokens_so_far += sum(messages[index].tokens for index in indices)
                droppable = max(0, number - 1) if turn.is_asked or is_newest else 0
                moments.append(Moment(tokens_so_far, older, first + droppable))
        older += len(turn.head) + sum(map(len, turn.groups))
    tokens, sizes = [0] * (count + 1), [0] * (count + 1)
    for message, gone in zip(messages, gone_from, strict=True):
        if gone <= count:
            tokens[gone] += message.tokens
            sizes[gone] += 1
    legal = _legal(messages, gone_from, count)
    return Steps(gone_from, list(accumulate(tokens)), list(accumulate(sizes)), moments, legal)


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        if message.is_asked or not turns:
            turns.append(_Turn(message.is_asked, [], []))
        turn = turns[-1]
        if message.role == "assistant":
            turn.groups.append([index])
        elif turn.groups:
            turn.groups[-1].append(index)
        else:
            turn.head.append(index)
    return turns


def _steps_in(turn: _Turn, *, is_newest: bool) -> list[list[int]]:
    """The messages that are left out with each step of a turn. A turn that no user has begun is left out as a whole,
    unless it is the only one."""
    if is_newest:
        return turn.groups[:-1]
    if not turn.is_asked or not turn.groups:
        return [turn.head + [index for group in turn.groups for index in group]]
    return [*turn.groups[:-1], turn.head + turn.groups[-1]]


def _legal(messages: Sequence[Message], gone_from: Sequence[int], count: int) -> list[int]:
    """For each cut, the largest cut up to it that leaves no result without its call. A cut can separate the two only if
    other messages are between them."""
    called: dict[str, int] = {}
    opened = [0] * (count + 2)
    for index, message in enumerate(messages):
        called.update(dict.fromkeys(message.call_ids, index))
        for call in {called[own] for own in message.answers if own in called}:
            if gone_from[call] < gone_from[index]:
                opened[gone_from[call]] += 1
                opened[min(gone_from[index], count + 1)] -= 1
    legal = [0] * (count + 1)
    for cut, spans in enumerate(accumulate(opened[: count + 1])):
        legal[cut] = cut if not spans else legal[cut - 1]
    return legal


_STEPS = 64


@dataclass(frozen=True, slots=True)
class Room:
    """The room of the conversation: tokens, and messages in front of the newest turn (None: any number)."""

    tokens: int
    messages: int | None = None


def coarse(tokens: int, budget_tokens: int) -> int:
    """The tokens, rounded down to a multiple of a sixty-fourth of the budget."""
    step = max(1, budget_tokens // _STEPS)
    return max(0, tokens - tokens % step)


def advance(cut: int, steps: Steps, moment: Moment, room: Room) -> int:
    """The cut after a request. It stays as it was while everything fits, and otherwise moves on to the low-water mark.
    ``cut`` is how many steps are left out. Steps that cannot be left out at that moment stay, even if they are too
    much."""
    if _fits(cut, steps, moment, room):
        return cut
    last = steps.legal[moment.droppable]
    low = _low(steps, moment, last, room)
    while cut < last and not (_fits(cut, steps, moment, low) and steps.legal[cut] == cut):
        cut += 1
    return cut


def cut_of(steps: Steps, room: Room) -> int:
    """The cut of the newest request, found by going through all requests. The time is linear, because the cut only
    moves forward."""
    cut = 0
    for moment in steps.moments:
        cut = advance(cut, steps, moment, room)
    return cut


def _fits(cut: int, steps: Steps, moment: Moment, room: Room) -> bool:
    if moment.tokens - steps.tokens_before[cut] > room.tokens:
        return False
    return room.messages is None or moment.older_messages - steps.messages_before[cut] <= room.messages


def _low(steps: Steps, moment: Moment, last: int, room: Room) -> Room:
    """The low-water mark: three quarters of the room that is left besides what must stay, and half of the messages. A
    limit of messages is reached after few turns with few tokens, so that the cut would move too often with three
    quarters."""
    held = min(room.tokens, moment.tokens - steps.tokens_before[last])
    messages = None if room.messages is None else room.messages // 2
    return Room(held + (room.tokens - held) * 3 // 4, messages)


def kept(cut: int, steps: Steps, count: int) -> Sequence[int]:
    """The indices of the messages that are sent, out of ``count`` messages."""
    return [index for index in range(count) if steps.gone_from[index] > cut]

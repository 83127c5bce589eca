"""A conversation as steps in which its oldest messages may be left out.

A turn is a user message and all that follows it up to the next one. A group is an assistant message and what follows
it up to the next one: a tool call is never without its results. The groups of a turn go one by one, the oldest first;
its user message goes with the last of them, so that what is kept begins with a user message. Of the newest turn the
user message and the newest group never go, but older groups of a long tool loop do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is known of one message: its ``tokens``, the ids of the tools that it calls, and the id that it answers."""

    role: str
    tokens: int
    calls: Sequence[str] = ()
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """A request that the client has sent, or would have: ``tokens`` are those of all messages up to then,
    ``older_messages`` are those in front of its newest turn, and of ``droppable`` steps any number may go."""

    tokens: int
    older_messages: int
    droppable: int


@dataclass(frozen=True, slots=True)
class Steps:
    """``gone_from`` says for each message how many steps must be left out until it is gone. ``tokens_before`` and
    ``messages_before`` are what the first so many steps hold. ``legal`` is for each number of steps the largest one up
    to it that parts no result from its call; ``moments`` are the requests so far, the newest last."""

    gone_from: Sequence[int]
    tokens_before: Sequence[int]
    messages_before: Sequence[int]
    moments: Sequence[Moment]
    legal: Sequence[int]


@dataclass(slots=True)
class _Turn:
    """The indices of messages: what precedes the first answer, and the groups. ``is_asked``: a user has begun it."""

    is_asked: bool
    head: list[int]
    groups: list[list[int]]


def steps_of(messages: Sequence[Spoken]) -> Steps:
    """The steps of a conversation without its leading system messages. The time is linear."""
    turns = _turns(messages)
    gone_from = [_NEVER] * len(messages)
    first_steps: list[int] = []
    count = 0
    for turn in turns:
        first_steps.append(count)
        groups = _steps_in(turn, is_newest=turn is turns[-1])
        for number, group in enumerate(groups, 1):
            for index in group:
                gone_from[index] = count + number
        count += len(groups)
    tokens, sizes = [0] * (count + 1), [0] * (count + 1)
    for message, gone in zip(messages, gone_from, strict=True):
        if gone <= count:
            tokens[gone] += message.tokens
            sizes[gone] += 1
    return Steps(
        gone_from,
        list(accumulate(tokens)),
        list(accumulate(sizes)),
        _moments(turns, first_steps, messages, count),
        _legal(messages, gone_from, count),
    )


def _turns(messages: Sequence[Spoken]) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        if message.role == "user" or not turns:
            turns.append(_Turn(message.role == "user", [], []))
        turn = turns[-1]
        if message.role == "assistant":
            turn.groups.append([index])
        elif turn.groups:
            turn.groups[-1].append(index)
        else:
            turn.head.append(index)
    return turns


def _steps_in(turn: _Turn, *, is_newest: bool) -> list[list[int]]:
    """What goes with each step of a turn. One that no user has begun goes as a whole, unless it is all there is."""
    if is_newest:
        return turn.groups[:-1]
    if not turn.is_asked or not turn.groups:
        return [turn.head + [index for group in turn.groups for index in group]]
    return [*turn.groups[:-1], turn.head + turn.groups[-1]]


def _moments(
    turns: Sequence[_Turn], first_steps: Sequence[int], messages: Sequence[Spoken], count: int
) -> list[Moment]:
    """A request for each user message, and one for each group behind it."""
    found: list[Moment] = []
    tokens = older = 0
    for turn, first in zip(turns, first_steps, strict=True):
        goes_in_groups = turn.is_asked or turn is turns[-1]
        size = 0
        for number, indices in enumerate((turn.head, *turn.groups)):
            if not indices:
                continue
            tokens += sum(messages[index].tokens for index in indices)
            size += len(indices)
            droppable = first + max(0, number - 1) if goes_in_groups else first
            found.append(Moment(tokens, older, min(droppable, count)))
        older += size
    return found


def _legal(messages: Sequence[Spoken], gone_from: Sequence[int], count: int) -> list[int]:
    """For each cut the largest one up to it that leaves no result without its call. The two are parted only where other
    messages stand between them."""
    called: dict[str, int] = {}
    opened = [0] * (count + 2)
    for index, message in enumerate(messages):
        called.update(dict.fromkeys(message.calls, index))
        call = called.get(message.answers) if message.answers is not None else None
        if call is not None and gone_from[call] < gone_from[index]:
            opened[gone_from[call]] += 1
            opened[min(gone_from[index], count + 1)] -= 1
    legal = [0] * (count + 1)
    for cut, spans in enumerate(accumulate(opened[: count + 1])):
        legal[cut] = cut if not spans else legal[cut - 1]
    return legal

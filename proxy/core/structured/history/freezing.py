"""The oldest part of a long conversation, frozen: it is shown in panels that never change, and no longer as messages.

A chunk is cut where it has enough messages and tokens for the first time, if enough of either stay behind it. What it
holds depends on nothing but the messages up to its end: nothing is remembered, and a conversation that grows by turns
has the same chunks in each request, and more of them later. A chunk that could not be cut is not cut elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from proxy.core.reasons import Edit
from proxy.core.structured.history.chunk_text import chunk_text
from proxy.core.structured.history.groups import MADE
from proxy.core.structured.history.metas import DetachTerms
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.panels.panel import FROZEN_PREFIX, HISTORY_KIND, Panel
from proxy.core.wire.json_body import Unreadable


def frozen(
    ruled: RuledHistory, terms: DetachTerms, tokens: Callable[[Turn], int], most: int | None = None
) -> tuple[RuledHistory, tuple[Panel, ...]]:
    """The conversation without its oldest parts, and these parts as panels in their order. Each message is counted once
    at most, and the time is linear. System messages, and what begins with the last user message, stay where they are.
    Freezing ends in front of a message that holds more than text, or cannot be read. ``tokens`` has to say the same of
    a message in each request, whatever markers it carries: otherwise chunks are cut elsewhere, and the provider's cache
    is lost."""
    history = ruled.conversation.history
    chunks: list[Panel] = []
    end = total = 0
    for start, boundary, count in islice(_cuts(ruled, terms, tokens) if most != 0 else (), most):
        try:
            text = chunk_text(history[start:boundary])
        except Unreadable:
            break
        chunks.append(Panel(f"{FROZEN_PREFIX}{len(chunks) + 1}", HISTORY_KIND, f"Chat ({count})", text))
        end = boundary
        total += count
    return (_without(ruled, end, total) if chunks else ruled), tuple(chunks)


def _cuts(ruled: RuledHistory, terms: DetachTerms, tokens: Callable[[Turn], int]) -> Iterator[tuple[int, int, int]]:
    """Where each chunk begins and ends in the history, and how many messages it has. The tokens of placeholders do not
    count: the results that may come in their place can be shorter, and a chunk that was cut would have to come back."""
    turns = ruled.conversation.turns
    left_messages = sum(not turn.is_system for turn in turns)
    if left_messages < terms.chunk_messages + terms.keep_messages:
        return
    counts = [
        0 if turn.is_system or (origin == MADE and turn.is_result) else tokens(turn)
        for turn, origin in zip(turns, ruled.origins, strict=True)
    ]
    left_tokens = sum(counts)
    start = chunk_messages = chunk_tokens = 0
    for index, is_end in enumerate(_turn_ends(turns)):
        chunk_messages += not turns[index].is_system
        chunk_tokens += counts[index]
        if not is_end or chunk_messages < terms.chunk_messages or chunk_tokens < terms.chunk_tokens:
            continue
        left_messages -= chunk_messages
        left_tokens -= chunk_tokens
        if left_messages < terms.keep_messages or left_tokens < terms.keep_tokens:
            return
        yield start, index + 1, chunk_messages
        start, chunk_messages, chunk_tokens = index + 1, 0, 0


def _turn_ends(turns: Sequence[Turn]) -> list[bool]:
    """For each message whether a turn of the model ends with it: a user message follows, and it is none itself. System
    messages are passed over."""
    ends: list[bool] = []
    is_user_next = False
    for turn in reversed(turns):
        is_user = turn.role == "user"
        ends.append(is_user_next and not is_user and not turn.is_system)
        is_user_next = is_user_next if turn.is_system else is_user
    return ends[::-1]


def _without(ruled: RuledHistory, end: int, count: int) -> RuledHistory:
    """The conversation without the first messages of its history, but with the system messages among them."""
    conversation = ruled.conversation
    kept = [index for index, turn in enumerate(conversation.history) if index >= end or turn.is_system]
    history = tuple([conversation.history[index] for index in kept])
    origins = (*(ruled.origins[index] for index in kept), *ruled.origins[len(conversation.history) :])
    return RuledHistory(replace(conversation, history=history), origins, {**ruled.edits, Edit.HISTORY_FROZEN: count})

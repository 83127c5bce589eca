"""Freezing of the oldest part of a long conversation: it is shown in panels that never change, and no longer as
messages.

A chunk is cut at the first place where it has enough messages and tokens, if enough of both stay behind it. Its content
depends only on the messages up to its end. So nothing has to be stored, and a conversation that grows by turns has the
same chunks in each request, and more of them later. A chunk that could not be cut is not cut elsewhere.

Each record of a chunk's text ends with a line break, and nothing else stands between two records, as in the original:
``[role]: text`` for a message (``[role name]: text`` if it has a name), ``tool_call name(arguments)`` for a call, and
only the text for a result. Arguments are the model's own string.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from proxy.core.reasons import Edit
from proxy.core.request.message import THINKING_TYPES
from proxy.core.structured.history.rules import (
    MADE,
    DetachTerms,
    Entry,
    Group,
    RuledHistory,
    Sort,
    call_members,
    entry_of,
    grouped,
    is_given,
    text_member,
)
from proxy.core.structured.messages import Turn, parts_of
from proxy.core.structured.panels.panel import FROZEN_PREFIX, HISTORY_KIND, Panel
from proxy.core.wire.json_body import Members, Unreadable, members_of


def chunk_text(turns: Iterable[Turn]) -> str:
    """The messages as text, without system messages. The model's thinking is left out, as providers leave it out of
    earlier turns. Raises Unreadable if a message holds something other than text or cannot be read, or if a call and
    its results are not all among these messages."""
    groups = grouped([entry_of(index, turn) for index, turn in enumerate(turns) if not turn.is_system])
    return "".join([f"{record}\n" for group in groups for record in _records(group)])


def _records(group: Group) -> Iterator[str]:
    asked = {call_id for each in group if each.shape.sort is Sort.CALLS for call_id in each.shape.ids}
    answered = {call_id for each in group if each.shape.sort is Sort.RESULT for call_id in each.shape.ids}
    if asked != answered:
        raise Unreadable("calls and results that do not belong together")
    yield from chain.from_iterable(map(_message, group))


def _message(entry: Entry) -> Iterator[str]:
    sort, members = entry.shape.sort, entry.shape.members
    if sort is Sort.UNREAD or is_given(members, "audio"):
        raise Unreadable("a message that is no text")
    text = _text(members)
    if sort is Sort.RESULT:
        yield text
    elif text or sort is Sort.PLAIN:
        name = f" {text_member(members, 'name')}" if is_given(members, "name") else ""
        yield f"[{entry.turn.role}{name}]: {text}"
    if sort is Sort.CALLS:
        yield from map(_call, call_members(members))


def _text(members: Members) -> str:
    """The content and a refusal, as one text."""
    texts: list[str] = []
    for kind, text in parts_of(members):
        if kind in ("text", "refusal") and text is not None:
            texts.append(text)
        elif kind not in THINKING_TYPES:
            raise Unreadable(f"a part that is no text: {kind}")
    if is_given(members, "refusal"):
        texts.append(text_member(members, "refusal"))
    return "\n".join(filter(None, texts))


def _call(call: Members) -> str:
    form, said = ("function", "arguments") if is_given(call, "function") else ("custom", "input")
    if form not in call:
        raise Unreadable("a call of no known form")
    told = members_of(call[form])
    return f"tool_call {text_member(told, 'name')}({text_member(told, said) if is_given(told, said) else '{}'})"


def frozen(
    ruled: RuledHistory, terms: DetachTerms, tokens: Callable[[Turn], int], most: int | None = None
) -> tuple[RuledHistory, tuple[Panel, ...]]:
    """The conversation without its oldest parts, and these parts as panels in their order. Each message is counted at
    most once, and the time is linear. System messages, and all messages from the last user message on, stay where they
    are. No chunk is made that has a message with something other than text or a message that cannot be read, and none
    behind it. ``tokens`` must return the same number for a message in each request, whatever markers it carries:
    otherwise chunks are cut elsewhere, and the provider's cache is lost."""
    history = ruled.conversation.history
    chunks: list[Panel] = []
    end = 0
    for start, boundary, count in islice(_cuts(ruled, terms, tokens) if most != 0 else (), most):
        try:
            text = chunk_text(history[start:boundary])
        except Unreadable:
            break
        chunks.append(Panel(f"{FROZEN_PREFIX}{len(chunks) + 1}", HISTORY_KIND, f"Chat ({count})", text))
        end = boundary
    return (ruled.without(end, Edit.HISTORY_FROZEN) if chunks else ruled), tuple(chunks)


def _cuts(ruled: RuledHistory, terms: DetachTerms, tokens: Callable[[Turn], int]) -> Iterator[tuple[int, int, int]]:
    """The begin and the end of each chunk in the history, and its number of messages. The tokens of placeholders do not
    count: the results that may replace them later can be shorter, and a chunk that was already cut would have to be
    taken back."""
    turns = ruled.conversation.turns
    left_messages = sum(not turn.is_system for turn in turns)
    if left_messages < terms.chunk_messages + terms.keep_messages:
        return
    counts = [
        0 if turn.is_system or (origin == MADE and turn.has_results) else tokens(turn)
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
    """For each message, whether a turn of the model ends with it: a user message follows, and the message itself is not
    a user message. System messages are skipped."""
    ends: list[bool] = []
    is_user_next = False
    for turn in reversed(turns):
        is_user = turn.role == "user"
        ends.append(is_user_next and not is_user and not turn.is_system)
        is_user_next = is_user_next if turn.is_system else is_user
    return ends[::-1]

"""The messages of a request with structured context: what stands in front of the context, within it, and behind it.

The leading system and developer messages are the system prompt. What begins with the last user message is the prompt:
in a tool loop that is the user's message, and the calls and results behind it, in their order. Everything between is
history. Every message stays as the client's own bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from msgspec import Raw

from proxy.core.structured.messages.turn import Turn
from proxy.core.wire.json_body import Unreadable, value


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a request in their order. A turn of ``history`` is named by its index in it, from 0 on.

    ``prompt`` begins with the last user message. Where a request has no user message, all messages behind the system
    messages are the prompt, so that they stay together and last; it is empty where there are none. ``added`` of the
    system messages are the operator's: the client counts its messages without them.
    """

    system: tuple[Turn, ...] = ()
    history: tuple[Turn, ...] = ()
    prompt: tuple[Turn, ...] = ()
    added: int = 0

    @classmethod
    def of(cls, messages: Iterable[Raw | bytes], own_count: int | None = None) -> "Conversation":
        """Cut messages of any shape. What cannot be read as a message is a turn without a role. The last ``own_count``
        are the client's; None: all."""
        turns = [Turn.of(bytes(raw)) for raw in messages]
        behind = sum(1 for _ in takewhile(lambda turn: turn.is_system, turns))
        users = (index for index in range(len(turns) - 1, behind - 1, -1) if turns[index].role == "user")
        last = next(users, behind)
        added = 0 if own_count is None else len(turns) - own_count
        return cls(tuple(turns[:behind]), tuple(turns[behind:last]), tuple(turns[last:]), added)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All messages but the leading system messages."""
        return (*self.history, *self.prompt)

    def __iter__(self) -> Iterator[Turn]:
        """All messages in the client's order."""
        yield from self.system
        yield from self.turns

    def bare(self) -> "Conversation":
        """The conversation without markers of the client's."""
        system, history, prompt = (
            tuple([one if one.bare is one.raw else Turn.of(one.bare) for one in turns])
            for turns in (self.system, self.history, self.prompt)
        )
        return Conversation(system, history, prompt, self.added)


def system_text(conversation: Conversation) -> str:
    """What the system messages say, a blank line between two of them. Parts that are no text are left out."""
    return "\n\n".join([text for turn in conversation.system if (text := _text(turn))])


def _text(turn: Turn) -> str:
    try:
        content = value(turn.members["content"]) if "content" in turn.members else None
    except Unreadable:
        return ""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join([text for text in texts if isinstance(text, str)])
    return content if isinstance(content, str) else ""

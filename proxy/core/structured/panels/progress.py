"""How far the client's conversation has come. The places of panels are found and checked by this."""

from collections.abc import Iterable, Sequence, Set

from proxy.core.digest import digest
from proxy.core.request.message import MARK_KEYS
from proxy.core.structured.messages import Conversation, Turn
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of

_MARKS = frozenset(MARK_KEYS)


@dataclass(frozen=True, slots=True)
class Progress:
    """The client's conversation without its system messages, before anything in it is left out or shortened.

    ``digests`` are those of its messages, made by ``message_digest``, and ``sizes`` are their sizes in bytes.
    ``prompt_at`` is the index of the last user message, None if there is none. ``outside`` has, for each index and for
    the end, the next index at which something may stand without separating a call from its results. ``now_at`` is where
    the conversation stands: new panels are put in front of the message of this index. ``has_tail``: each request puts
    the tail behind everything that the request before has sent. ``prompt_share`` is about the share of the requests
    that ask something new; the others continue a tool loop. ``prompt_size`` is the mean size of such a question, in
    bytes.
    """

    digests: tuple[bytes, ...]
    sizes: tuple[int, ...]
    prompt_at: int | None
    outside: Sequence[int]
    now_at: int
    has_tail: bool = True
    prompt_share: float = 1.0
    prompt_size: float = 0.0

    @classmethod
    def of(cls, conversation: Conversation, *, has_thinking: bool = False) -> "Progress":
        """``has_thinking``: the request has thinking switched on. Providers then accept no messages of the proxy
        between the calls of a tool loop, so that new panels stand in front of the user's message."""
        turns = conversation.turns
        free = outside(turns)
        users = [i for i, turn in enumerate(turns) if turn.is_asked]
        prompt_at = users[-1] if users else None
        is_loop = bool(turns) and turns[-1].has_results
        start = len(conversation.history) if prompt_at is None else prompt_at
        return cls(
            digests=tuple([message_digest(turn) for turn in turns]),
            sizes=tuple([len(turn.raw) for turn in turns]),
            prompt_at=prompt_at,
            outside=free,
            now_at=len(turns) if is_loop and not has_thinking else free[start],
            has_tail=not has_thinking or not any(turn.has_results for turn in turns),
            prompt_share=min(1.0, 2 * len(users) / max(1, len(turns))),
            prompt_size=sum(len(turns[i].raw) for i in users) / max(1, len(users)),
        )

    @property
    def is_prompt_last(self) -> bool:
        """Whether nothing stands behind the last user message: it is sent for the first time, or once more."""
        return self.prompt_at == len(self.digests) - 1


def message_digest(turn: Turn) -> bytes:
    """The digest of a message's content. A client moves its markers from turn to turn, and may write a text as a list
    of one part while it is marked. Neither changes the digest, and spaces between members do not change it either."""
    try:
        members = turn.members
        content = bytes(members.get("content", b""))
        parts = [_said(members_of(part)) for part in elements(content)] if content.startswith(b"[") else [content]
    except Unreadable:
        return digest(turn.raw)
    return digest(_written(members, {"content"}), *parts)


def _said(part: Members) -> bytes:
    """A part without its marker. For a text part, only the text, in the form that it has if the content is a string."""
    if part.keys() - _MARKS == {"type", "text"} and bytes(part["type"]) == b'"text"':
        return bytes(part["text"])
    return _written(part, set())


def _written(members: Members, without: Set[str]) -> bytes:
    """The members in a fixed order, without markers."""
    return b",".join(
        [name.encode() + b":" + bytes(members[name]) for name in sorted(members.keys() - without - _MARKS)]
    )


def outside(turns: Iterable[Turn]) -> list[int]:
    """For each index, and for the end, the next one in front of which something may stand without separating a call
    from its results."""
    results = [turn.has_results for turn in turns]
    free = list(range(len(results) + 1))
    for index in range(len(results) - 1, -1, -1):
        if results[index]:
            free[index] = free[index + 1]
    return free

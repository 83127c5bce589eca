"""What a model is asked about a conversation that may be compacted: the messages of one call, without a cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson
from msgspec import Raw

from proxy.core.structured.history.compaction_texts import CompactionTexts
from proxy.core.structured.messages.turn import Turn
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of, text_value, value

MOST_MESSAGES = 50
MOST_CHARS = 1_000
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_GAP = "\n[...]\n"
_FRAME_TOKENS = 200
"""What an answer has besides the summary."""


@dataclass(frozen=True, slots=True)
class CompactionQuestion:
    """``messages`` is the JSON array that is sent. ``starts`` has for each numbered message of the question the index
    of the first message that it shows; ``end`` is the index behind the last one. An answer that is as long as it was
    asked to be has fewer than ``output_tokens``."""

    messages: bytes
    starts: tuple[int, ...]
    end: int
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens the call has: a fourth of its bytes."""
        return len(self.messages) // 4


def question_of(turns: Sequence[Turn], texts: CompactionTexts, summary_tokens: int) -> CompactionQuestion:
    """The question about these messages. Each is shown by its beginning and its end. Where there are more than may be
    shown, all that stands between two user messages is shown as one; where there are still more, the first ones are
    shown, and nothing behind them is left out of the conversation later."""
    runs = list(_runs(turns))
    shown = runs[:MOST_MESSAGES]
    lines = [
        orjson.dumps({"index": number, "role": _role(turns[run[0]]), "text": _shown([turns[index] for index in run])})
        for number, run in enumerate(shown)
    ]
    prompt = texts.prompt.replace("{summary_tokens}", str(summary_tokens))
    asked = b"\n".join(lines).decode()
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": asked}]
    return CompactionQuestion(
        messages=orjson.dumps(messages),
        starts=tuple(run[0] for run in shown),
        end=shown[-1][-1] + 1 if shown else 0,
        output_tokens=2 * summary_tokens + _FRAME_TOKENS,
    )


def _runs(turns: Sequence[Turn]) -> Iterator[range]:
    """The messages that are shown as one."""
    if len(turns) <= MOST_MESSAGES:
        yield from (range(index, index + 1) for index in range(len(turns)))
        return
    start = 0
    for index in range(1, len(turns) + 1):
        if index == len(turns) or turns[index].role == "user" or turns[start].role == "user":
            yield range(start, index)
            start = index


def _role(turn: Turn) -> str:
    return turn.role if turn.role in _ROLES else "other"


def _shown(turns: Sequence[Turn]) -> str:
    """What one or several messages say, cut in the middle to the length that is allowed. Of several, results of tools
    are left out: they would take the room of what was said."""
    shown = turns if len(turns) == 1 else [turn for turn in turns if not turn.is_result]
    text = "\n".join(filter(None, (_said(turn) for turn in shown)))
    if len(text) > MOST_CHARS:
        room = MOST_CHARS - len(_GAP)
        text = text[: room - room // 2] + _GAP + text[-(room // 2) :]
    return text.encode("utf-8", "replace").decode()


def _said(turn: Turn) -> str:
    """A message's text and the names of the tools that it calls."""
    try:
        members = turn.members
        texts = [*_texts(members.get("content", Raw(b"null"))), *_called(members)]
    except Unreadable:
        return ""
    return "\n".join(texts)


def _texts(content: Raw) -> Iterator[str]:
    first = bytes(memoryview(content)[:1])
    if first == b'"':
        text = text_value(content)
        assert isinstance(text, str)
        yield _clipped(text)
    elif first == b"[":
        for part in elements(content):
            members = members_of(part)
            kind = value(members["type"]) if "type" in members else None
            if kind == "text" and "text" in members:
                text = text_value(members["text"])
                yield _clipped(text) if isinstance(text, str) else ""
            else:
                yield f"[{kind}]" if isinstance(kind, str) and len(kind) < MOST_CHARS else ""


def _called(members: Members) -> Iterator[str]:
    raw = members.get("tool_calls")
    if raw is None or bytes(raw) == b"null":
        return
    for call in elements(raw):
        function = members_of(call).get("function")
        name = value(members_of(function).get("name", Raw(b"null"))) if function is not None else None
        if isinstance(name, str):
            yield f"[calls {_clipped(name)}]"


def _clipped(text: str) -> str:
    """The beginning and the end of a text, as much as can be shown of either."""
    return text if len(text) <= 2 * MOST_CHARS else text[:MOST_CHARS] + text[-MOST_CHARS:]

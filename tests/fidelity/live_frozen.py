"""Frozen parts of a conversation: what their panels say, and when a part may be frozen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .live_history import Message, calls_of, role_of
from .view import SYSTEM_ROLES
from .violations import Report, Rule, difference

KIND_PREFIX = "history_"
_THOUGHT = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class Minimums:
    """A part has at least so many messages and tokens, and so many of either stay behind it."""

    chunk_messages: int = 25
    chunk_tokens: int = 5_000
    keep_messages: int = 25
    keep_tokens: int = 7_500


def minimums_of(wish: Any, own: Minimums | None) -> Minimums | None:
    """Those that hold for the client's ``detach``; ``own`` are the operator's. None: nothing may be frozen."""
    if wish is False or (wish is None and own is None):
        return None
    default = own or Minimums()
    if not isinstance(wish, Mapping):
        return default
    given = {name: value for name, value in wish.items() if value is not None}
    return Minimums(**{name: given.get(name, getattr(default, name)) for name in Minimums.__slots__})


@dataclass(frozen=True, slots=True)
class Chunk:
    """A panel of a frozen part, as it was sent. ``path`` is where it stands."""

    panel_id: str
    header: str
    content: str
    path: str

    @property
    def count(self) -> int | None:
        """How many messages it says that it has."""
        inner = self.header.removeprefix("Chat (").removesuffix(")")
        return int(inner) if self.header == f"Chat ({inner})" and inner.isascii() and inner.isdigit() else None


def text_of(message: Message) -> str | None:
    """All that a message's content says, and its refusal; None where it has something other than text. What a model
    thought is not said again."""
    if not isinstance(message, dict) or message.get("audio"):
        return None
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if not isinstance(parts, list):
        return None
    texts: list[Any] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal", *_THOUGHT):
            return None
        texts += [part.get(kind)] if kind not in _THOUGHT else []
    texts.append(message.get("refusal") or "")
    return None if any(not isinstance(text, str) for text in texts) else "\n".join(filter(None, texts))


def frozen_text(messages: Sequence[Message]) -> str | None:
    """What a part says, each record ended by a line break: the text under the role and name that said it, each call by
    its name and arguments, each result. None where a message has something that cannot be frozen."""
    records: list[str] = []
    for message in messages:
        text, role, calls = text_of(message), role_of(message), calls_of(message)
        if text is None or role not in ("user", "assistant", "tool"):
            return None
        speaker = f"{role} {message['name']}" if message.get("name") else role
        if role == "tool":
            records.append(text)
        elif text or not calls:
            records.append(f"[{speaker}]: {text}")
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                return None
            records.append(f"tool_call {function.get('name')}({function.get('arguments') or '{}'})")
    return "".join(f"{record}\n" for record in records)


def check_chunks(
    chunks: Sequence[Chunk],
    messages: Sequence[Message],
    minimums: Minimums | None,
    tokens: Callable[[Message], int] | None,
    report: Report,
) -> None:
    """Whether the chunks say the first of these messages, and may do so. ``messages`` are all that are sent, frozen or
    not, in their order; system messages among them stay where they are, and do not count. ``tokens`` counts a message,
    and without it only messages are counted."""
    messages = [message for message in messages if role_of(message) not in SYSTEM_ROLES]
    if minimums is None and chunks:
        report.add(Rule.FROZEN, chunks[0].path, "frozen although nobody asked for it")
    at = 0
    for number, chunk in enumerate(chunks, 1):
        end = at + (chunk.count or 0)
        if chunk.panel_id != f"{KIND_PREFIX}{number}" or not chunk.count or end > len(messages):
            report.add(Rule.FROZEN, chunk.path, "no part, or none of this number, has such an id and header")
            return
        part, behind = messages[at:end], messages[end:]
        wanted = frozen_text(part)
        if wanted is None:
            report.add(Rule.FROZEN, chunk.path, "a message is frozen that has more than text, calls and results")
        elif wanted != chunk.content:
            report.add(Rule.FROZEN, chunk.path, difference(wanted, chunk.content))
        if behind and role_of(behind[0]) != "user":
            report.add(Rule.FROZEN, chunk.path, "the part does not end in front of a user message")
        if minimums is not None:
            _check_minimums(part, behind, minimums, tokens, Noted(report, chunk.path))
        at = end


@dataclass(frozen=True, slots=True)
class Noted:
    """Where a violation of the minimums is noted."""

    report: Report
    path: str

    def few(self, what: str, found: int, least: int) -> None:
        if found < least:
            self.report.add(Rule.FROZEN, self.path, f"{what}: {found}, and at least {least} are needed")


def _check_minimums(
    part: Sequence[Message],
    behind: Sequence[Message],
    minimums: Minimums,
    tokens: Callable[[Message], int] | None,
    noted: Noted,
) -> None:
    noted.few("messages in the part", len(part), minimums.chunk_messages)
    noted.few("messages behind it", len(behind), minimums.keep_messages)
    if tokens is not None:
        noted.few("tokens in the part", sum(map(tokens, part)), minimums.chunk_tokens)
        noted.few("tokens behind it", sum(map(tokens, behind)), minimums.keep_tokens)

"""A message as the checker compares it: role, texts, and everything else in one strict form. Markers are left aside."""

import json
from dataclasses import dataclass
from typing import Any

MARKER_KEYS = ("cache_control", "prompt_cache_breakpoint")
SYSTEM_ROLES = ("system", "developer")
RESULT_ROLES = ("tool", "function")
TEXT_ROLES = (*SYSTEM_ROLES, "user")

Key = tuple[str, str, str, str]


def canonical(value: Any) -> str:
    """A form that is equal exactly when two values are the same JSON: 1 is not 1.0, 0 is not false, keys in order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON, types, digits and order of keys included."""
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return canonical(left) == canonical(right)


def unmarked(holder: Any) -> Any:
    """The same object without the marker keys on it (not inside it)."""
    if not isinstance(holder, dict) or not any(key in holder for key in MARKER_KEYS):
        return holder
    return {key: value for key, value in holder.items() if key not in MARKER_KEYS}


def plain_text(part: Any) -> str | None:
    """The text of a part that is nothing but text, markers aside."""
    bare = unmarked(part)
    if not isinstance(bare, dict) or len(bare) != 2 or bare.get("type") != "text":
        return None
    text = bare.get("text")
    return text if isinstance(text, str) else None


def type_of(part: Any) -> Any:
    """The type of a part; None if it has none."""
    return part.get("type") if isinstance(part, dict) else None


def _ordered(part: Any) -> Any:
    """A text part with its keys in one order, so that {"text", "type"} equals {"type", "text"}."""
    text = plain_text(part)
    return unmarked(part) if text is None else {"type": "text", "text": text}


def parts_of(content: Any) -> list[Any] | None:
    """The content as a list of parts without markers; a string is one text part; None if it is neither."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [_ordered(part) for part in content]
    return None


def _texts(content: Any) -> tuple[str, ...] | None:
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list) or not content:
        return None
    texts = tuple(plain_text(part) for part in content)
    return None if None in texts else texts  # type: ignore[return-value]


def _bare_calls(calls: Any) -> Any:
    return [unmarked(call) for call in calls] if isinstance(calls, list) else calls


@dataclass(frozen=True, slots=True)
class View:
    """One message. ``texts`` is None unless the content is text and nothing else; ``rest`` holds all other keys."""

    index: int
    role: str
    raw: dict[str, Any]
    texts: tuple[str, ...] | None
    joined: str
    is_list: bool
    has_calls: bool
    rest: str
    key: Key

    @property
    def is_system(self) -> bool:
        return self.role in SYSTEM_ROLES

    @property
    def has_results(self) -> bool:
        """Whether it answers calls: as a message of its own, or in parts of a user's message."""
        parts = self.raw["content"] if self.role == "user" and self.is_list else ()
        return self.role in RESULT_ROLES or any(type_of(part) == "tool_result" for part in parts)

    @property
    def path(self) -> str:
        return f"messages[{self.index}]"

    @property
    def cuts(self) -> set[int]:
        """Offsets in the joined text where one part ends and the next begins."""
        at, found = 0, set()
        for text in (self.texts or ())[:-1]:
            at += len(text)
            found.add(at)
        return found

    @property
    def blanks(self) -> int:
        """How many texts hold nothing but white space."""
        return sum(1 for text in self.texts or () if not text.strip())


def recognised(index: int, message: dict[str, Any]) -> View:
    """The view of one message (a dict with a string role)."""
    role, content = message["role"], message.get("content")
    rest = {k: v for k, v in message.items() if k not in ("role", "content") and k not in MARKER_KEYS}
    calls = rest.get("tool_calls")
    if calls is not None:
        rest["tool_calls"] = _bare_calls(calls)
    if "content" not in message:
        rest["no content"] = True
    texts = _texts(content)
    joined = "".join(texts) if texts is not None else ""
    rest_text = canonical(dict(sorted(rest.items()))) if rest else "{}"
    if texts is not None and role in TEXT_ROLES:
        key = (role, rest_text, "text", joined)
    elif isinstance(content, str):
        key = (role, rest_text, "string", content)
    else:
        parts = parts_of(content)
        key = (role, rest_text, "json", canonical(content if parts is None else parts))
    return View(index, role, message, texts, joined, isinstance(content, list), bool(calls), rest_text, key)


def views(messages: Any) -> list[View] | None:
    """All messages, or None where they are no list of objects with a role."""
    if not isinstance(messages, list):
        return None
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        return None
    return [recognised(index, message) for index, message in enumerate(messages)]

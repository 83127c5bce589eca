"""What must be left of a conversation once the client's statuses and the repairs of the history have been carried out.

Written from the documented rules (proxy/client/HISTORY.md), without the product's code: messages are dicts here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .live_words import PLACEHOLDER, result_message
from .view import MARKER_KEYS, SYSTEM_ROLES
from .violations import Rule

Message = Any

_FRAME = ("role", "name", "content", "tool_calls", "function_call", "tool_call_id", *MARKER_KEYS)
_JOINABLE = ("role", "content", "tool_calls", *MARKER_KEYS)


@dataclass(frozen=True, slots=True)
class Expected:
    """A message as it must be sent. ``rule`` is what may have changed it, ``origin`` its place in the client's
    conversation behind the leading system messages; of several in one it is the first one's, of a placeholder -1."""

    message: Message
    rule: Rule
    origin: int


def expected(conversation: Sequence[Message], statuses: Mapping[int, Mapping[str, Any]]) -> list[Expected]:
    """The messages that must be sent, by all rules but freezing and compaction. ``statuses`` are by the index in the
    conversation."""
    last_user = max((at for at, message in enumerate(conversation) if role_of(message) == "user"), default=-1)
    kept: list[Expected] = []
    for at, message in enumerate(conversation):
        meta = statuses.get(at, {})
        status = meta.get("status", "active")
        if status in ("deleted", "detached"):
            continue
        rule = Rule.ALTERED
        if status == "summarized" and isinstance(message, dict):
            message, rule = {**message, "content": meta["tl_dr"]}, Rule.SUMMARIZED
        if at != last_user and is_empty(message):
            continue
        kept.append(Expected(message, rule, at))
    return [each for group in _groups(kept) for each in _joined(_repaired(group))]


def role_of(message: Message) -> str:
    """The role; empty where there is none."""
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def is_empty(message: Message) -> bool:
    """Whether it says nothing: no content, no call, no result, and nothing in a member of its own."""
    if role_of(message) not in ("user", "assistant") or message.get("tool_calls") or message.get("function_call"):
        return False
    if message.get("tool_call_id") or _has_content(message):
        return False
    return not any(value for name, value in message.items() if name not in _FRAME)


def _has_content(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, list):
        said = any(not isinstance(part, dict) or part.get("type") != "text" or part.get("text") for part in content)
    else:
        said = bool(content)
    return said or bool(message.get("refusal")) or bool(message.get("audio"))


def calls_of(message: Message) -> list[Any]:
    """The calls of a message."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return calls if isinstance(calls, list) else []


def _kind(message: Message) -> str:
    role = role_of(message)
    if role in SYSTEM_ROLES:
        return "system"
    if not isinstance(message, dict) or message.get("function_call"):
        return "unread"
    if role == "assistant" and calls_of(message):
        return "calls"
    if role == "tool":
        return "result" if isinstance(message.get("tool_call_id"), str) else "unread"
    return "plain" if role in ("user", "assistant") else "unread"


def _groups(kept: Sequence[Expected]) -> Iterator[list[Expected]]:
    """Messages that call tools, with their results directly behind them; any other message by itself."""
    group: list[Expected] = []
    answered = False
    for each in kept:
        kind = _kind(each.message)
        if group and (kind == "plain" or (kind == "calls" and answered)):
            yield group
            group = []
        if kind == "plain":
            yield [each]
            continue
        answered = kind == "result" or (answered and bool(group) and kind == "system")
        group.append(each)
    if group:
        yield group


def _ids(message: Message) -> list[Any]:
    return [call.get("id") if isinstance(call, dict) else None for call in calls_of(message)]


def _is_clear(group: Sequence[Expected]) -> bool:
    """Whether it is known which call each result answers. A group in which it is not stays as it came."""
    ids = [each for one in group for each in _ids(one.message)]
    readable = all(_kind(each.message) != "unread" for each in group) and all(isinstance(each, str) for each in ids)
    return readable and len(set(ids)) == len(ids)


def _repaired(group: list[Expected]) -> list[Expected]:
    """Without results that answer nothing, and with a result for each call."""
    if not _is_clear(group):
        return group
    asked = {each for one in group for each in _ids(one.message)}
    results = {each.message["tool_call_id"] for each in group if _kind(each.message) == "result"}
    answered = asked & results
    kept: list[Expected] = []
    missing: list[Expected] = []
    for each in group:
        kind, ids = _kind(each.message), _ids(each.message)
        if kind == "result" and each.message["tool_call_id"] not in answered:
            continue
        if kind != "calls" or answered.issuperset(ids):
            kept.append(each)
            continue
        stands_between = any(_kind(other.message) in ("calls", "result") for other in kept)
        has_content = _has_content(each.message)
        if not answered.intersection(ids) and not (has_content and stands_between):
            if has_content:
                bare = {name: value for name, value in each.message.items() if name != "tool_calls"}
                kept.append(Expected(bare, Rule.REPAIRED, each.origin))
            continue
        kept.append(each)
        missing += [_placeholder(call_id) for call_id in ids if call_id not in answered]
    end = max((at + 1 for at, each in enumerate(kept) if _kind(each.message) != "system"), default=0)
    return [*kept[:end], *missing, *kept[end:]]


def _placeholder(call_id: str) -> Expected:
    return Expected(result_message(call_id, PLACEHOLDER), Rule.REPAIRED, -1)


def _joined(group: list[Expected]) -> list[Expected]:
    """Messages with calls that stand directly behind one another, as one message."""
    if not _is_clear(group):
        return group
    found: list[Expected] = []
    first: Expected | None = None
    for each in group:
        if first is not None and _kind(each.message) == "calls" and _adds_nothing(each.message, first.message):
            found[-1] = Expected(_together(found[-1].message, each.message), Rule.MERGED, found[-1].origin)
            continue
        first = each if _kind(each.message) == "calls" else None
        found.append(each)
    return found


def _adds_nothing(later: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    others = {name: value for name, value in later.items() if name not in _JOINABLE and value}
    return all(name in first and json.dumps(first[name]) == json.dumps(value) for name, value in others.items())


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The first message with the other's calls and content behind its own."""
    joined = {**one, "tool_calls": [*one["tool_calls"], *other["tool_calls"]]}
    contents = [each["content"] for each in (one, other) if each.get("content")]
    if len(contents) == 2 and all(isinstance(content, str) for content in contents):
        joined["content"] = "\n".join(contents)
    elif len(contents) == 2:
        joined["content"] = [part for content in contents for part in _parts(content)]
    elif contents:
        joined["content"] = contents[0]
    return joined


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)

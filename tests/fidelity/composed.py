"""The operator's system text, and conversations of which the oldest part is left out: what an operator may ask for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import words
from .view import SYSTEM_ROLES

Body = dict[str, Any]


def with_system(body: Body, text: str) -> Body:
    """The client's body with the operator's system text in front of the client's own."""
    messages = body.get("messages")
    if not text or not isinstance(messages, list):
        return body
    first = messages[0] if messages and isinstance(messages[0], dict) else {}
    content = first.get("content")
    if first.get("role") not in SYSTEM_ROLES or not isinstance(content, str | list):
        return {**body, "messages": [{"role": "system", "content": text}, *messages]}
    joined: Any
    if isinstance(content, str):
        joined = text + words.SYSTEM_JOINT + content if content else text
    else:
        joined = [{"type": "text", "text": text + words.SYSTEM_JOINT}, *content]
    return {**body, "messages": [{**first, "content": joined}, *messages[1:]]}


def trimmed_forms(body: Body, sent: Body) -> list[Body]:
    """The forms that the client's body may have where its oldest messages are left out, the likeliest one first."""
    messages, after = body.get("messages"), sent.get("messages")
    if not _are_messages(messages) or not _are_messages(after):
        return [body]
    calls = _tool_ids(after)
    kept = [form for form in _kept(messages) if _tool_ids(form) == calls] or [messages]
    kept.sort(key=lambda form: abs(len(form) - len(after)))
    return [{**body, "messages": form} for form in kept]


def _are_messages(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def _tool_ids(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What is called and answered, in order: no edit changes that, so it says where the conversation was cut."""
    return [found for message in messages for found in (*called(message), message.get("tool_call_id")) if found]


def called(message: Mapping[str, Any]) -> list[Any]:
    """The ids of the tools that a message calls."""
    calls = message.get("tool_calls")
    return [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _kept(messages: list[Any]) -> Iterator[list[Any]]:
    """All that may be left of a conversation: whole turns are gone from the oldest on, and of the turn behind them
    whole groups, an assistant message with what follows it. The question of a turn goes with its last group; the
    newest turn keeps its question and its last group. No call is parted from its result."""
    lead = next((i for i, each in enumerate(messages) if each.get("role") not in SYSTEM_ROLES), len(messages))
    starts = [i for i in range(lead, len(messages)) if i == lead or messages[i].get("role") == "user"]
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        answers = [i for i in range(start, end) if messages[i].get("role") == "assistant"]
        head = messages[start : answers[0]] if answers else []
        is_asked, is_newest = messages[start].get("role") == "user", end == len(messages)
        if not _parted(messages[lead:start], messages[start:]):
            yield messages[:lead] + messages[start:]
        for group in answers[1:] if is_asked or is_newest else ():
            left = [*head, *messages[group:]]
            if not _parted(messages[lead:start] + messages[start + len(head) : group], left):
                yield [*messages[:lead], *left]


def _parted(gone: Sequence[Any], left: Sequence[Any]) -> bool:
    """Whether a call is gone whose result is left, or a result whose call is left."""
    calls = [{name for each in side for name in called(each)} for side in (gone, left)]
    results = [{each.get("tool_call_id") for each in side} - {None} for side in (gone, left)]
    return bool(calls[0] & results[1] or (calls[1] - calls[0]) & results[0])

"""The few members of a request body that decide where it goes and how its answer is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.edits import original_body
from proxy.core.wire import ChatRequest, Members, Unreadable, parse_members, value
from proxy.errors import InvalidRequest

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_NAMES = ("model", "stream", "stream_options", *_LIMITS)


@dataclass(frozen=True, slots=True)
class Head:
    """``members`` is None where the body is valid JSON that cannot be taken apart."""

    model: str
    stream: bool
    wants_usage: bool
    max_output_tokens: int | None
    members: Members | None


def head_of(body: bytes) -> Head:
    """Read the head of a JSON request. Raises InvalidRequest where the body is no JSON object."""
    members, found = _read(body)
    options = found.get("stream_options")
    model = found.get("model")
    return Head(
        model=model if isinstance(model, str) else "",
        stream=found.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_output_tokens=next((n for n in map(found.get, _LIMITS) if type(n) is int and n > 0), None),
        members=members,
    )


def untouched(body: bytes, head: Head, model: str) -> bytes:
    """The request with the edits that every mode makes and no other, from its head alone: the messages stay unread."""
    if head.members is None:
        return body
    return original_body(ChatRequest(body, head.members, (), head.model, head.stream, head.wants_usage), model)


def _read(body: bytes) -> tuple[Members | None, Mapping[str, object]]:
    try:
        members = parse_members(body)
        return members, {name: value(members[name]) for name in _NAMES if name in members}
    except Unreadable:
        return None, _slow(body)


def _slow(body: bytes) -> Mapping[str, object]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not a JSON object", code="invalid_json") from error
    return parsed if isinstance(parsed, dict) else {}

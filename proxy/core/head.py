"""The few members of a request body that decide where it goes and how its answer is read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.core.cut import Cut, cut_anew
from proxy.core.edits import original_body
from proxy.core.wire import ChatRequest, Members, Unreadable, value
from proxy.errors import InvalidRequest

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_NAMES = ("model", "stream", "stream_options", *_LIMITS)


@dataclass(frozen=True, slots=True)
class Head:
    """``cut`` is None where the body is valid JSON that cannot be taken apart."""

    model: str
    stream: bool
    wants_usage: bool
    max_output_tokens: int | None
    cut: Cut | None

    @property
    def members(self) -> Members | None:
        """The body's members, where it was taken apart."""
        return self.cut.members if self.cut is not None else None


def head_of(body: bytes, cut_by: Callable[[bytes], Cut] = cut_anew) -> Head:
    """Read the head of a JSON request. Raises InvalidRequest where the body is no JSON object."""
    cut, found = _read(body, cut_by)
    options = found.get("stream_options")
    model = found.get("model")
    return Head(
        model=model if isinstance(model, str) else "",
        stream=found.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_output_tokens=next((n for n in map(found.get, _LIMITS) if type(n) is int and n > 0), None),
        cut=cut,
    )


def untouched(body: bytes, head: Head, model: str) -> bytes:
    """The request with the edits that every mode makes and no other, from its head alone: the messages stay unread."""
    cut = head.cut
    if cut is None:
        return body
    request = ChatRequest(body, cut.members, (), head.model, head.stream, head.wants_usage, cut.span)
    return original_body(request, model)


def _read(body: bytes, cut_by: Callable[[bytes], Cut]) -> tuple[Cut | None, Mapping[str, object]]:
    try:
        cut = cut_by(body)
        members = cut.members
        return cut, {name: value(members[name]) for name in _NAMES if name in members}
    except Unreadable:
        return None, _slow(body)


def _slow(body: bytes) -> Mapping[str, object]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not a JSON object", code="invalid_json") from error
    return parsed if isinstance(parsed, dict) else {}

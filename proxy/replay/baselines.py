"""What gateways do today, to compare with: the same order, markers by a fixed rule."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import orjson

Body = dict[str, object]
Baseline = Callable[[bytes], bytes]

_EPHEMERAL = {"type": "ephemeral"}


def as_sent(body: bytes) -> bytes:
    """The client's request without any marker: what it costs where nobody marks."""
    return orjson.dumps(_without_marks(orjson.loads(body)))


def client(body: bytes) -> bytes:
    """The client's request with the client's own markers."""
    return body


def system_and_last(body: bytes) -> bytes:
    """Markers on the system prompt and on the last message: what gateways inject by default
    (litellm's ``cache_control_injection_points``; providers' own automatic caching marks the last block)."""
    request = _without_marks(orjson.loads(body))
    messages = request["messages"]
    assert isinstance(messages, list)
    heads = [m for m in messages if m.get("role") in ("system", "developer")]
    for message in [*heads[:1], *messages[-1:]]:
        _mark(message)
    return orjson.dumps(request)


def tools_system_last_two(body: bytes) -> bytes:
    """Markers on the last tool, the system prompt and the last two user or tool messages: what agents that mark do."""
    request = _without_marks(orjson.loads(body))
    messages, tools = request["messages"], request.get("tools")
    assert isinstance(messages, list)
    if isinstance(tools, list) and tools:
        tools[-1]["cache_control"] = _EPHEMERAL
    heads = [m for m in messages if m.get("role") in ("system", "developer")]
    turns = [m for m in messages if m.get("role") in ("user", "tool")]
    for message in [*heads[:1], *turns[-2:]]:
        _mark(message)
    return orjson.dumps(request)


BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {"as sent": as_sent, "client's own": client, "system + last": system_and_last}
)


def _mark(message: dict[str, object]) -> None:
    """A marker where providers honour it; assistant turns and empty texts carry none."""
    content, role = message.get("content"), message.get("role")
    if role == "assistant" or not content:
        return
    if role == "tool":
        message["cache_control"] = _EPHEMERAL
    elif isinstance(content, str):
        message["content"] = [{"type": "text", "text": content, "cache_control": _EPHEMERAL}]
    elif isinstance(content, list) and isinstance(content[-1], dict) and content[-1].get("text", "x"):
        content[-1]["cache_control"] = _EPHEMERAL


def _without_marks(value: object) -> dict[str, object]:
    cleaned = _clean(value)
    assert isinstance(cleaned, dict)
    return cleaned


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if k not in ("cache_control", "prompt_cache_breakpoint")}
    if isinstance(value, list):
        return [_clean(v) for v in value]
    return value

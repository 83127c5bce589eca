"""A check that what reached the provider shows every panel once, as it is now, and all of the conversation in order."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from proxy.core.structured.panels.panel import Panel
from proxy.demo.order import in_order
from proxy.demo.panels.forms import Form, Sending
from proxy.demo.sample import Message

_CALL_ID = "panel_"


def losses(sending: Sending, sent: bytes) -> list[str]:
    """What is missing in a request, what stands there twice, and what is out of order; empty where all is well."""
    messages = orjson.loads(sent)["messages"]
    texts = [_text(message) for message in messages]
    found = [*_panels(sending.turn.panels, texts), *_parted(messages)]
    wanted = [_said(message) for message in sending.turn.conversation]
    if sending.form is Form.FREEZING:
        return [*found, *_frozen(wanted, messages)]
    return [*found, *in_order(wanted, [_said(message) for message in messages])]


def live_messages(sending: Sending, sent: bytes) -> int:
    """How many messages of the conversation stand in a request as messages, and not in a frozen part."""
    said = {_said(message) for message in orjson.loads(sent)["messages"]}
    return sum(_said(message) in said for message in sending.turn.conversation)


def _panels(panels: Sequence[Panel], texts: Sequence[str]) -> Iterator[str]:
    for panel in panels:
        times = sum(text.count(panel.content) for text in texts)
        if times != 1:
            yield f"panel {panel.id} stands there {times} times"


def _parted(messages: Sequence[Message]) -> Iterator[str]:
    """Calls of panels whose result does not follow them at once."""
    for at, message in enumerate(messages):
        if _is_panel(message):
            wanted = message["tool_calls"][0]["id"]
            behind = messages[at + 1] if at + 1 < len(messages) else {}
            if behind.get("tool_call_id") != wanted:
                yield f"{wanted} and its result are parted"


def _frozen(wanted: Sequence[str], messages: Sequence[Message]) -> Iterator[str]:
    """Frozen messages stand in a panel, the others behind all of these, in their order."""
    whole = "\n".join(map(_text, messages))
    at = 0
    for number, one in enumerate(wanted, 1):
        text = orjson.loads(one)["content"]
        at = whole.find(text, at)
        if at < 0:
            yield f"message {number} of the conversation is missing, or out of order"
            return
        at += len(text)


def _is_panel(message: Message) -> bool:
    calls = message.get("tool_calls") or []
    return bool(calls) and calls[0]["id"].startswith(_CALL_ID)


def _said(message: Message) -> str:
    """A message without markers, in one form."""
    known = {key: message[key] for key in ("role", "tool_calls", "tool_call_id") if message.get(key)}
    return orjson.dumps({**known, "content": _text(message)}, option=orjson.OPT_SORT_KEYS).decode()


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)

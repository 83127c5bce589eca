"""Conversations that are fitted to a window, and functions that read the result independently of the fitting code."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from proxy.app.factories import load_window_texts
from proxy.kit.tasks import Aside
from proxy.prompts.window import Capability, CapabilityProfile, WindowParts
from proxy.prompts.window.fitting import FittedMessages, Steps, Terms, fitted_messages
from proxy.protocol.request.message import RESULT_ROLES, Message
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.request.transcript import Transcript

Body = dict[str, Any]
T = TypeVar("T")

TEXTS = load_window_texts()
CHAT = CapabilityProfile("chat", Capability.CHAT)
OVERHEAD = 4
"""Tokens of a message besides its text, if tokens are counted as bytes over four."""


class Watched(Aside):
    """Says what was done beside the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def run(self, size: int, work: Callable[[], T]) -> T:
        self.sizes.append(size)
        return await super().run(size, work)


def said(role: str, tokens: int, calls: tuple[str, ...] = (), answers: tuple[str, ...] = ()) -> Message:
    """A message of which nothing else is known."""
    has_results = role in RESULT_ROLES or bool(answers)
    is_answer, is_asked = has_results or role == "assistant", role == "user" and not answers
    return Message(
        b"",
        role,
        b"",
        b"",
        b"",
        (),
        tokens,
        False,
        False,
        calls,
        answers,
        has_results,
        is_answer,
        is_asked,
        "",
        None,
        None,
    )


def text_of(tokens: int, mark: str = "x") -> str:
    """A text of ``tokens`` tokens."""
    return (mark + "." * 4 * tokens)[: 4 * tokens]


def transcript_of(messages: Sequence[Body]) -> Transcript:
    """The messages as the planner reads them."""
    reader = RequestReader(bytes_over_four, (), 1 << 24)
    body = json.dumps({"model": "m", "messages": list(messages)}).encode()
    parsed = reader.parse(body)
    parsed.chat()
    return reader.read(parsed)


def fit(
    messages: Sequence[Body],
    prompt_tokens: int,
    parts: WindowParts | None = None,
    profile: CapabilityProfile = CHAT,
    extra_tokens: int = 0,
) -> FittedMessages:
    """The messages, fitted to a budget."""
    terms = Terms(profile, prompt_tokens, {"tools": 0, "extra": extra_tokens}, TEXTS, bytes_over_four)
    return fitted_messages(transcript_of(messages), parts or WindowParts(), terms)


def sent(messages: Sequence[Body], found: FittedMessages) -> list[Body]:
    """The messages that are sent, read from their JSON."""
    assert not found.excess_tokens
    return list(messages) if found.messages is None else [json.loads(raw) for raw in found.messages]


def tokens_of(messages: Sequence[Body]) -> int:
    """The tokens of messages, as the proxy counts them."""
    return sum(message.tokens for message in transcript_of(messages).messages) if messages else 0


def parts_in(message: Body, kind: str) -> list[Body]:
    """The parts of this type in a message's content."""
    content = message.get("content")
    return [part for part in content if part["type"] == kind] if isinstance(content, list) else []


def unpaired(messages: Sequence[Body]) -> set[str]:
    """The ids of calls without a result, and of results without a call in front of them."""
    open_calls: set[str] = set()
    odd: set[str] = set()
    for message in messages:
        open_calls |= {call["id"] for call in (*(message.get("tool_calls") or ()), *parts_in(message, "tool_use"))}
        answered = [part["tool_use_id"] for part in parts_in(message, "tool_result")]
        for own in (*answered, *([message["tool_call_id"]] if "tool_call_id" in message else [])):
            (open_calls.discard if own in open_calls else odd.add)(own)
    return open_calls | odd


def kept(cut: int, steps: Steps) -> list[int]:
    """The indices of the messages that are sent."""
    return [index for index, gone_from in enumerate(steps.gone_from) if gone_from > cut]

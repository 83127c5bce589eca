"""Providers on loopback for the litellm transport: real HTTP, scripted answers, every request kept.

One server speaks Anthropic's Messages API (``/v1/messages``) and OpenAI's (``/v1/chat/completions``,
``/v1/embeddings``). It notices when its client hangs up.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Send

from tests.doubles import serving_here
from tests.receiver import Received, Receiver, head, part, send_whole

ANTHROPIC_USAGE = {
    "input_tokens": 50,
    "cache_read_input_tokens": 1800,
    "cache_creation_input_tokens": 248,
    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 48},
    "output_tokens": 7,
}
OPENAI_USAGE = {
    "prompt_tokens": 2100,
    "completion_tokens": 9,
    "total_tokens": 2109,
    "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
REQUEST_ID = "req_loopback_1"


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Provider(Receiver):
    """The script of the next answers, and what has been seen."""

    base: str = ""
    status: int = 200
    error: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    events: list[str] | None = None
    ending: str = "done"  # done | cut | hold
    silent: bool = False
    seen: list[Seen] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        seen = Seen(request.path, request.headers, json.loads(request.body))
        self.seen.append(seen)
        self.asked.set()
        if self.silent:
            await self._wait_for_hang_up(receive)
            return
        if self.status != 200:
            await _whole(send, self.status, self.error, self.headers)
        elif seen.body.get("stream"):
            await self._stream(seen, receive, send)
        else:
            await _whole(send, 200, _ANSWERS[seen.path](seen.body), self._own_headers())

    async def _stream(self, seen: Seen, receive: Receive, send: Send) -> None:
        await send(head(200, [("content-type", "text/event-stream"), *self._own_headers().items()]))
        for event in self.events if self.events is not None else default_events(seen):
            await send(part(event.encode()))
        if self.ending == "hold":
            await self._wait_for_hang_up(receive)
        elif self.ending == "cut":
            raise ConnectionAbortedError("the script says so")
        else:
            await send(part(more=False))

    async def _wait_for_hang_up(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    def _own_headers(self) -> dict[str, str]:
        return {"request-id": REQUEST_ID, "x-request-id": REQUEST_ID, "set-cookie": "a=b", **self.headers}


@asynccontextmanager
async def provider(**script: Any) -> AsyncIterator[Provider]:
    """A provider on a free port."""
    app = Provider(**script)
    async with serving_here(app, timeout_graceful_shutdown=1) as app.base:
        yield app


def default_events(seen: Seen) -> list[str]:
    """A short stream in the dialect of the path."""
    return anthropic_events("hel", "lo") if seen.path == "/v1/messages" else openai_events("hel", "lo")


def anthropic_events(*texts: str, end: bool = True) -> list[str]:
    """A Messages stream of one text block."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
    start = {**message, "stop_reason": None, "usage": {**ANTHROPIC_USAGE, "output_tokens": 1}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts),
    ]
    if end:
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        events += [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ]
    return [named_event(event) for event in events]


def named_event(event: dict[str, Any]) -> str:
    """An event as Anthropic writes it."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def openai_events(*texts: str, end: bool = True) -> list[str]:
    """A chat stream: role, texts, finish reason, usage, ``[DONE]``."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": t} for t in texts)]
    chunks = [_openai_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    if end:
        chunks.append(_openai_chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
        chunks.append(_openai_chunk([], usage=OPENAI_USAGE))
    return [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), *(["data: [DONE]\n\n"] if end else [])]


def _openai_chunk(choices: list[dict[str, Any]], **further: Any) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return {**head, "choices": choices, **further}


def _anthropic_answer(body: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": "hello"}]
    if body.get("tools"):
        content.append({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py"}})
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
        "stop_reason": "tool_use" if body.get("tools") else "end_turn", "stop_sequence": None,
        "usage": ANTHROPIC_USAGE,
    }  # fmt: skip


def _openai_answer(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": [_TOOL_CALL]} if body.get("tools") else _HELLO
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if body.get("tools") else "stop"}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice],
        "usage": OPENAI_USAGE, "vendor_field": {"kept": True},
    }  # fmt: skip


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [{"object": "embedding", "index": i, "embedding": [0.5, float(i)]} for i, _ in enumerate(texts)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


_HELLO = {"role": "assistant", "content": "hello"}
_TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
_ANSWERS = {"/v1/messages": _anthropic_answer, "/v1/chat/completions": _openai_answer, "/v1/embeddings": _embeddings}


async def _whole(send: Send, status: int, body: Any, headers: dict[str, str]) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    await send_whole(send, status, raw, [("content-type", "application/json"), *headers.items()])

"""A provider that answers as long as it was asked to, and bills it: what the tests of money are held against.

It reads a request as leniently as any server does: numbers in strings, floats, counts under several names. A limit that
it does not understand is none. A stream stops when its client leaves, and is billed up to there; whatever does not
stream is generated to its end and billed in full.
"""

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from tests.receiver import head, part
from tests.security.provider import event

INPUT_USD, OUTPUT_USD = 0.000002, 0.00001
IMAGE_USD, CHARACTER_USD, SECOND_USD, QUERY_USD, SEARCH_USD = 0.01, 0.00001, 0.0001, 0.002, 0.025
LONGEST_TOKENS = 8192
TIERS = {"priority": 2.0, "fast": 2.0, "flex": 0.5}
_BYTES_PER_TOKEN = 4
_WORD = "word "
_STEP_TOKENS = 20
_STEP_S = 0.004
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/messages": ("max_tokens",),
}


@dataclass
class Billing:
    """An ASGI app. ``usd`` is what it has billed."""

    usd: float = 0.0
    calls: int = 0
    silent: bool = False
    """Streams end without telling the usage."""
    wait_s: float = 0.0
    """Before the first byte."""
    prompt: Callable[[bytes], int] = lambda body: len(body) // _BYTES_PER_TOKEN
    """The tokens of a body."""
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        with self._lock:
            self._running += 1
            self.calls += 1
        try:
            await self._answer(scope["path"].lower().rstrip("/"), scope["method"], body, receive, send)
        finally:
            with self._lock:
                self._running -= 1

    @property
    def is_idle(self) -> bool:
        """Whether nothing is generated any more."""
        return self._running == 0

    def _bill(self, usd: float) -> None:
        with self._lock:
            self.usd += usd

    async def _answer(self, path: str, method: str, body: bytes, receive: Receive, send: Send) -> None:
        asked = _json(body)
        ending = next((one for one in _LIMITS if path.endswith(one)), "")
        if method != "POST" or not ending:
            await asyncio.sleep(self.wait_s)
            await _whole(send, self._units(path, method, body, asked))
            return
        factor = TIERS.get(str(asked.get("service_tier")).lower(), 1.0)
        prompt = self.prompt(body)
        if asked.get("previous_response_id"):
            prompt += 50_000
        searches = sum(
            min(3, tool.get("max_uses", 3))
            for tool in _dicts(asked.get("tools"))
            if str(tool.get("type")).startswith("web_search")
        ) or int("web_search_options" in asked)
        output = _longest(asked, _LIMITS[ending]) * _answers(asked, ending)
        self._bill(factor * prompt * INPUT_USD + searches * SEARCH_USD)
        if asked.get("stream") is True:
            await self._stream(ending, asked, prompt, output, factor, receive, send)
            return
        await asyncio.sleep(self.wait_s)
        self._bill(factor * output * OUTPUT_USD)
        await _whole(send, _complete(ending, asked, _usage(ending, prompt, output, searches), searches))

    async def _stream(
        self, ending: str, asked: Any, prompt: int, output: int, factor: float, receive: Receive, send: Send
    ) -> None:
        left = asyncio.ensure_future(_until_left(receive))
        try:
            await asyncio.wait([left], timeout=self.wait_s)
            await send(head(200, [("content-type", "text/event-stream")]))
            done = 0
            while done < output and not left.done():
                step = min(_STEP_TOKENS, output - done)
                done += step
                self._bill(factor * step * OUTPUT_USD)
                await send(part(event(_piece(ending, _WORD * step))))
                await asyncio.wait([left], timeout=_STEP_S)
            if not left.done() and not self.silent:
                await send(part(event(_last(ending, asked, _usage(ending, prompt, output, 0)))))
            await send(part(b"data: [DONE]\n\n" if ending.endswith("completions") else b"", more=False))
        finally:
            left.cancel()

    def _units(self, path: str, method: str, body: bytes, asked: Any) -> dict[str, Any]:
        """Everything that is not billed by tokens; what is not known costs a dollar."""
        if method != "POST" or path.endswith(("/files", "/count_tokens")):
            return {"object": "list", "data": []}
        if path.endswith(("/embeddings", "/moderations")):
            tokens = len(body) // _BYTES_PER_TOKEN
            self._bill(tokens * INPUT_USD)
            return {"data": [], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        if "/images/" in path:
            images = _number(asked.get("n")) or 1
            self._bill(images * IMAGE_USD)
            return {"data": [{"url": "u"}] * images}
        if path.endswith("/audio/speech"):
            self._bill(len(str(asked.get("input"))) * CHARACTER_USD)
            return {"audio": "x"}
        if path.endswith(("/audio/transcriptions", "/audio/translations")):
            seconds = len(body) / 2000
            self._bill(seconds * SECOND_USD)
            return {"text": "x", "usage": {"type": "duration", "seconds": math.ceil(seconds)}}
        if path.endswith("/rerank"):
            self._bill(math.ceil(len(asked.get("documents") or ()) / 100) * QUERY_USD)
            return {"results": []}
        self._bill(1.0)
        return {"id": "x"}


async def _body(receive: Receive) -> bytes:
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(chunks)


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _whole(send: Send, answer: Any) -> None:
    data = orjson.dumps(answer)
    await send(head(200, [("content-type", "application/json"), ("content-length", str(len(data)))]))
    await send(part(data, more=False))


def _json(body: bytes) -> Any:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            found = orjson.loads(body.decode("utf-8", "replace").replace("NaN", "null").replace("\\ud800", "?"))
        except orjson.JSONDecodeError:
            return {}
    return found if isinstance(found, dict) else {}


def _dicts(found: Any) -> list[Any]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _number(found: Any) -> int:
    """What the most lenient server reads."""
    try:
        return max(0, math.ceil(float(str(found).strip().replace("_", ""))))
    except (ValueError, OverflowError):
        return int(found is True)


def _longest(asked: Any, names: tuple[str, ...]) -> int:
    """The longest answer that some server would give: one that does not know a limit's type passes it over."""
    given = [asked[name] for name in names if asked.get(name) is not None]
    if not given or any(type(one) is not int or one <= 0 for one in given):
        return LONGEST_TOKENS
    return int(min(max(given), LONGEST_TOKENS))


def _answers(asked: Any, ending: str) -> int:
    answers = max(1, *(_number(asked.get(name)) for name in ("n", "best_of", "num_completions")))
    prompts = asked.get("prompt")
    if ending == "/completions" and isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        answers *= len(prompts)
    return min(answers, 5000)


def _usage(ending: str, prompt: int, output: int, searches: int) -> dict[str, Any]:
    if ending == "/responses":
        return {"input_tokens": prompt, "output_tokens": output}
    if ending == "/messages":
        tools = {"server_tool_use": {"web_search_requests": searches}} if searches else {}
        return {"input_tokens": prompt, "output_tokens": output, "cache_read_input_tokens": 0, **tools}
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def _complete(ending: str, asked: Any, usage: Any, searches: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": "x", "usage": usage, "model": "m"}
    if asked.get("service_tier"):
        answer["service_tier"] = str(asked["service_tier"]).lower()
    if ending == "/responses":
        return {**answer, "output": [{"type": "web_search_call"}] * searches}
    if ending == "/messages":
        return {**answer, "type": "message", "content": []}
    return {**answer, "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "length"}]}


def _piece(ending: str, text: str) -> dict[str, Any]:
    if ending == "/responses":
        return {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text}
    if ending == "/messages":
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    choice = {"text": text} if ending == "/completions" else {"delta": {"content": text}}
    return {"id": "x", "object": "chunk", "model": "m", "choices": [{"index": 0, "finish_reason": None, **choice}]}


def _last(ending: str, asked: Any, usage: Any) -> dict[str, Any]:
    if ending == "/responses":
        return {"type": "response.completed", "response": _complete(ending, asked, usage, 0)}
    if ending == "/messages":
        return {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": usage}
    return {"id": "x", "choices": [], "usage": usage}

"""A provider that counts everything that it is sent, by the public rules and with a real tokenizer, thinks where nobody
sees it, and bills what it generates, whoever waits for it.

It reads a request as leniently as any server does. A stream is generated at ``tokens_per_s``, its first part as hidden
thinking; when its client leaves it stops, and bills up to there. What does not stream is generated to its end and
billed in full. How a call goes (an answer, an error, a line that breaks, silence) is drawn by the run's seed, or is
always the same: ``plain`` is the longest answer that the request allows, all of it seen, and ``mute`` has no usage.
"""

import asyncio
import base64
import io
import math
import struct
import threading
import time
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from proxy.services import local_encode
from tests.receiver import head, part, whole_body
from tests.security.provider import event
from tests.waiting import until

INPUT_USD, OUTPUT_USD = 0.000002, 0.00001
IMAGE_USD, CHARACTER_USD, SECOND_USD, QUERY_USD, SEARCH_USD = 0.01, 0.00001, 0.0001, 0.002, 0.025
LONGEST_TOKENS = 8192
TOKENS_PER_S = 200.0
TIERS = {"priority": 2.0, "fast": 2.0, "performance": 4.0}
SMALL, SMALL_WINDOW, SMALL_OUTPUT_USD = "m-small", 3000, 0.000001
"""A model with a short window and cheap answers, so that what fills a window, or is as long as any answer, can be paid
for."""
WINDOW, FOUND_TOKENS, CALLS, MOST_CALLS, CODE_USD = 200_000, 8_000, 8, 100, 0.03
_WAYS = ("answer", "answer", "answer", "error", "breaks", "late", "mute", "gateway")
"""How calls go: most are answered; some say no usage, break off, or are never answered; some a gateway gives up."""
_PER_MESSAGE = 4
_STEP_S = 0.02
_SILENT_S = 30.0
_LIMITS = {
    "/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/responses/compact": (),
    "/messages": ("max_tokens",),
}
_CALL_LIMITS = {"/responses": "max_tool_calls", "/messages": "max_uses"}
_READING = ("web_fetch", "code_", "file_search", "mcp", "shell", "retrieval", "memory_bank", "custom_search")


@dataclass(frozen=True, slots=True)
class Bill:
    """What one call cost."""

    path: str
    usd: float
    how: str
    late_usd: float
    """The part of it that was generated when the client had left, before the provider heard of that."""


@dataclass
class CountingProvider:
    """An ASGI app. ``bills`` are its calls in the order in which they ended."""

    bills: list[Bill] = field(default_factory=list)
    seed: str = ""
    always: str = ""
    """How every call goes; empty: that is drawn."""
    tokens_per_s: float = TOKENS_PER_S
    wait_s: float = 0.0
    """Before the first byte."""
    prompt: Callable[[bytes], int] | None = None
    """The tokens of a body; by default those of every text in it."""
    running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def usd(self) -> float:
        """All that was billed."""
        return sum(bill.usd for bill in self.bills)

    @property
    def late_usd(self) -> float:
        """What of that was generated while a client's leaving was on its way."""
        return sum(bill.late_usd for bill in self.bills)

    def reached(self) -> None:
        """Returns when a call runs."""
        until(lambda: self.running > 0)

    def ended(self) -> None:
        """Returns when no call runs any more."""
        until(lambda: not self.running)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await whole_body(receive)
        with self._lock:
            self.running += 1
        path, chance = scope["path"].lower().rstrip("/"), Random(self.seed + str(len(self.bills)))
        call = _Call(path, body, chance, self, leaving(scope))
        try:
            await call.answer(receive, send)
        finally:
            with self._lock:
                self.running -= 1
                self.bills.append(Bill(call.path, call.usd, call.how, call.late_usd))


def leaves_at(at: float) -> tuple[str, str]:
    """A header that tells the provider when its client will leave, by the clock of this process."""
    return "x-request-id", f"leaves-{at}"


def leaving(scope: Scope) -> float:
    """When the client of a call leaves, where it has told."""
    names = [value for name, value in scope["headers"] if name == b"x-request-id" and value.startswith(b"leaves-")]
    return float(names[0].removeprefix(b"leaves-")) if names else math.inf


@dataclass
class _Call:
    path: str
    body: bytes
    random: Random
    provider: CountingProvider
    leaves_at: float
    how: str = ""
    usd: float = 0.0
    late_usd: float = 0.0

    async def answer(self, receive: Receive, send: Send) -> None:
        ending = next((one for one in _LIMITS if self.path.endswith(one)), "")
        asked = _json(self.body)
        if not ending:
            self.how = "units"
            await asyncio.sleep(self.provider.wait_s)
            await _whole(send, self._units(asked))
            return
        self.how = self.provider.always or self.random.choice(_WAYS)
        if self.how == "error":
            await _whole(send, {"error": {"message": "overloaded", "type": "server_error"}}, 503)
            return
        factor = TIERS.get(str(asked.get("service_tier")).lower(), 1.0)
        is_small = asked.get("model") == SMALL
        count, searches = self.provider.prompt, _searches(asked, ending)
        prompt = tokens_of(asked) + media_tokens(asked) if count is None else count(self.body)
        if is_small and prompt > SMALL_WINDOW:
            await _whole(send, {"error": {"message": "too long", "code": "context_length_exceeded"}}, 400)
            return
        prompt = _read(asked, ending, prompt, SMALL_WINDOW if is_small else WINDOW)
        self.usd += factor * prompt * INPUT_USD + searches * SEARCH_USD + _containers_usd(asked)
        output_usd = factor * (SMALL_OUTPUT_USD if is_small else OUTPUT_USD)
        longest = _longest(asked, _LIMITS[ending]) * _answers(asked, ending)
        is_drawn = not self.provider.always
        output = self.random.choice((longest, self.random.randint(1, longest))) if is_drawn else longest
        output += tokens_of(asked.get("prediction")) * _answers(asked, ending)  # none of it was right
        if "compact" in str(asked.get("context_management")):
            output += LONGEST_TOKENS
        usage = _usage(ending, prompt, output, searches)
        if asked.get("stream") is True:
            await self._stream(ending, output, output_usd, usage, receive, send)
            return
        self.usd += output * output_usd
        if self.how == "gateway":
            await _whole(send, {"error": {"message": "no answer"}}, 504)
            return
        if self.how == "late":
            await _left(receive, _SILENT_S)
            return
        await _left(receive, max(self.provider.wait_s, output / self.provider.tokens_per_s))
        await _whole(send, _complete(ending, asked, usage), is_cut=self.how == "breaks")

    async def _stream(self, ending: str, output: int, usd: float, usage: Any, receive: Receive, send: Send) -> None:
        left, done = asyncio.ensure_future(_left(receive, math.inf)), 0.0
        step_tokens = self.provider.tokens_per_s * _STEP_S
        thought = {"thinks": output, "plain": 0, "mute": 0}.get(self.how, output * self.random.random())
        breaks_at = output * self.random.random() if self.how == "breaks" else math.inf
        try:
            await asyncio.wait([left], timeout=self.provider.wait_s)
            if self.how != "late":
                await send(head(200, [("content-type", "text/event-stream")]))
            while done < output and not left.done() and done < breaks_at:
                await asyncio.wait([left], timeout=_STEP_S)
                step = min(step_tokens, output - done)
                done, self.usd = done + step, self.usd + step * usd
                self.late_usd += step * usd if time.monotonic() > self.leaves_at else 0.0
                if self.how == "late":
                    continue
                await send(part(_piece(ending, "word " * int(step)) if done > thought else b": thinking\n\n"))
            if self.how == "late":
                await asyncio.wait([left], timeout=_SILENT_S)
            if left.done() or done < output:
                return
            if self.how != "mute":
                await send(part(_last(ending, usage)))
            await send(part(b"data: [DONE]\n\n" if ending.endswith("completions") else b"", more=False))
        finally:
            left.cancel()

    def _units(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Everything that is not billed by the tokens of an answer; what is not known costs a dollar."""
        if self.path.endswith("/embeddings"):
            tokens = tokens_of(asked)
            self.usd = tokens * INPUT_USD
            return {"data": [], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        if "/images/" in self.path:
            self.usd = (_number(asked.get("n")) or 1) * IMAGE_USD
            return {"data": [{"url": "u"}] * min(100, _number(asked.get("n")) or 1)}
        if self.path.endswith("/audio/speech"):
            self.usd = len(str(asked.get("input"))) * CHARACTER_USD
            return {"audio": "x"}
        if self.path.endswith("/audio/transcriptions"):
            self.usd = seconds_of(self.body) * SECOND_USD
            says = self.random.random() < 0.5
            return {"text": "x", **({"usage": {"type": "duration", "seconds": self.usd / SECOND_USD}} if says else {})}
        if self.path.endswith("/rerank"):
            self.usd = math.ceil(len(asked.get("documents") or ()) / 100) * QUERY_USD
            return {"results": []}
        self.usd = 0.0 if self.path.endswith("/files") else 1.0
        return {"id": "x"}


def tokens_of(found: Any) -> int:
    """The tokens of every text in a value, whatever it stands under: names, strings, numbers; not of inline media."""
    texts, messages = list[str](), 0
    for value in _leaves(found):
        if isinstance(value, str) and not _is_media(value):
            texts.append(value)
        elif isinstance(value, int | float):
            texts.append(str(value))
        messages += value == "role"
    return sum(map(local_encode(), texts)) + _PER_MESSAGE * messages


def media_tokens(found: Any) -> int:
    """Images by https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs, without its limit on
    their size; pages of PDF as an image and their text, https://docs.anthropic.com/en/docs/build-with-claude/pdf-support."""
    total = 0
    for value in _leaves(found):
        if isinstance(value, str) and _is_media(value):
            data = _decoded(value)
            if data[:8] == b"\x89PNG\r\n\x1a\n":
                width, height = struct.unpack(">II", data[16:24])
                total += min(4784, width * height // 750)
            elif data[:4] == b"%PDF":
                total += 4500 * data.count(b"/Type /Page\n")
    return total


def _leaves(found: Any) -> Iterator[Any]:
    stack = [found]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            stack += value
        else:
            yield value


def _is_media(text: str) -> bool:
    return text.startswith(("data:", "iVBORw0KGgo", "JVBERi0"))


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.rpartition(",")[2] + "==", validate=False)


def seconds_of(form: bytes) -> float:
    """How long the sound in a form lasts, as a decoder finds it."""
    if (start := form.find(b"hours")) >= 0:
        return 14_400.0
    if (start := form.find(b"fLaC")) >= 0:
        (packed,) = struct.unpack(">Q", form[start + 18 : start + 26])
        return (packed & 0xFFFFFFFFF) / (packed >> 44)
    if (start := form.find(b"RIFF")) >= 0:
        with wave.open(io.BytesIO(form[start:])) as file:
            return file.getnframes() / file.getframerate()
    return len(form) / 2000


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            found = orjson.loads(body.decode("utf-8", "replace").replace("NaN", "null").replace("\\ud800", "?"))
        except orjson.JSONDecodeError:
            return {}
    return found if isinstance(found, dict) else {}


def _number(found: Any) -> int:
    """What the most lenient server reads."""
    try:
        return max(0, math.ceil(float(str(found).strip().replace("_", ""))))
    except (ValueError, OverflowError):
        return int(found is True)


def _longest(asked: dict[str, Any], names: tuple[str, ...]) -> int:
    given = [asked[name] for name in names if asked.get(name) is not None]
    if not given or any(type(one) is not int or one <= 0 for one in given):
        return LONGEST_TOKENS
    return min(max(given), LONGEST_TOKENS)


def _answers(asked: dict[str, Any], ending: str) -> int:
    answers = max(1, *(_number(asked.get(name)) for name in ("n", "best_of", "num_completions")))
    prompts = asked.get("prompt")
    if ending == "/completions" and isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        answers *= len(prompts)
    return answers


def _calls(asked: dict[str, Any], ending: str, *kinds: str) -> int:
    """How often the model calls its provider's tools of these kinds: as often as it may."""
    tools, name = asked.get("tools"), _CALL_LIMITS.get(ending, "")
    holders = [tool for tool in (tools if isinstance(tools, list) else ()) if isinstance(tool, dict)]
    found = [tool for tool in holders if str(tool.get("type")).startswith(kinds) and "local" not in repr(tool)]
    calls = [(_number(tool.get(name)) if name == "max_uses" else 0) or CALLS for tool in found]
    limit = _number(asked.get(name)) if name == "max_tool_calls" else 0
    return min(sum(calls), limit or sum(calls), MOST_CALLS)


def _searches(asked: dict[str, Any], ending: str) -> int:
    return _calls(asked, ending, "web_search") or int("web_search_options" in asked)


def _read(asked: dict[str, Any], ending: str, prompt: int, window: int) -> int:
    """The tokens of all prompts of a request: once more behind each call, with what the calls before it brought; a page
    or a program's output fills the window. What is kept under an id does, too, and what the provider looks up before it
    answers; and a summary reads all of it before."""
    is_kept = '"type": "reasoning"' in repr(asked.get("input")).replace("'", '"') or "previous_response_id" in asked
    brings = asked.get("enable_search") is True or any(name in asked for name in ("data_sources", "connectors"))
    prompt, total = (window if is_kept or brings else prompt), 0
    reads, searches = _calls(asked, ending, *_READING), _searches(asked, ending)
    for at in range(1 + reads + searches):
        total += min(window, prompt + at * FOUND_TOKENS) if not reads or not at else window
    return total * (2 if "compact" in str(asked.get("context_management")) else 1)


def _containers_usd(asked: dict[str, Any]) -> float:
    """https://platform.openai.com/docs/pricing#built-in-tools"""
    tools = asked.get("tools")
    places = [
        tool.get("container") or tool.get("environment")
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict) and tool.get("type") in ("code_interpreter", "shell")
    ]
    sizes = [str(one.get("memory_limit", "1g")) for one in places if isinstance(one, dict) and one["type"] != "local"]
    return sum(CODE_USD * int(size.rstrip("g")) for size in sizes)


def _usage(ending: str, prompt: int, output: int, searches: int) -> dict[str, Any]:
    if ending in ("/responses", "/responses/compact", "/messages"):
        tools = {"server_tool_use": {"web_search_requests": searches}} if searches else {}
        return {"input_tokens": prompt, "output_tokens": output, **tools}
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def _complete(ending: str, asked: dict[str, Any], usage: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": "x", "usage": usage, "model": "m"}
    if isinstance(asked.get("service_tier"), str):
        answer["service_tier"] = asked["service_tier"].lower()
    if ending == "/responses":
        return {**answer, "output": [{"type": "web_search_call"}] * _searches(asked, ending)}
    if ending == "/messages":
        return {**answer, "type": "message", "content": []}
    return {**answer, "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "length"}]}


def _piece(ending: str, text: str) -> bytes:
    if ending.startswith("/responses"):
        return event({"type": "response.output_text.delta", "delta": text})
    if ending == "/messages":
        return event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}})
    choice = {"text": text} if ending == "/completions" else {"delta": {"content": text}}
    return event({"id": "x", "choices": [{"index": 0, "finish_reason": None, **choice}]})


def _last(ending: str, usage: Any) -> bytes:
    if ending.startswith("/responses"):
        return event({"type": "response.completed", "response": {"id": "x", "usage": usage}})
    if ending == "/messages":
        return event({"type": "message_delta", "usage": usage}) + event({"type": "message_stop"})
    return event({"id": "x", "choices": [], "usage": usage})


async def _whole(send: Send, answer: Any, status: int = 200, *, is_cut: bool = False) -> None:
    data = orjson.dumps(answer)
    await send(head(status, [("content-type", "application/json"), ("content-length", str(len(data)))]))
    if not is_cut:
        await send(part(data, more=False))


async def _left(receive: Receive, most_s: float) -> None:
    """Until the client has left, or so long."""
    try:
        async with asyncio.timeout(None if most_s == math.inf else most_s):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return

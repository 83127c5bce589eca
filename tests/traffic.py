"""Traffic of every kind, drawn at random, and a provider that writes down what it bills.

    number = 17  # stands in the request, so that the provider knows how it answers
    ways = [Way("503"), Way("answer", 800, 12, read=500)]  # its first call, and each that follows

A ``Request`` is what a client sends, and when the client leaves. ``BillingProvider`` answers each call in the ``Way``
that was drawn for it, and keeps a ``Call`` with the usage that it bills: none for a call that it refuses.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from tests.security.provider import Answer, RecordingProvider, Seen, complete, events

PRICES: Mapping[str, tuple[int, int, int, int]] = {
    "main-1": (2_000, 10_000, 200, 2_500), "main-2": (2_000, 10_000, 200, 2_500), "back-1": (1_000, 4_000, 100, 1_250),
    "raw-1": (3_000, 7_000, 300, 3_000),
}  # fmt: skip
"""Nano-dollars a token of each model: input, output, cache read and cache write."""
DEAR_USD = 0.05
"""What a dear answer says that it costs."""
SILENT_S = 0.6
_PAUSE_S = 0.02
_ANSWERS = ("answer", "answer", "answer", "slow", "mute", "none", "dear", "cut", "late-cut", "empty", "error", "page")
_REFUSALS = ("400", "401", "403", "404", "408", "413", "422", "429", "500", "502", "503", "504", "529")
_BILLED_REFUSALS = ("408", "504")
"""Behind these, the provider goes on."""
_NUMBER = re.compile(rb"number=(\d+);")
_SSE = (("content-type", "text/event-stream"),)

Figures = tuple[int, int, int, int]
"""Tokens of a prompt, of an answer, and of the prompt those that were read from the cache and written to it."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a call is answered, and with which usage. ``slow``: in pieces, with pauses. ``mute``: no usage. ``none``: a
    usage of zero. ``dear``: with a price of its own. ``cut``: the line breaks, before or (``late-cut``) after all of
    it. ``error``: an error in an answer of status 200. ``page``: one in HTML. ``silent``: nothing comes. A number is
    the status of a refusal."""

    kind: str
    prompt: int = 1
    output: int = 0
    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What one client sends. ``leaves_s``: it leaves after so many seconds, whatever it has."""

    number: int
    ways: Sequence[Way]
    key: str
    path: str
    body: bytes
    leaves_s: float | None = None

    @property
    def is_background(self) -> bool:
        """Whether the answer is written in the background, and asked for later."""
        return b'"background": true' in self.body


@dataclass(frozen=True, slots=True)
class Told:
    """What the client was told. A status of 0: nothing, or not all of it."""

    status: int = 0
    exchange_id: str = ""
    text: bytes = b""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the provider has it. ``billed`` is None where it bills nothing."""

    exchange_id: str
    model: str
    way: Way
    billed: Figures | None

    @property
    def nanos(self) -> int:
        """What it costs."""
        if self.billed is None:
            return 0
        prompt, output, read, written = self.billed
        each = PRICES[self.model]
        by_tokens = (prompt - read - written) * each[0] + output * each[1] + read * each[2] + written * each[3]
        return max(by_tokens, round(DEAR_USD * 1e9)) if self.way.kind == "dear" else by_tokens


class BillingProvider(RecordingProvider):
    """Answers as it was drawn."""

    def __init__(self) -> None:
        super().__init__("billing", self._answer)
        self.requests: dict[int, Request] = {}
        self.calls: list[Call] = []
        self._counts: Counter[int] = Counter()

    def _answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":  # a background response that is asked for
            number = int(seen.path.rpartition("_")[2])
            return Answer(body=self._object(seen.path, self.requests[number], "completed"))
        number = int(_NUMBER.findall(seen.body)[-1])
        request = self.requests[number]
        way = request.ways[min(self._counts[number], len(request.ways) - 1)]
        self._counts[number] += 1
        is_billed = not way.kind.isdigit() or way.kind in _BILLED_REFUSALS
        figures = _figures(seen.path, way, is_whole=request.is_background)
        call = Call(seen.header("x-request-id") or "", seen.json["model"], way, figures if is_billed else None)
        self.calls.append(call)
        if way.kind.isdigit():
            headers = [("retry-after", "0")] if way.kind in ("429", "503") else []
            return Answer(int(way.kind), {"error": {"message": "no", "type": "x", "code": None}}, headers)
        if request.is_background and way.kind not in ("silent", "cut"):
            return Answer(body=self._object(seen.path, request, "in_progress"))
        if way.kind == "page":
            return Answer(body=b"<html>", headers=[("content-type", "text/html")])
        is_stream = seen.json.get("stream") is True
        return Answer(body=_body(seen.path, way, is_stream), headers=_SSE if is_stream else ())

    def _object(self, path: str, request: Request, status: str) -> dict[str, Any]:
        way = request.ways[min(self._counts[request.number], len(request.ways)) - 1]  # the call that was answered
        usage = usage_of("/responses", way) if status == "completed" else None
        found = complete("/responses", usage) | {"status": status, "background": True}
        return found | {"id": f"resp_{request.number}"}


def _figures(path: str, way: Way, *, is_whole: bool) -> Figures:
    if way.kind == "none" and not is_whole:
        return 0, 0, 0, 0
    if path.endswith("/embeddings"):
        return way.prompt, 0, 0, 0
    return way.prompt, way.output, way.read, 0 if path.endswith("/responses") else way.written


def usage_of(path: str, way: Way) -> dict[str, Any]:
    """The usage in the words of this path."""
    prompt, output, read, written = _figures(path, way, is_whole=False)
    if path.endswith("/messages"):
        found: dict[str, Any] = {
            "input_tokens": prompt - read - written, "output_tokens": output, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }  # fmt: skip
    elif path.endswith("/responses"):
        found = {"input_tokens": prompt, "output_tokens": output, "input_tokens_details": {"cached_tokens": read}}
    else:
        details = {"cached_tokens": read, "cache_write_tokens": written}
        found = {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}
    return found | ({"cost": DEAR_USD} if way.kind == "dear" else {})


async def _body(path: str, way: Way, is_stream: bool) -> AsyncIterator[bytes]:
    """The pieces of an answer. Raises ConnectionError where the line breaks."""
    name = path.removeprefix("/v1")
    usage = usage_of(path, way) if way.kind != "mute" else None
    pieces = list(events(name, usage)) if is_stream else [json.dumps(complete(name, usage)).encode()]
    if not is_stream:
        pieces = [pieces[0][:-20], pieces[0][-20:]]
    if way.kind == "silent":
        await asyncio.sleep(SILENT_S)
        raise ConnectionError
    if way.kind == "error":
        told = b'{"error": {"message": "overloaded", "type": "server_error"}}'
        pieces = [pieces[0], b"data: " + told + b"\n\n"] if is_stream else [told]
    for piece in [] if way.kind == "empty" else pieces[:1] if way.kind == "cut" else pieces:
        yield piece
        await asyncio.sleep(_PAUSE_S if way.kind in ("slow", "cut") else 0)
    if way.kind in ("cut", "late-cut"):
        await asyncio.sleep(_PAUSE_S)
        raise ConnectionError


def way_of(chance: Random) -> Way:
    """One way."""
    kind, prompt = chance.choice([*_ANSWERS, *_ANSWERS, *_REFUSALS, "silent"]), chance.randint(1, 3000)
    read = chance.choice([0, prompt // 2, prompt])
    return Way(kind, prompt, chance.randint(0, 50), read, chance.choice([0, prompt - read]))


def traffic(seed: int, keys: Sequence[str]) -> list[Request]:
    """Requests with these keys."""
    chance = Random(seed)
    return [_request(chance, number, keys) for number in range(chance.randint(10, 30))]


def _request(chance: Random, number: int, keys: Sequence[str]) -> Request:
    chat = "/v1/chat/completions"
    others = ["/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"]
    path, model = chance.choice([chat] * 6 + others), chance.choice(["main", "main", "back", "raw"])
    text = f"number={number}; {'word ' * chance.choice([5, 50, 1500])}"
    body: dict[str, Any] = {"model": model, "stream": chance.random() < 0.5}
    if path == chat or path.endswith("/messages"):
        talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * chance.randint(0, 2)
        body |= {"messages": [*talk, {"role": "user", "content": text}], "max_tokens": 60}
    elif path.endswith("/completions"):
        body |= {"prompt": text, "max_tokens": 60}
    elif path.endswith("/responses"):
        body |= {"input": text, "max_output_tokens": 60}
        if chance.random() < 0.3:
            body |= {"background": True, "stream": False}
    else:
        body = {"model": model, "input": text}
    if path == chat and chance.random() < 0.5:
        asks = {"stream_options": {"include_usage": True}} if body["stream"] else {"stratiform": {"return_usage": True}}
        body |= asks
    if chance.random() < 0.3:
        body |= {"user": chance.choice(["bob", "cy"])}
    leaves_s = chance.choice([None] * 8 + [0.001, 0.01, 0.03, 0.08])
    ways = [way_of(chance) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.1:
        ways = [Way("400"), *ways]  # a rewrite is refused
    return Request(number, ways, chance.choice(keys), path, json.dumps(body).encode(), leaves_s)


@dataclass
class Clients:
    """The clients of a proxy, ``at_once`` so many at a time."""

    url: str
    session: aiohttp.ClientSession
    told: dict[int, Told] = field(default_factory=dict)

    async def send(self, sent: Sequence[Request], at_once: int) -> None:
        """Send all requests."""
        places = asyncio.Semaphore(at_once)

        async def one(request: Request) -> None:
            async with places:
                self.told[request.number] = await self.ask("POST", request)

        async with asyncio.TaskGroup() as group:
            for request in sent:
                group.create_task(one(request))

    async def ask(self, method: str, request: Request, path: str = "") -> Told:
        """Send one request."""
        headers = {"authorization": f"Bearer {request.key}", "content-type": "application/json"}
        body = request.body if method == "POST" else b""
        try:
            async with (
                asyncio.timeout(request.leaves_s if method == "POST" else None),
                self.session.request(method, self.url + (path or request.path), data=body, headers=headers) as answer,
            ):
                return Told(answer.status, answer.headers.get("x-stratiform-id", ""), await answer.read())
        except (aiohttp.ClientError, TimeoutError):
            return Told()

"""Random requests of every path that costs money, made at once with one key that has a hard budget, and what the
provider has billed for them in the end.

    found = spend(worlds, provider, seed=7, calls=40)
    assert found.billed_usd <= BUDGET_USD + found.allowed_usd

What may be overrun is one call's error: what the dearest call has cost beyond a reservation that was a tenth too small,
and what is generated while a client's leaving is on its way.
"""

import gzip
import io
import json
import socket
import struct
import time
import wave
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from proxy.services import local_encode
from tests.doubles import serving
from tests.fuzz.billing import OUTPUT_USD, TOKENS_PER_S, CountingProvider, leaves_at
from tests.security.world import World, world_of
from tests.waiting import until

BUDGET_USD = 0.05
ROUNDS = 2
ERROR_SHARE = 0.1
ON_ITS_WAY_S = 0.5
"""Until the provider notices that a client has left, on a machine that is busy."""

CONFIG = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m-1, api_base: "PROVIDER/v1", api_key: sk-provider, timeout: 1.5},
     model_info: {transport: TRANSPORT}}
  - {model_name: raw, litellm_params: {model: openai/m-1, api_base: "PROVIDER/v1", api_key: sk-provider, timeout: 1.5},
     model_info: {transport: TRANSPORT, mode: passthrough}}
  - {model_name: small, litellm_params: {model: openai/m-small, api_base: "PROVIDER/v1", api_key: sk-provider,
     timeout: 1.5}, model_info: {transport: TRANSPORT, max_input_tokens: 3000}}
router_settings: {num_retries: 2, disable_cooldowns: true}
general_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}
stratiform:
  port: 0
  store: STORE
  limits: {receive_s: 20, drain_s: 2}
  teams:
    - name: team-a
      budget: {usd: 0.05, scope: key, subject: "*"}
  prices:
    m-1: &price
      input_cost_per_token: 0.000002
      output_cost_per_token: 0.00001
      output_cost_per_image: 0.01
      input_cost_per_character: 0.00001
      input_cost_per_second: 0.0001
      input_cost_per_query: 0.002
    openai/m-1: *price
    m-small: &small {<<: *price, output_cost_per_token: 0.000001}
    openai/m-small: *small
"""
_SCRIPTS = (
    "The quick brown fox jumps over the lazy dog. ", "def add(a, b):\n    return a + b\n",
    "Быстрая бурая лиса прыгает. ", "एक तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। ", "速い茶色の狐は怠け者の犬を飛び越える。",
    "🦊💨🐕🌍🎉", "x9Q!zP#7kL@2", "        ",
)  # fmt: skip
_MEMBERS = (
    "functions", "response_format", "prediction", "documents", "metadata", "user", "logit_bias", "zap", "extra_body",
    "reasoning", "thinking", "store", "safety_identifier", "guided_json",
)  # fmt: skip
_MESSAGE_MEMBERS = ("reasoning_content", "refusal", "function_call", "name", "audio", "zip", "annotations")
_TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 1},
    {"type": "web_search", "max_tool_calls": 1},
    {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 1},
    {"type": "file_search", "vector_store_ids": ["vs"], "max_num_results": 50},
    {"type": "mcp", "server_url": "https://example.org", "server_label": "x", "require_approval": "never"},
    {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "64g"}},
    {"type": "code_interpreter", "container": {"type": "auto", "x": "1g"}},
    {"type": "shell", "environment": {"type": "container_auto", "memory_limit": "4g"}},
    {"type": "shell", "environment": {"type": "local"}},
)
_SUMMARIES: tuple[Any, ...] = (
    {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1}}]},
    {"edits": [{"type": "clear_tool_uses_20250919"}]},
    [{"type": "compaction", "compact_threshold": 1}],
)
_LIMITS: tuple[object, ...] = (*(20, 50, 100, 200) * 4, 1, 1000, 3000, "100", 10.0, None, 10**9, 0, True)


Headers = tuple[tuple[str, str], ...]
_JSON: Headers = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and after how long its client leaves."""

    path: str
    body: bytes
    headers: Headers = _JSON
    leaves_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What came of a run. ``calls`` are those that reached the provider."""

    billed_usd: float
    dearest_usd: float
    calls: int
    statuses: tuple[int, ...]
    late_usd: float

    @property
    def allowed_usd(self) -> float:
        """By how much a budget may be overrun."""
        return ERROR_SHARE * self.dearest_usd + self.late_usd + ON_ITS_WAY_S * TOKENS_PER_S * OUTPUT_USD * 2


Worlds = Sequence[World]
"""Proxies of one configuration that share a store."""


@contextmanager
def spending_worlds(
    store: str = "memory", transport: str = "http", workers: int = 1
) -> Iterator[tuple[Worlds, CountingProvider]]:
    """Proxies in front of a provider that counts."""
    provider = CountingProvider()
    with ExitStack() as stack:
        url = stack.enter_context(serving(provider))
        config = CONFIG.replace("PROVIDER", url).replace("STORE", store).replace("TRANSPORT", transport)
        worlds = [stack.enter_context(world_of(config, providers=(), encode=local_encode())) for _ in range(workers)]
        yield worlds, provider


def spend(worlds: Worlds, provider: CountingProvider, seed: int, calls: int) -> Spent:
    """Make so many calls at once, in two rounds, with a new key."""
    _, key = worlds[0].new_key()
    for world in worlds:
        until(partial(_is_known, world, key))
    provider.bills.clear()
    provider.seed = str(seed)
    random, statuses = Random(f"spending/{seed}"), list[int]()
    for _ in range(ROUNDS):
        requests = [request_of(random) for _ in range(calls)]
        asking = [partial(sent, worlds[at % len(worlds)], one, key) for at, one in enumerate(requests)]
        statuses += worlds[0].at_once(asking)
        for world in worlds:
            world.forget()
        provider.ended()
    bills = list(provider.bills)
    dearest = max((bill.usd for bill in bills), default=0.0)
    return Spent(provider.usd, dearest, len(bills), tuple(statuses), provider.late_usd)


def _is_known(world: World, key: str) -> bool:
    return world.call("GET", "/v1/models", key=key).status != 401


def overrun(seed: int, count: int, calls: int = 40) -> list[str]:
    """Of so many runs, those that have passed their budget by more than is allowed."""
    found = list[str]()
    with spending_worlds() as (worlds, provider):
        for number in range(seed, seed + count):
            spent = spend(worlds, provider, number, calls)
            if spent.billed_usd > BUDGET_USD + spent.allowed_usd:
                found.append(
                    f"budget {number}: ${spent.billed_usd:.4f} of ${BUDGET_USD} billed for {spent.calls} calls"
                )
    return found


def request_of(random: Random) -> Request:
    """A request of any path."""
    kinds = ("completions", "responses", "messages") * 2 + ("responses/compact", "units", "units")
    kind = random.choice(("chat",) * 6 + kinds)
    if kind == "units":
        return _units(random)
    asked: dict[str, Any] = {"model": random.choice(("m", "m", "raw", "small", "small"))}
    path = {"chat": "/v1/chat/completions"}.get(kind, f"/v1/{kind}")
    if kind == "completions":
        asked["prompt"] = random.choice((text(random), [text(random, 50)] * random.randint(1, 6)))
        _maybe(random, asked, "best_of", lambda: random.randint(1, 5))
    elif kind.startswith("responses"):
        asked["input"] = random.choice((text(random), _messages(random)))
        if random.random() < 0.1:
            asked["input"] = [{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "Go on."}]
        _maybe(random, asked, "instructions", lambda: text(random))
    else:
        asked["messages"] = _messages(random)
        _maybe(random, asked, "system", lambda: text(random))
    limit = random.choice(("max_tokens", "max_completion_tokens"))
    limit = "max_output_tokens" if kind.startswith("responses") else limit
    _maybe(random, asked, limit, lambda: random.choice(_LIMITS), 0.95)
    _maybe(random, asked, "n", lambda: random.choice((1, 2, 3, "2")), 0.2)
    _maybe(random, asked, "service_tier", lambda: random.choice(("priority", "flex", "fast", "default")), 0.2)
    _maybe(random, asked, "tools", lambda: random.choices(_TOOLS, k=random.choice((1, 1, 2))), 0.15)
    _maybe(random, asked, "max_tool_calls", lambda: 1, 0.1)
    _maybe(random, asked, "context_management", lambda: random.choice(_SUMMARIES), 0.1)
    _maybe(random, asked, "web_search_options", dict, 0.05)
    for name in random.sample(_MEMBERS, random.choice((0, 0, 0, 1, 2))):
        asked[name] = value(random)
    asked["stream"] = random.random() < 0.5
    body, headers = json.dumps(asked, ensure_ascii=random.random() < 0.5).encode(), _JSON
    if random.random() < 0.05:
        body, headers = gzip.compress(body), (*headers, ("content-encoding", "gzip"))
    leaves_s = random.choice((None, None, 0.1, 0.5, 1.2)) if random.random() < 0.7 else None
    return Request(path, body, headers, leaves_s)


def text(random: Random, most: int = 0) -> str:
    """A text in some script."""
    script, most = random.choice(_SCRIPTS), most or random.choice((40, 40, 40, 400, 400, 3000))
    return (script * (most // len(script) + 1))[: random.randint(1, most)]


def value(random: Random, depth: int = 0) -> Any:
    """What may stand under any name."""
    match random.randrange(6 if depth < 6 else 3):
        case 0:
            return random.choice((None, True, 1, 2.5, 10**12, ""))
        case 1 | 2:
            return text(random)
        case 3:
            return [value(random, depth + 1) for _ in range(random.randint(0, 3))]
        case 4:
            return {text(random, 12): value(random, depth + 1) for _ in range(random.randint(0, 3))}
        case _:
            return {"content": text(random), "type": random.choice(("content", "json_schema", "object"))}


def _messages(random: Random) -> list[Any]:
    found: list[Any] = []
    for _ in range(random.randint(1, 4)):
        content: Any = text(random)
        if random.random() < 0.3:
            content = [{"type": "text", "text": text(random)}, *(_media(random) for _ in range(random.randint(1, 3)))]
        message = {"role": random.choice(("user", "user", "system", "assistant")), "content": content}
        _maybe(random, message, random.choice(_MESSAGE_MEMBERS), lambda: value(random), 0.2)
        found.append(message)
    return [*found, {"role": "user", "content": text(random)}]


def _media(random: Random) -> dict[str, Any]:
    if random.random() < 0.5:
        side = random.choice((16, 512, 2048))
        data = "data:image/png;base64," + b64encode(png(side)).decode()
        return {"type": "image_url", "image_url": {"url": data}}
    data = "data:application/pdf;base64," + b64encode(b"%PDF-1.4\n" + b"/Type /Page\n" * random.randint(1, 40)).decode()
    return {"type": "file", "file": {"file_data": data, "filename": "a.pdf"}}


def png(side: int) -> bytes:
    """A picture without colours."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (side // 8 + 1) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def flac(seconds: float, rate: int = 16_000, real: bytes = b"") -> bytes:
    """A file that says that it lasts so long; there is nothing to hear in it. Where it is ``real``ly longer, only a
    decoder notices."""
    packed = struct.pack(">Q", rate << 44 | 15 << 36 | int(seconds * rate))
    head = b"fLaC\x80\0\0\x22" + struct.pack(">HH", 4096, 4096) + b"\0" * 6 + packed + b"\0" * 16
    return head + b"\xff\xf8" * 5000 + real


def wav(seconds: float, rate: int = 8000) -> bytes:
    """Silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, rate, 0, "NONE", ""))
        sound.writeframes(b"\0\0" * int(rate * seconds))
    return file.getvalue()


def form(data: bytes, path: str = "/v1/audio/transcriptions", **fields: str) -> Request:
    """A file in a form, of sound to be transcribed where the path says nothing else."""
    head = "".join(
        f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{given}\r\n' for name, given in fields.items()
    )
    file = '--b\r\ncontent-disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    body = (head + file).encode() + data + b"\r\n--b--\r\n"
    return Request(path, body, (("content-type", "multipart/form-data; boundary=b"),))


def _units(random: Random) -> Request:
    asked: dict[str, Any] = {"model": "m"}
    match random.randrange(7):
        case 0:
            sound = random.choice((wav(random.random() * 20), flac(14_400.0), flac(1.0, real=b"hours"), b"x" * 9000))
            return form(sound, model="m", response_format=random.choice(("json", "text")))
        case 1:
            path, asked["input"] = "embeddings", random.choice((text(random), [text(random)] * 3))
        case 2:
            path, asked["prompt"], asked["n"] = "images/generations", text(random), random.choice((1, 3, "4"))
        case 3:
            path, asked["input"] = "audio/speech", text(random)
        case 4:
            # A batch of lines that nobody here has read, or what nobody here knows.
            path = random.choice(("batches", "messages/batches", "fine_tuning/jobs", "videos", "threads/t/runs"))
            asked |= {"input_file_id": "f", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        case 5:
            line = b'{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}\n'
            return form(line, path="/v1/files", purpose="batch")
        case _:
            path, asked["query"], asked["documents"] = (
                "rerank",
                text(random, 50),
                [text(random, 90)] * random.randint(1, 300),
            )
    return Request(f"/v1/{path}", json.dumps(asked).encode())


def _maybe(random: Random, asked: dict[str, Any], name: str, make: Any, share: float = 0.3) -> None:
    if random.random() < share:
        asked[name] = make()


@contextmanager
def asking(world: World, request: Request, key: str, *more: tuple[str, str]) -> Iterator[socket.socket]:
    """A connection on which the request has been sent."""
    lines = [("host", "x"), ("connection", "close"), ("authorization", f"Bearer {key}"), *request.headers, *more]
    lines.append(("content-length", str(len(request.body))))
    head = f"POST {request.path} HTTP/1.1\r\n" + "".join(f"{name}: {given}\r\n" for name, given in lines) + "\r\n"
    with world.connect() as connection, suppress(TimeoutError, ConnectionError):
        connection.sendall(head.encode() + request.body)
        yield connection


def sent(world: World, request: Request, key: str) -> int:
    """The status; 0 where the client left or got none."""
    ends = time.monotonic() + (60.0 if request.leaves_s is None else request.leaves_s)
    told = [] if request.leaves_s is None else [leaves_at(ends)]
    received = b""
    with asking(world, request, key, *told) as connection:
        while (left_s := ends - time.monotonic()) > 0:
            connection.settimeout(left_s)
            chunk = connection.recv(1 << 16)
            received += chunk
            if not chunk:
                break
        connection.shutdown(socket.SHUT_RDWR)
    return int(received[9:12]) if received[:5] == b"HTTP/" else 0

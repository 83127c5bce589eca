"""A hard budget under every evasive way of asking, many calls at once: the provider's true bill never passes it by
more than the error of one call's estimate.

The provider answers as long as it was asked to, reads every value as leniently as any server does, and bills what it
generated, also where nobody waited for it (``tests.fuzz.billing``).
"""

import base64
import gzip
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache

import pytest

from tests.doubles import serving
from tests.examples import sampled
from tests.fuzz.billing import CountingProvider
from tests.fuzz.spending import wav
from tests.security.world import World, world_of

BUDGET_USD = 0.06
CALLS = 16
"""How many calls are made at once."""
OVERLAP_S = 0.25
LEFT_TOKENS_PER_S, AWAITED_TOKENS_PER_S = 1000.0, 10_000.0
"""How fast an answer is generated whose client leaves, or waits for its end."""
ROUNDS = 6
"""How often clients come again that leave: what they left must have been booked by then."""
ERROR_USD = 0.012
"""One call of the table takes no more than this beyond what was reserved for it."""
ON_ITS_WAY_USD = 0.01
"""What is generated, or is in a buffer, when a client leaves."""

CONFIG = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m-1, api_base: "PROVIDER/v1", api_key: sk-provider},
     model_info: {transport: http, mode: passthrough}}
  - {model_name: groq, litellm_params: {model: openai/m-1, api_base: "PROVIDER/v1", api_key: sk-provider},
     model_info: {transport: http}}
router_settings: {num_retries: 0}
general_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}
stratiform:
  port: 0
  store: memory
  limits: {receive_s: 20, drain_s: 2}
  teams:
    - name: team-a
      budget: {usd: 0.06, scope: key, subject: "*"}
  prices:
    m-1:
      input_cost_per_token: 0.000002
      output_cost_per_token: 0.00001
      output_cost_per_image: 0.01
      input_cost_per_character: 0.00001
      input_cost_per_second: 0.0001
      input_cost_per_query: 0.002
"""
ASK = [{"role": "user", "content": "Write as long as you can."}]
CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
JSON_KIND = ("content-type", "application/json")


@dataclass(frozen=True)
class Row:
    """One way of asking. The client hangs up when ``leaves_s`` have passed, or when it has read ``leaves_after`` events
    of a stream; ``passes`` says that some calls must be served."""

    name: str
    path: str
    body: Mapping[str, object] | bytes
    headers: Sequence[tuple[str, str]] = ()
    leaves_s: float | None = None
    leaves_after: int | None = None
    silent: bool = False
    wait_s: float | None = None
    """How long the provider takes for its first byte: by default long enough for all calls to run at once."""
    passes: bool = False

    @property
    def leaves(self) -> bool:
        """Whether its clients hang up."""
        return self.leaves_s is not None or self.leaves_after is not None


def chat(**more: object) -> dict[str, object]:
    return {"model": "m", "messages": ASK, **more}


def completion(**more: object) -> dict[str, object]:
    return {"model": "m", "prompt": "Write.", **more}


def raw(members: str) -> bytes:
    return f'{{"model":"m","messages":[{{"role":"user","content":"x"}}],{members}}}'.encode()


def form(**fields: str) -> tuple[bytes, tuple[str, str]]:
    parts = [f'--b\r\ncontent-disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    sound = '--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return ("".join(parts) + sound).encode() + wav(20, rate=1000) + b"\r\n--b--\r\n", (
        "content-type",
        "multipart/form-data; boundary=b",
    )


SOUND, FORM = form(model="m")
PICTURE, _ = form(model="m", n="10")
LONG = {"model": "m", "input": "x", "max_output_tokens": 1000}
WEB = [{"type": "web_search_20250305", "name": "web_search"}]
ONCE = [{**WEB[0], "max_uses": 1}]

ROWS = [
    # Limits by path: one that the path does not know says nothing.
    Row("chat, plainly", CHAT, chat(max_tokens=200), passes=True),
    Row("chat, the other name", CHAT, chat(max_completion_tokens=200), passes=True),
    Row("chat, both limits", CHAT, chat(max_completion_tokens=1, max_tokens=3000)),
    Row("chat, both limits, turned", CHAT, chat(max_tokens=1, max_completion_tokens=3000)),
    Row("chat, a limit of responses", CHAT, chat(max_output_tokens=1)),
    Row("chat, a limit of Gemini", CHAT, chat(generationConfig={"maxOutputTokens": 1})),
    Row("chat, no limit", CHAT, chat()),
    Row("chat, a string", CHAT, chat(max_tokens="1")),
    Row("chat, a float", CHAT, chat(max_tokens=1.0)),
    Row("chat, true", CHAT, chat(max_tokens=True)),
    Row("chat, zero", CHAT, chat(max_tokens=0)),
    Row("chat, minus one", CHAT, chat(max_tokens=-1)),
    Row("chat, a list", CHAT, chat(max_tokens=[1])),
    Row("chat, huge", CHAT, chat(max_tokens=10**15)),
    Row("chat, beyond all floats", CHAT, raw('"max_tokens":1e999')),
    Row("completions, a limit of chats", COMPLETIONS, completion(max_completion_tokens=1, max_tokens=1_000_000)),
    Row("completions, only a limit of chats", COMPLETIONS, completion(max_completion_tokens=1)),
    Row("completions, only a limit of responses", COMPLETIONS, completion(max_output_tokens=1)),
    Row("responses, a limit of chats", RESPONSES, {"model": "m", "input": "Write.", "max_tokens": 1}),
    Row("responses, plainly", RESPONSES, {"model": "m", "input": "Write.", "max_output_tokens": 200}, passes=True),
    Row("messages, two limits", MESSAGES, chat(max_tokens=3000, max_output_tokens=1)),
    Row("messages, plainly", MESSAGES, chat(max_tokens=200), passes=True),
    # How many answers.
    Row("n", CHAT, chat(max_tokens=100, n=10), passes=True),
    Row("n, a string", CHAT, chat(max_tokens=100, n="40")),
    Row("n, a float", CHAT, chat(max_tokens=100, n=40.0)),
    Row("n, underscores", CHAT, chat(max_tokens=100, n="4_0")),
    Row("n, no number", CHAT, chat(max_tokens=100, n=["40"])),
    Row("n, huge", CHAT, chat(max_tokens=1, n=10**9)),
    Row("best_of", COMPLETIONS, completion(max_tokens=100, n=1, best_of=40)),
    Row("num_completions", CHAT, chat(max_tokens=100, num_completions=40)),
    Row("prompts", COMPLETIONS, completion(prompt=["Write."] * 200, max_tokens=50)),
    Row("prompts of tokens", COMPLETIONS, completion(prompt=[[1, 2], [3, 4]] * 100, max_tokens=50)),
    Row("prompts and n", COMPLETIONS, completion(prompt=["a"] * 20, n=20, max_tokens=20)),
    # Tiers and tools.
    Row("priority", CHAT, chat(max_tokens=300, service_tier="priority"), passes=True),
    Row("priority in capitals", CHAT, chat(max_tokens=300, service_tier="PRIORITY")),
    Row("fast", RESPONSES, {"model": "m", "input": "x", "max_output_tokens": 300, "service_tier": "fast"}),
    Row("a tier that nobody knows", CHAT, chat(max_tokens=300, service_tier="performance")),
    Row("a tier in a list", CHAT, chat(max_tokens=300, service_tier=["priority"])),
    Row("searches", MESSAGES, chat(max_tokens=10, tools=WEB)),
    Row("one search", MESSAGES, chat(max_tokens=10, tools=ONCE), passes=True),
    Row("searches of responses", RESPONSES, {"model": "m", "input": "x", "tools": [{"type": "web_search"}]}),
    Row("searches of chats", CHAT, chat(max_tokens=10, web_search_options={})),
    Row("a tool that nobody knows", CHAT, chat(max_tokens=10, tools=[{"type": "web_search"}, {"type": "zap"}])),
    Row("a stored conversation", RESPONSES, {**LONG, "max_output_tokens": 9, "previous_response_id": "r"}),
    # Bodies that are hard to read.
    Row("half a character", CHAT, raw('"x":"\\ud800","max_output_tokens":1')),
    Row("NaN", CHAT, raw('"x":NaN,"n":"40","max_tokens":100')),
    Row("the limit twice", CHAT, raw('"max_tokens":1,"max_tokens":3000')),
    Row("odd capitals", CHAT, chat(max_tokens=1, Max_Tokens=3000)),
    Row("declared as text", CHAT, json.dumps(chat(max_output_tokens=1)).encode(), (("content-type", "text/plain"),)),
    Row("compressed", CHAT, gzip.compress(json.dumps(chat()).encode()), (JSON_KIND, ("content-encoding", "gzip"))),
    Row("no JSON", CHAT, b"model=m&max_tokens=1"),
    # Paths.
    Row("engines", "/v1/engines/m/completions", completion(max_completion_tokens=1)),
    Row("capitals", "/V1/Chat/Completions", chat(max_output_tokens=1)),
    Row("an escape", "/v1/chat/%63ompletions", chat(max_output_tokens=1)),
    Row("a slash at the end", "/v1/completions/", completion(max_output_tokens=1)),
    Row("embeddings", "/v1/embeddings", {"model": "m", "input": ["word " * 10] * 100}, passes=True),
    Row("a batch", "/v1/batches", {"input_file_id": "f", "endpoint": "/v1/chat/completions"}),
    Row("training", "/v1/fine_tuning/jobs", {"model": "m", "training_file": "f"}),
    Row("a video", "/v1/videos", {"model": "m", "prompt": "x"}),
    Row("a run", "/v1/threads/t/runs", {"assistant_id": "a"}),
    Row("what nobody knows", "/v1/wonders", {"model": "m"}),
    # Images, sound, searches.
    Row("images", "/v1/images/generations", {"model": "m", "prompt": "x", "n": 3}, passes=True),
    Row("images, a string", "/v1/images/generations", {"model": "m", "prompt": "x", "n": "10"}),
    Row("an image in a form", "/v1/images/edits", PICTURE, (FORM,)),
    Row("speech", "/v1/audio/speech", {"model": "m", "input": "word " * 400}, passes=True),
    Row("sound", "/v1/audio/transcriptions", SOUND, (FORM,), passes=True),
    Row("documents", "/v1/rerank", {"model": "m", "query": "x", "documents": ["d"] * 450}, passes=True),
    # Clients that leave.
    Row("leaves an answer", CHAT, chat(max_tokens=1000), leaves_s=0.1, wait_s=0.4),
    Row("leaves an answer without a limit", COMPLETIONS, completion(max_tokens=3000), leaves_s=0.1, wait_s=0.4),
    Row("leaves before the first byte", CHAT, chat(max_tokens=1000, stream=True), leaves_s=0.1, wait_s=0.5),
    Row("leaves a long prompt", CHAT, chat(max_tokens=9, stream=True, x="word " * 1600), leaves_s=0.1, wait_s=0.5),
    Row("leaves a stream at once", CHAT, chat(max_tokens=1000, stream=True), leaves_after=1),
    Row("leaves a stream", CHAT, chat(max_tokens=1000, stream=True), leaves_after=30),
    Row("leaves completions", COMPLETIONS, completion(max_tokens=1000, stream=True), leaves_after=30),
    Row("leaves messages", MESSAGES, chat(max_tokens=1000, stream=True), leaves_after=30),
    Row("leaves responses", RESPONSES, {**LONG, "stream": True}, leaves_after=30),
    Row("leaves at a planned model", CHAT, {**chat(max_tokens=1000, stream=True), "model": "groq"}, leaves_after=30),
    Row("a stream without usage", CHAT, chat(max_tokens=1000, stream=True), silent=True),
    Row("messages without usage", MESSAGES, chat(max_tokens=1000, stream=True), silent=True),
    Row("a stream", CHAT, chat(max_tokens=1000, stream=True), passes=True),
    Row("base64 in a prompt", CHAT, chat(max_tokens=50, x=base64.b64encode(b"x" * 3000).decode()), passes=True),
]  # fmt: skip


Priced = tuple[World, CountingProvider]


@pytest.fixture(scope="module")
def priced() -> Iterator[Callable[[float], Priced]]:
    """A proxy and its provider, which generates so many tokens per second. A proxy learns how fast its provider is, so
    each speed has one of its own."""
    with ExitStack() as stack:

        @cache
        def of_speed(tokens_per_s: float) -> Priced:
            provider = CountingProvider(tokens_per_s=tokens_per_s)
            config = CONFIG.replace("PROVIDER", stack.enter_context(serving(provider)))
            return stack.enter_context(world_of(config, providers=())), provider

        yield of_speed


def asked(world: World, row: Row, key: str) -> int:
    """The status; 0 where the client left."""
    if not row.leaves:
        return world.call("POST", row.path, row.body, row.headers, key=key).status
    body = json.dumps(row.body).encode()
    lines = [("host", "x"), ("connection", "close"), ("authorization", f"Bearer {key}"), JSON_KIND]
    lines.append(("content-length", str(len(body))))
    head = f"POST {row.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n"
    with world.connect() as connection, suppress(TimeoutError, ConnectionError):
        connection.sendall(head.encode() + body)
        if row.leaves_after is not None:
            read_events(connection, row.leaves_after)
        else:
            connection.settimeout(row.leaves_s)
            connection.recv(1)
        connection.shutdown(socket.SHUT_RDWR)
    return 0


def read_events(connection: socket.socket, count: int) -> None:
    """Read so many events of a stream, or everything where the answer ends before."""
    received = b""
    while received.count(b"data: ") < count and (chunk := connection.recv(1 << 16)):
        received += chunk


def is_long(row: Row) -> bool:
    """Whether the row is asked for in several rounds, of clients that leave after a while."""
    return row.leaves or row.silent


@pytest.mark.parametrize(
    "row",
    sampled([pytest.param(row, id=row.name, marks=[pytest.mark.slow] if is_long(row) else []) for row in ROWS], 3),
)
def test_a_hard_budget_holds(priced: Callable[[float], Priced], row: Row) -> None:
    world, provider = priced(LEFT_TOKENS_PER_S if is_long(row) else AWAITED_TOKENS_PER_S)
    _, key = world.new_key()
    provider.bills.clear()
    provider.always = "mute" if row.silent else "plain"
    provider.wait_s = row.wait_s if row.wait_s is not None else 0.0 if row.leaves else OVERLAP_S
    statuses: list[int] = []
    for _ in range(ROUNDS if is_long(row) else 1):
        statuses += world.at_once([lambda: asked(world, row, key)] * CALLS)
        world.forget()
        provider.ended()
    error_usd = ERROR_USD + (ON_ITS_WAY_USD if row.leaves else 0.0)
    assert provider.usd <= BUDGET_USD + error_usd, (provider.usd, len(provider.bills))
    assert not any(status >= 500 for status in statuses), statuses
    assert not row.passes or 200 in statuses, statuses


def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 40
    assert len({row.name for row in ROWS}) == len(ROWS)

"""No prompt and no key is in a log, a metric, a file or an error, whatever goes wrong.

Each row is a request that fails, or an upstream that does; ``PROMPT`` stands in its text and the client's key in its
headers. Then everything that the proxy wrote or said to others is searched for them.
"""

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.examples import sampled
from tests.security.provider import Answer, Seen, event
from tests.security.world import KEYS, PROVIDER_KEYS, Reply, World, chat, world_of

CHAT = "/v1/chat/completions"
PROMPT = "the heron flies at midnight 4711"
KEY = KEYS["team-a"]
Headers = dict[str, str]

EVENTS = [("content-type", "text/event-stream")]
TEXT = json.dumps(chat("cheap", PROMPT)).encode()


def asked(**more: object) -> bytes:
    return json.dumps({**chat("cheap", PROMPT), **more}).encode()


REQUESTS: dict[str, tuple[str, bytes, Headers]] = {
    "a plain one": (CHAT, TEXT, {}),
    "cut JSON": (CHAT, TEXT[:-5], {}),
    "no JSON": (CHAT, PROMPT.encode(), {}),
    "a lone surrogate": (CHAT, TEXT.replace(b"4711", b"4711 \\ud800"), {}),
    "NaN": (CHAT, TEXT.replace(b'"max_tokens": 16', b'"max_tokens": NaN'), {}),
    "bytes that are no UTF-8": (CHAT, TEXT.replace(b"4711", b"4711 \xff"), {}),
    "UTF-16": (CHAT, json.dumps(chat("cheap", PROMPT)).encode("utf-16"), {}),
    "depth": (CHAT, asked(x=0).replace(b'"x": 0', b'"x": ' + b"[" * 5000 + b"]" * 5000), {}),
    "messages that are none": (CHAT, asked(messages={PROMPT: PROMPT}), {}),
    "a message that is none": (CHAT, asked(messages=[PROMPT, 5, None]), {}),
    "contents of every type": (CHAT, asked(messages=[{"role": PROMPT, "content": {"text": PROMPT}}]), {}),
    "tools that are none": (CHAT, asked(tools=[PROMPT]), {}),
    "our own part, wrong": (CHAT, asked(stratiform={"files": PROMPT, PROMPT: 1}), {}),
    "our own part, of another type": (CHAT, asked(stratiform=PROMPT), {}),
    "the prompt as a mode": (CHAT, TEXT, {"x-stratiform-mode": PROMPT}),
    "the prompt as a session": (CHAT, TEXT, {"x-session-id": PROMPT}),
    "the prompt as a member": (CHAT, asked(**{PROMPT: 1, "Model": PROMPT}), {}),
    "the prompt in the query": (CHAT + "?q=" + PROMPT.replace(" ", "%20"), TEXT, {}),
    "compressed": (CHAT, TEXT, {"content-encoding": "gzip"}),
    "an unknown encoding": (CHAT, TEXT, {"content-encoding": PROMPT}),
    "a form that is none": ("/v1/audio/transcriptions", TEXT, {"content-type": "multipart/form-data; boundary=x"}),
    "responses": ("/v1/responses", asked(input=PROMPT, instructions=PROMPT), {}),
    "embeddings": ("/v1/embeddings", asked(input=[PROMPT]), {}),
    "a completion": ("/v1/completions", asked(prompt=PROMPT), {}),
}


def hung_up(seen: Seen) -> Answer:
    """A stream that never ends."""

    async def body() -> AsyncIterator[bytes]:
        yield event({"choices": [{"index": 0, "delta": {"content": PROMPT}}]})
        raise ConnectionError

    return Answer(body=body(), headers=EVENTS)


def echoes(status: int, body: Any) -> Callable[[Seen], Answer]:
    return lambda seen: Answer(status, body)


FAILURES: dict[str, Callable[[Seen], Answer]] = {
    "400 that quotes the prompt": echoes(400, {"error": {"message": f"bad prompt: {PROMPT}", "code": PROMPT}}),
    "401 that quotes": echoes(401, {"error": {"message": PROMPT, "type": PROMPT, "code": PROMPT, "param": PROMPT}}),
    "429 that quotes": echoes(429, {"error": {"message": PROMPT, "code": PROMPT}}),
    "500 with text": echoes(500, f"Traceback: {PROMPT}".encode()),
    "502 with HTML": echoes(502, f"<html>{PROMPT}</html>".encode()),
    "200 that is no JSON": echoes(200, PROMPT.encode()),
    "200 of another shape": echoes(200, [PROMPT, {"choices": PROMPT, "usage": PROMPT}]),
    "a usage that quotes": echoes(200, {"choices": [], "usage": {"prompt_tokens": PROMPT, PROMPT: 1}}),
    "a finish reason that quotes": echoes(200, {"choices": [{"finish_reason": PROMPT, "message": {}}], "usage": {}}),
    "a stream that breaks": hung_up,
    "an error in the stream": lambda seen: Answer(
        body=iter([event({"error": {"message": PROMPT, "code": PROMPT}})]), headers=EVENTS
    ),
    "events that are none": lambda seen: Answer(
        body=iter([f"event: {PROMPT}\ndata: {PROMPT}\n\n".encode()]), headers=EVENTS
    ),
    "headers that quote": lambda seen: Answer(200, {}, [("x-prompt", PROMPT), ("x-request-id", PROMPT)]),
}  # fmt: skip


def written(world: World) -> str:
    """Everything that the proxy wrote, or tells whoever asks."""
    files = b"".join(path.read_bytes() for path in world.store_path.parent.glob("spend*") if path.is_file())
    return "\n".join([world.log, world.metrics(), files.decode("latin-1")])


def check_nothing_leaked(world: World) -> None:
    world.ledger("team-a")
    text = written(world)
    for key in (*KEYS.values(), *PROVIDER_KEYS.values()):
        assert key not in text
    assert "heron" not in text
    assert "Traceback" not in world.log


@pytest.mark.parametrize("name", sampled(REQUESTS, 2))
def test_a_request_leaves_neither_its_text_nor_its_key(world: World, name: str) -> None:
    path, body, headers = REQUESTS[name]
    reply = world.call("POST", path, body, headers)
    assert reply.status != 500
    check_nothing_leaked(world)
    no_provider_key(reply)


@pytest.mark.parametrize("name", sampled(FAILURES, 2))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_upstreams_failure_writes_down_no_prompt(world: World, name: str, stream: bool) -> None:
    world.providers["alpha"].script = FAILURES[name]
    reply = world.call("POST", CHAT, asked(stream=stream))
    check_nothing_leaked(world)
    no_provider_key(reply)


@pytest.mark.parametrize(
    "path", sampled(["/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/completions", "/v1/things"], 5)
)
@pytest.mark.parametrize("name", FAILURES)
def test_an_upstreams_failure_writes_down_no_prompt_on_any_path(world: World, path: str, name: str) -> None:
    world.providers["alpha"].script = FAILURES[name]
    no_provider_key(world.call("POST", path, asked(input=PROMPT, prompt=PROMPT)))
    check_nothing_leaked(world)


def no_provider_key(reply: Reply) -> None:
    """Nobody is answered with a key of the configuration."""
    told = reply.body.decode("utf-8", "replace") + str(reply.headers)
    assert not any(key in told for key in PROVIDER_KEYS.values())
    assert KEYS["master"] not in told


def test_a_client_that_resets_its_connection_leaves_nothing(world: World) -> None:
    world.providers["alpha"].script = hung_up
    body = asked(stream=True)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    for cut in (len(body), 40):
        with world.connect() as connection:
            connection.sendall(head.encode() + body[:cut])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    check_nothing_leaked(world)


NOBODY = """
model_list:
  - {model_name: cheap, litellm_params: {model: openai/m, api_base: "http://127.0.0.1:9/v1", api_key: sk-provider-x}}
stratiform: {store: "{sqlite}", log_level: debug, teams: [{name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa]}]}
"""


@pytest.mark.slow
def test_an_upstream_that_is_not_there_is_named_to_nobody() -> None:
    with world_of(NOBODY) as world:
        reply = world.call("POST", CHAT, TEXT)
        assert reply.status == 502
        told = reply.body.decode() + world.log
        assert not any(hidden in told for hidden in ("127.0.0.1:9", "sk-provider-x", "heron", KEY))


def test_the_reprs_of_what_is_held_show_no_key(world: World) -> None:
    """A repr may reach a log by anybody's hand: none of the parts shows a key in its own."""
    identity: Any = world._assembly.parts.engine._ports.admission.admit.__self__
    held = [world._assembly, identity, identity._directory, identity._directory.snapshot]
    held += list(identity._directory.snapshot.keys.values())
    models: Any = world._assembly.parts.models
    held += [level for name in ("cheap", "dear") for level in models.levels(name)]
    shown = " ".join(map(repr, held))
    assert not any(key in shown for key in (*KEYS.values(), *PROVIDER_KEYS.values()))


@pytest.mark.parametrize("key", ["team-a", "team-b"])
@pytest.mark.parametrize("member", ["user", "model"])
def test_a_key_in_the_place_of_a_name_is_not_written_down(world: World, member: str, key: str) -> None:
    sent = {**chat("cheap"), member: KEYS[key]}
    world.call("POST", CHAT, sent, key=key)
    check_nothing_leaked(world)

"""Stratiform inside a real LiteLLM proxy, between the real SDK and a provider that really caches."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.protocol.providers import ANTHROPIC
from proxy.upstream.embedded import AccountTotals, account_name
from tests.doubles import serving
from tests.e2e.provider import DONE, Seen, chunk, completion, embedded_app, new_embedded, replies, streams, usage_chunk
from tests.fidelity.checker import check
from tests.fidelity.recorded import requests_of, trace_files
from tests.gateway import KEY, Gateway, gateway, gateway_place
from tests.install.environments import Place
from tests.redis_server import BRISK, redis_server

TRACES = {path.name.removesuffix(".jsonl.xz"): path for path in trace_files()}
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")]

MOVING, APPENDING = "aider-click-architect", "opencode-click-jul-claudename"
MOST_REQUESTS = 14


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return gateway_place(tmp_path_factory.mktemp("gateway"))


@dataclass
class Recorded:
    """An app in front of another one: it keeps every body, by the key that it came with."""

    app: ASGIApp
    bodies: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        key = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        parts: list[bytes] = []

        async def heard() -> Message:
            message = await receive()
            parts.append(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body"):
                self.bodies.setdefault(key, []).append(json.loads(b"".join(parts) or b"{}"))
            return message

        await self.app(scope, heard, send)


@dataclass
class Provider:
    """A provider that caches and bills by Anthropic's rules, and speaks OpenAI's protocol."""

    url: str
    recorded: Recorded
    ledgers: dict[str, AccountTotals]

    def cost(self, key: str) -> float:
        """What the prompts of a key have cost, in plain input tokens."""
        bill = self.ledgers[account_name(key)]
        return (
            bill.plain
            + bill.read * ANTHROPIC.read
            + bill.write_5m * ANTHROPIC.write
            + bill.write_1h * ANTHROPIC.write_long
        )


@contextmanager
def caching_provider() -> Iterator[Provider]:
    upstream = new_embedded()
    recorded = Recorded(embedded_app(upstream, output_tokens=8))
    with serving(recorded) as url:
        yield Provider(f"{url}/v1", recorded, upstream.ledgers)


def listed(name: str, url: str, *, params: dict[str, Any] | None = None, **info: Any) -> dict[str, Any]:
    return {
        "model_name": name,
        "litellm_params": {"model": "openai/claude", "api_base": url, "api_key": f"sk-{name}", **(params or {})},
        "model_info": {"id": name, "cache_profile": "anthropic", **info},
    }


def client_of(server: Gateway | str) -> openai.OpenAI:
    url = server if isinstance(server, str) else f"{server.url}/v1"
    return openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=120)


def asked(client: openai.OpenAI, model: str, body: dict[str, Any], *, stream: bool) -> dict[str, str]:
    """Send a recorded request, read all of its answer, and return what the headers tell."""
    given = {
        **{n: v for n, v in body.items() if n in ("messages", "tools", "tool_choice", "temperature")},
        "max_tokens": 8,
    }
    answer = client.chat.completions.with_raw_response.create(model=model, stream=stream, **given)
    if stream:
        assert list(answer.parse())
    else:
        assert answer.parse().choices
    return {name: value for name, value in answer.headers.items() if name.startswith("x-stratiform")}


def session(name: str) -> list[dict[str, Any]]:
    return list(requests_of(TRACES[name]))[:MOST_REQUESTS]


def violations(provider: Provider, name: str) -> list[str]:
    """Where what went out differs from what LiteLLM makes of the same request without us by more than a layout may."""
    pairs = zip(provider.recorded.bodies["sk-plain"], provider.recorded.bodies[f"sk-{name}"], strict=True)
    return [str(one) for came, sent in pairs for one in check(came, sent, mode="tier", profile="anthropic")]


def test_sessions_cost_what_they_cost_stand_alone_and_say_the_same(place: Place) -> None:
    with caching_provider() as provider:
        plain = listed("plain", provider.url, stratiform=False)
        models = [plain, listed("inside", provider.url)]
        with (
            gateway(place, {"model_list": models, "stratiform": {"store": "memory"}}) as server,
            client_of(server) as client,
        ):
            sent = 0
            for name in (MOVING, APPENDING):
                for number, body in enumerate(session(name)):
                    headers = asked(client, "plain", body, stream=number % 2 == 1)
                    assert headers == {}
                    headers = asked(client, "inside", body, stream=number % 2 == 1)
                    assert headers["x-stratiform-mode"] == "tier"
                    sent += 1
            assert server.settled(sent) == sent
            assert server.total("stratiform_callback_stand_downs_total") == 0
            log = server.log.read_text()
            assert "contained a failure" not in log
        alone = {"model_list": [listed("alone", provider.url)], "stratiform": {"store": "memory"}}
        with place.serving(json.dumps(alone)) as (url, _), client_of(url) as client:
            for name in (MOVING, APPENDING):
                for number, body in enumerate(session(name)):
                    asked(client, "alone", body, stream=number % 2 == 1)
        assert violations(provider, "inside") == []
        inside, without = provider.cost("sk-inside"), provider.cost("sk-plain")
        assert inside == pytest.approx(provider.cost("sk-alone"), rel=0.01)
        assert inside < 0.95 * without


def long_chat(turns: int = 1, words: str = "") -> list[dict[str, Any]]:
    """A conversation that is long enough to be cached."""
    system = {"role": "system", "content": f"You are helpful. {words}" + "Follow the guide to the letter. " * 400}
    talk = [
        [{"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": "fine"}] for n in range(turns)
    ]
    return [system, *(message for turn in talk for message in turn)][:-1]


def is_marked(body: dict[str, Any]) -> bool:
    return "cache_control" in json.dumps(body["messages"])


@dataclass
class Moody:
    """A provider that answers by the name of the model, and keeps what it was sent."""

    seen: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)

        parts = [body]

        async def again() -> Message:
            return {"type": "http.request", "body": parts.pop()} if parts else await receive()

        request = json.loads(body or b"{}")
        earlier = self.seen.setdefault(request.get("model", ""), [])
        earlier.append(request)
        match request.get("model", ""):
            case "flaky" if len(earlier) % 2 == 1:
                reply = replies({"error": {"message": "later", "type": "server_error"}}, 500)
            case "down":
                reply = replies({"error": {"message": "down", "type": "server_error"}}, 500)
            case "picky" if is_marked(request):
                reply = replies({"error": {"message": "no markers", "type": "invalid_request_error"}}, 400)
            case "endless":
                reply = streams(chunk("one "), chunk("two "), ends=False)
            case _ if request.get("stream"):
                reply = streams(chunk("fine"), chunk(finish="stop"), usage_chunk(), DONE)
            case _:
                reply = replies(completion())
        await reply(Seen("POST", "", "", []), send, again)


def test_each_attempt_is_settled_once_whatever_becomes_of_it(place: Place) -> None:
    moody, names = Moody(), ("fine", "flaky", "down", "picky", "endless")
    with serving(moody) as url:
        models = [listed(name, f"{url}/v1", params={"model": f"openai/{name}", "max_retries": 0}) for name in names]
        config = {
            "model_list": models,
            "router_settings": {"num_retries": 1, "retry_after": 0, "fallbacks": [{"down": ["fine"]}]},
            "litellm": {"cache": True, "cache_params": {"type": "local"}},
            "stratiform": {"store": "memory"},
        }
        with gateway(place, config) as server, client_of(server) as client:

            def ask(model: str, messages: Any, *, stream: bool = False) -> int:
                try:
                    answer = client.chat.completions.create(model=model, messages=messages, stream=stream)
                    if stream:
                        assert list(answer)
                except openai.APIStatusError as error:
                    return error.status_code
                return 200

            settled = 0
            for stream in (False, True):
                # A retry: the failed attempt, and the one that was answered.
                assert ask("flaky", long_chat(1, str(stream)), stream=stream) == 200
                # A fallback: two attempts that failed, and another deployment's.
                assert ask("down", long_chat(1, str(stream)), stream=stream) == 200
                settled += 5
                assert server.settled(settled) == settled
            assert server.total("stratiform_requests_total", status="200") == 4
            assert server.total("stratiform_requests_total", status="500") == 6
            assert all(is_marked(one) for one in (*moody.seen["flaky"], *moody.seen["down"], *moody.seen["fine"]))
            # Each attempt is planned from the request as it came: the retry is what the first attempt was.
            assert moody.seen["flaky"][0] == moody.seen["flaky"][1]

            # A layout that is refused is not sent again in its session.
            refused = ask("picky", long_chat())
            assert refused in (200, 400)
            settled += len(moody.seen["picky"])
            assert [is_marked(one) for one in moody.seen["picky"]] == [True, False, False][: len(moody.seen["picky"])]
            assert ask("picky", long_chat(2)) == 200
            settled += 1
            assert not is_marked(moody.seen["picky"][-1])

            # The client leaves.
            answer = client.chat.completions.create(model="endless", messages=long_chat(), stream=True)
            next(iter(answer))
            answer.close()
            settled += 1
            assert server.settled(settled) == settled
            assert server.total("stratiform_client_disconnects_total") == 1

            # The response cache answers: nobody is called, and nothing is settled.
            called = len(moody.seen["fine"])
            for _ in range(3):
                assert ask("fine", long_chat(1, "again")) == 200
                assert ask("fine", long_chat(1, "again"), stream=True) == 200
            assert len(moody.seen["fine"]) == called + 2
            settled += 2
            assert server.settled(settled) == settled

            # What LiteLLM refuses is LiteLLM's to refuse.
            for messages in ("text", [1, None], [{"role": "user", "content": {"a": 1}}], []):
                ask("fine", messages)
            assert ask("fine", long_chat(1, "still here")) == 200
            assert server.total("stratiform_callback_stand_downs_total", reason="internal-error") == 0
            assert "contained a failure" not in server.log.read_text()
            assert "Follow the guide" not in server.log.read_text()


def test_two_workers_share_what_they_know_and_serve_on_without_their_store(place: Place, tmp_path: Path) -> None:
    samples = tmp_path / "metrics"
    samples.mkdir()
    with caching_provider() as provider, redis_server(tmp_path / "redis", *BRISK) as redis:
        models = [listed("plain", provider.url, stratiform=False), listed("inside", provider.url)]
        config = {"model_list": models, "stratiform": {"store": redis.url, "spool": str(tmp_path / "spool")}}
        with gateway(place, config, 2, PROMETHEUS_MULTIPROC_DIR=str(samples)) as server, client_of(server) as client:
            bodies = session(MOVING)
            for number, body in enumerate(bodies):
                asked(client, "plain", body, stream=number % 2 == 1)
                asked(client, "inside", body, stream=number % 2 == 1)
            assert server.settled(len(bodies)) == len(bodies)
            assert violations(provider, "inside") == []
            assert provider.cost("sk-inside") < provider.cost("sk-plain")

            redis.call("CONFIG", "SET", "maxmemory", "1")
            asked(client, "inside", bodies[-1], stream=False)
            redis.kill()
            for stream in (False, True):
                asked(client, "inside", bodies[-1], stream=stream)

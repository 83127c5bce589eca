"""Stratiform inside a real LiteLLM proxy, between the real SDK and a provider that really caches."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.core.providers import ANTHROPIC
from proxy.testing import serving
from proxy.upstream.embedded.ledger import Ledger
from proxy.upstream.embedded.upstream import account_name
from tests.e2e.provider import Scripted, chunk, completion, embedded_app, new_embedded, replies, streams
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
    ledgers: dict[str, Ledger]

    def cost(self, key: str) -> float:
        """What the prompts of a key have cost, in plain input tokens."""
        bill = self.ledgers[account_name(key)]
        return bill.plain + bill.read * ANTHROPIC.read + bill.write_5m * ANTHROPIC.write + bill.write_1h * ANTHROPIC.write_long


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
    given = {**{n: v for n, v in body.items() if n in ("messages", "tools", "tool_choice", "temperature")}, "max_tokens": 8}
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
        with gateway(place, {"model_list": models, "stratiform": {"store": "memory"}}) as server, client_of(server) as client:
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
        assert inside < 0.8 * without

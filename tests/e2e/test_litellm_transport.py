"""The real openai SDK through the proxy to a Claude behind litellm: planned, marked, streamed back, settled."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai

from proxy.app.web import Parts, create_app
from proxy.engine import Engine, Ports
from proxy.engine.exchange import ExchangeOutcome
from proxy.kit.modes import Mode
from proxy.models import Transport
from proxy.planner import TierPlanner
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services.planner_port import Planning
from proxy.upstream.litellm_ import LitellmUpstream
from tests.contract.litellm_calls import LITELLM
from tests.contract.litellm_fakes import Provider, provider
from tests.doubles import Ledger, ManualClock, ModelList, NoMetrics, OpenDoor, make_deployment, serving

pytestmark = LITELLM

RULES = "Every rule is kept. " * 400
QUESTION: list[Any] = [{"role": "system", "content": RULES}, {"role": "user", "content": "hi"}]
TOOL: Any = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
REPORTED = Usage(prompt=2098, output=7, read=1800, write_5m=200, write_1h=48)


@dataclass
class Stage:
    """A provider, the proxy before it, and a client."""

    fake: Provider
    client: openai.AsyncOpenAI
    ledger: Ledger


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with provider() as fake:
        claude = make_deployment(
            name="claude",
            model="anthropic/claude-sonnet-4-5",
            base_url=fake.base,
            api_key="sk-operator-0123",
            transport=Transport.LITELLM,
            profile=ANTHROPIC,
            mode=Mode.TIER,
        )
        ledger = Ledger()
        engine = Engine(
            Ports(
                models=ModelList({"claude": claude}),
                upstreams={Transport.LITELLM: LitellmUpstream()},
                planner=Planning(TierPlanner(bytes_over_four, [])),
                admission=OpenDoor(),
                meter=ledger,
                clock=ManualClock(1_700_000_000.0),
            )
        )
        with serving(create_app(Parts(engine, ModelList({"claude": claude}), NoMetrics()))) as base:
            async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="anything", max_retries=0) as client:
                yield Stage(fake, client, ledger)


async def test_a_completion_is_marked_answered_and_accounted() -> None:
    async with stage() as on:
        completion = await on.client.chat.completions.create(model="claude", messages=QUESTION, tools=[TOOL])
        (tool_call,) = completion.choices[0].message.tool_calls or []
        assert json.loads(tool_call.function.arguments) == {"path": "a.py"}  # type: ignore[union-attr]
        wire = on.fake.seen[0]
        assert wire.path == "/v1/messages"
        assert wire.headers["x-api-key"] == "sk-operator-0123"
        (system,) = wire.body["system"]
        assert system["text"] == RULES
        assert 1 <= json.dumps(wire.body).count("cache_control") <= 4
        assert completion.usage is not None
        assert completion.usage.prompt_tokens == REPORTED.prompt
        (exchange,) = on.ledger.wait()
        assert (exchange.answer.outcome.usage, exchange.ending) == (REPORTED, ExchangeOutcome.COMPLETED)


async def test_a_stream_is_accounted_though_the_client_asked_for_no_usage() -> None:
    async with stage() as on:
        stream = await on.client.chat.completions.create(model="claude", messages=QUESTION, stream=True)
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert all(chunk.usage is None for chunk in chunks)
        (exchange,) = on.ledger.wait()
        assert (exchange.answer.outcome.usage, exchange.ending) == (REPORTED, ExchangeOutcome.COMPLETED)

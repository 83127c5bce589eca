"""The openai SDK and an upstream that refuses a request as too large: each profile, each form, each transport."""

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest
from starlette.types import ASGIApp, Message, Receive, Send

from proxy.app.settings import Environment, load
from proxy.app.web.app import Parts, create_app
from proxy.cli.demo import running
from proxy.engine import Engine, Ports
from proxy.models.deployment import Transport
from proxy.prompts.window import Capability, CapabilityProfile, OverBudget
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.http import HttpUpstream
from proxy.upstream.litellm_ import LitellmUpstream
from tests.contract.litellm_calls import LITELLM
from tests.doubles import (
    Ledger,
    ManualClock,
    ModelList,
    NoMetrics,
    OpenDoor,
    PassthroughPlanner,
    make_deployment,
    serving,
)
from tests.e2e.provider import DONE, Reply, Scripted, Seen, chunk, completion, event, read_body, replies, streams
from tests.receiver import send_whole
from tests.unit.engine.parts import Profiled, Shrinking

pytestmark = LITELLM

EMPTY = CapabilityProfile("mine", Capability.COMPLETION, over_budget=OverBudget.EMPTY)
ERROR = replace(EMPTY, over_budget=OverBudget.ERROR)
SECRET = "the client's own words"
ASKED: list[Any] = [{"role": "user", "content": SECRET}]
OPENAI = {
    "error": {
        "message": "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}
LLAMA = {"error": {"code": 400, "message": "request (9 tokens) exceeds the available context size (4 tokens)",
                   "type": "exceed_context_size_error"}}  # fmt: skip
ANTHROPIC = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"},
}

OVER_HTTP: list[Any] = [
    pytest.param(Transport.HTTP, replies(OPENAI, 400), id="http"),
    pytest.param(Transport.HTTP, streams(event(LLAMA)), id="http, in a stream"),
]
OVER_LITELLM: list[Any] = [pytest.param(Transport.LITELLM, replies(ANTHROPIC, 400), id="litellm")]


@dataclass
class Stage:
    """The proxy before a provider, and a client before it."""

    provider: Scripted
    client: openai.OpenAI
    ledger: Ledger
    door: OpenDoor


@contextmanager
def stage(transport: Transport, reply: Reply, window: CapabilityProfile) -> Iterator[Stage]:
    provider, ledger, door = Scripted(reply), Ledger(), OpenDoor()
    with ExitStack() as stack:
        base = stack.enter_context(serving(provider))
        is_http = transport is Transport.HTTP
        deployment = make_deployment(
            name="m",
            model="m" if is_http else "anthropic/claude-sonnet-4-5",
            base_url=f"{base}/v1" if is_http else base,
            api_key="sk-operator",
            transport=transport,
        )
        models = ModelList({"m": deployment})
        upstream = HttpUpstream() if is_http else LitellmUpstream()
        clock = ManualClock(1_700_000_000.0)
        parts = models, {transport: upstream}, PassthroughPlanner(), door, ledger, clock
        engine = Engine(Ports(*parts, composer=Profiled(window), windows=Shrinking()))
        app: ASGIApp = create_app(Parts(engine, models, NoMetrics()))
        url = stack.enter_context(serving(app))
        client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0))
        yield Stage(provider, client, ledger, door)


def check_ledger(on: Stage, outcome: str) -> None:
    """One exchange, reserved once and settled once, for nothing."""
    (exchange,) = on.ledger.wait()
    assert {one.value: count for one, count in exchange.answer.context_refusals.items()} == {outcome: 1}
    assert not exchange.is_billed
    assert [(held.exchange_id, 0.0) for held in on.door.reserved] == on.door.settled
    assert len(on.provider.seen) == 1


@pytest.mark.parametrize(("transport", "reply"), [OVER_HTTP[0], *OVER_LITELLM])
def test_the_sdk_reads_an_empty_completion(transport: Transport, reply: Reply) -> None:
    with stage(transport, reply, EMPTY) as on:
        raw = on.client.chat.completions.with_raw_response.create(model="m", messages=ASKED)
        answer = raw.parse()
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("", "stop")
        assert answer.model == "m"
        assert raw.headers["x-stratiform-outcome"] == "over_budget"
        check_ledger(on, "empty")


@pytest.mark.parametrize(("transport", "reply"), [*OVER_HTTP, *OVER_LITELLM])
def test_the_sdk_reads_an_empty_stream(transport: Transport, reply: Reply) -> None:
    with stage(transport, reply, EMPTY) as on:
        asked = {"include_usage": True}
        stream = on.client.chat.completions.create(model="m", messages=ASKED, stream=True, stream_options=asked)  # type: ignore[call-overload]
        chunks = list(stream)
        assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices] == ["", None]
        assert chunks[-1].usage.total_tokens == 0
        assert stream.response.headers["x-stratiform-outcome"] == "over_budget"
        check_ledger(on, "empty")


@pytest.mark.parametrize(("transport", "reply"), [*OVER_HTTP, *OVER_LITELLM])
def test_the_sdk_raises_openais_error(transport: Transport, reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="stratiform")
    with stage(transport, reply, ERROR) as on:
        with pytest.raises(openai.BadRequestError) as caught:
            on.client.chat.completions.create(model="m", messages=ASKED, stream=transport is Transport.HTTP)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        assert caught.value.response.headers["x-stratiform-outcome"] == "over_budget"
        check_ledger(on, "error")
    assert "outcome=error" in caplog.text
    assert SECRET not in caplog.text


CONFIG = """
model_list:
  - {{model_name: m, litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: k}}}}
stratiform:
  port: 0
  store: memory
  window:
    models: {{m: mine}}
    profiles:
      mine: {{capability: chat, window_tokens: 4000, output_tokens: 100, margin_tokens: 0, over_budget: {action}}}
"""
TURNS: list[Any] = [
    {"role": "user" if number % 2 == 0 else "assistant", "content": f"turn {number}: " + "some words of it " * 20}
    for number in range(31)
]


@contextmanager
def configured(folder: Path, action: str, *given: Reply) -> Iterator[tuple[str, Scripted, openai.OpenAI]]:
    """The proxy as it is configured, before a provider."""
    provider = Scripted(*given)
    with ExitStack() as stack:
        path = folder / "config.yaml"
        path.write_text(CONFIG.format(url=stack.enter_context(serving(provider)), action=action))
        proxy = stack.enter_context(running(load(path, environment=Environment({})), bytes_over_four))
        client = stack.enter_context(openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0))
        yield proxy.url, provider, client


def refusals(url: str) -> dict[str, float]:
    """What became of refused requests of the profile, as the metrics have it."""
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(
        r'^stratiform_context_refusals_total\{outcome="(\w+)",profile="mine"\} (\S+)$', text, re.MULTILINE
    )
    return {outcome: float(count) for outcome, count in found}


def reads(most: int, fine: Reply) -> Reply:
    """A provider whose model reads so many messages."""

    async def nothing_more() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def reply(seen: Seen, send: Send, receive: Receive) -> None:
        await read_body(seen, receive)
        if len(seen.json["messages"]) <= most:
            await fine(seen, send, nothing_more)
        else:
            await send_whole(send, 400, orjson.dumps(OPENAI), [("content-type", "application/json")])

    return reply


@pytest.mark.parametrize("stream", [False, True])
def test_a_configured_retry_leaves_out_the_oldest_turns(tmp_path: Path, stream: bool) -> None:
    fine = streams(chunk("fine"), DONE) if stream else replies(completion())
    with configured(tmp_path, "retry", reads(25, fine)) as (url, provider, client):
        asked: Any = client.chat.completions.create(model="m", messages=TURNS, stream=stream)
        if stream:
            said = "".join(part.choices[0].delta.content or "" for part in asked if part.choices)
        else:
            said = asked.choices[0].message.content
        assert said == "fine"
        sent = [seen.json["messages"] for seen in provider.seen]
        assert len(sent[0]) == len(TURNS) > 25 >= len(sent[-1])
        for messages in sent:
            assert [one["content"] for one in messages] == [one["content"] for one in TURNS[-len(messages) :]]
            assert messages[0]["role"] == "user"
        assert refusals(url) == {"retried": len(sent) - 1}


@pytest.mark.parametrize("stream", [False, True])
def test_a_configured_empty_answer_is_read_by_the_sdk(tmp_path: Path, stream: bool) -> None:
    with configured(tmp_path, "empty", replies(LLAMA, 400)) as (url, provider, client):
        asked: Any = client.chat.completions.create(model="m", messages=TURNS, stream=stream)
        found = [part.choices[0].finish_reason for part in asked] if stream else [asked.choices[0].finish_reason]
        assert found[-1] == "stop"
        assert refusals(url) == {"retried": 1, "empty": 1}
        assert len(provider.seen) == 2


def test_a_configured_error_is_openais(tmp_path: Path) -> None:
    with configured(tmp_path, "error", replies(LLAMA, 400)) as (url, _, client):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=TURNS)
        assert caught.value.code == "context_length_exceeded"
        assert refusals(url) == {"retried": 1, "error": 1}

"""The openai SDK and an upstream that refuses a request as too large: each profile, each form, each transport."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import openai
import pytest
from starlette.types import ASGIApp

from proxy.clock import ManualClock
from proxy.core.window.profile import Capability, CapabilityProfile, OverBudget
from proxy.engine import Engine, Ports
from proxy.ports import Transport
from proxy.testing import Ledger, ModelList, NoMetrics, OpenDoor, PassthroughPlanner, make_deployment, serving
from proxy.upstream.http import HttpUpstream
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.web.app import Parts, create_app
from tests.contract.litellm_calls import LITELLM
from tests.e2e.provider import Reply, Scripted, event, replies, streams
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
OVER_LITELLM: list[Any] = [
    pytest.param(Transport.LITELLM, replies(ANTHROPIC, 400), id="litellm"),
]


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

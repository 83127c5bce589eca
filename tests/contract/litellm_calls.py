"""Calls of the litellm transport: deployments, requests, and what its answers hold."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.engine.exchange import Call
from proxy.engine.ports import Answer
from proxy.models import Deployment, Transport
from proxy.protocol.providers import ANTHROPIC, NONE
from proxy.upstream.litellm_ import LitellmUpstream
from tests.contract.litellm_fakes import Provider, anthropic_events, openai_events, provider

# litellm silences these two of its own when it is imported (litellm/_process_defaults.py); pytest undoes that.
LITELLM = [
    # To import litellm takes a process as long as a hundred other tests.
    pytest.mark.slow,
    pytest.mark.usefixtures("litellm_imported"),
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*attribute on the instance is deprecated:DeprecationWarning"),
]
"""The marks of a module that calls litellm."""

CLAUDE = "anthropic/claude-sonnet-4-5"
GPT = "openai/gpt-4o"
KEY = "sk-operator-0123456789"
FAMILIES = pytest.mark.parametrize("model", [CLAUDE, GPT])
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def deployment(model: str, base: str, **further: Any) -> Deployment:
    """A deployment of the model at the provider's address."""
    values = {"api_key": KEY, "timeout_s": 20.0, **further}
    base_url = base if model.startswith("anthropic/") else f"{base}/v1"
    profile = ANTHROPIC if model.startswith("anthropic/") else NONE
    return Deployment(model, model, Transport.LITELLM, profile, base_url=base_url, **values)


def call(model: str, base: str, body: dict[str, Any], path: str = "/chat/completions", **further: Any) -> Call:
    """A call of it; ``sent`` are the client's headers, the rest are fields of the deployment."""
    sent = further.pop("sent", ())
    raw = json.dumps({"model": "alias", **body}).encode()
    stream = bool(body.get("stream"))
    return Call(deployment(model, base, **further), "POST", path, sent, raw, stream, 0.0)


@asynccontextmanager
async def serving(**script: Any) -> AsyncIterator[tuple[Provider, LitellmUpstream]]:
    """A scripted provider, and the transport."""
    upstream = LitellmUpstream()
    async with provider(**script) as fake:
        try:
            yield fake, upstream
        finally:
            await upstream.aclose()


async def read(answer: Answer) -> bytes:
    """The whole answer."""
    return b"".join([chunk async for chunk in answer.chunks()])


def events(raw: bytes) -> list[dict[str, Any]]:
    """The events of a complete stream."""
    parts = raw.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def begun(model: str) -> list[str]:
    """The beginning of a stream, in the model's dialect."""
    return anthropic_events("hel", end=False) if model == CLAUDE else openai_events("hel", end=False)

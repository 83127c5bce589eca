"""The openai SDK and an upstream that refuses a request as too large: each profile, each form, each transport."""

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest
from starlette.types import Message, Receive, Send

from tests.contract.litellm_calls import LITELLM
from tests.doubles import serving
from tests.e2e.provider import DONE, Reply, Scripted, Seen, chunk, completion, event, read_body, replies, streams
from tests.receiver import send_whole
from tests.whole import whole

pytestmark = LITELLM

SECRET = "the client's own words"
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

HTTP = 'openai/m, api_base: "{url}/v1"'
PROVIDERS: list[Any] = [
    pytest.param(HTTP, replies(LLAMA, 400), id="http"),
    pytest.param(HTTP, streams(event(LLAMA)), id="http, in a stream"),
    pytest.param('anthropic/claude-sonnet-4-5, api_base: "{url}"', replies(ANTHROPIC, 400), id="litellm"),
]
CONFIG = """
model_list:
  - {{model_name: m, litellm_params: {{model: {model}, api_key: k}}}}
stratiform:
  port: 0
  store: memory
  window:
    models: {{m: mine}}
    profiles:
      mine: {{capability: chat, window_tokens: 4000, output_tokens: 100, margin_tokens: 0, over_budget: {action}}}
"""
TURNS: list[Any] = [
    {"role": "user" if number % 2 == 0 else "assistant", "content": f"turn {number}: {SECRET} " * 10}
    for number in range(31)
]


@contextmanager
def configured(
    folder: Path, action: str, reply: Reply, model: str = HTTP
) -> Iterator[tuple[str, Scripted, openai.OpenAI]]:
    """The proxy as it is configured, before a provider."""
    provider = Scripted(reply)
    with ExitStack() as stack:
        model = model.format(url=stack.enter_context(serving(provider)))
        url = stack.enter_context(whole(folder, CONFIG.format(model=model, action=action)))
        yield url, provider, stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0))


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
@pytest.mark.parametrize(("model", "reply"), PROVIDERS)
def test_a_configured_empty_answer_is_read_by_the_sdk(tmp_path: Path, model: str, reply: Reply, stream: bool) -> None:
    with configured(tmp_path, "empty", reply, model) as (url, provider, client):
        options: Any = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        asked: Any = client.chat.completions.create(model="m", messages=TURNS, **options)
        parts = list(asked) if stream else [asked]
        assert [part.choices[0].finish_reason for part in parts if part.choices][-1] == "stop"
        assert parts[-1].usage.total_tokens == 0
        assert refusals(url) == {"retried": 1, "empty": 1}
        assert len(provider.seen) == 2


@pytest.mark.parametrize(("model", "reply"), PROVIDERS)
def test_a_configured_error_is_openais(
    tmp_path: Path, model: str, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="stratiform")
    with configured(tmp_path, "error", reply, model) as (url, _, client):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=TURNS)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        assert caught.value.response.headers["x-stratiform-outcome"] == "over_budget"
        assert refusals(url) == {"retried": 1, "error": 1}
    assert "outcome=error" in caplog.text
    assert SECRET not in caplog.text

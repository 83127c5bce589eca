"""A window holds on every path that asks for a text, and for a model that counts other tokens than the proxy."""

import json
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest
from starlette.types import Receive, Send

from proxy.protocol.request.tokens import bytes_over_four
from tests.doubles import serving
from tests.e2e.provider import DONE, Reply, Scripted, Seen, completion, event, read_body, replies, streams
from tests.examples import examples
from tests.receiver import send_whole
from tests.whole import whole
from tests.windows import text_of

CONFIG = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: sk-provider}}
    model_info: {{cache_profile: none}}
  - model_name: free
    litellm_params: {{model: openai/free, api_base: "{url}/v1", api_key: sk-provider}}
    model_info: {{cache_profile: none}}
stratiform:
  store: sqlite:{folder}/state.sqlite
  teams: [{{name: red, keys: [sk-red]}}]
  window:
    models: {{m: mine}}
    allowed: [mine]
    profiles:
      mine: {{capability: completion, window_tokens: 2000, output_tokens: 100, margin_tokens: 0, over_budget: empty}}
"""
FINE = {"id": "c", "object": "text_completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "text": "fine", "logprobs": None, "finish_reason": "stop"}]}  # fmt: skip
TOO_LARGE = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}
PROMPT = "".join(f"line {number:05}\n" for number in range(1_000))


@dataclass
class World:
    """A proxy with a window, the provider behind it, and a client."""

    url: str
    provider: Scripted
    client: openai.OpenAI

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        given = {"authorization": "Bearer sk-red", **headers}
        return httpx.post(f"{self.url}{path}", json=body, headers=given, timeout=30)


@contextmanager
def world(folder: Path, *given: Reply) -> Iterator[World]:
    provider = Scripted(*(given or (replies(FINE),)))
    with (
        serving(provider) as url,
        whole(folder, CONFIG.format(url=url, folder=folder)) as proxy,
        openai.OpenAI(base_url=f"{proxy}/v1", api_key="sk-red", max_retries=0) as client,
    ):
        yield World(proxy, provider, client)


def test_a_completion_keeps_what_stands_around_the_cursor(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        before = ""
        for more in range(5):
            text = PROMPT + "x" * more
            there.client.completions.create(model="m", prompt=text, suffix=PROMPT, max_tokens=200)
            sent = there.provider.seen[-1].json
            assert text.endswith(sent["prompt"])
            assert PROMPT.startswith(sent["suffix"])
            tokens = bytes_over_four(sent["prompt"]) + bytes_over_four(sent["suffix"])
            assert 1_200 < tokens <= 1_800
            assert not before or sent["prompt"].startswith(before)
            before = sent["prompt"]
        small: Any = {"model": "m", "prompt": ["one"], "suffix": "two", "temperature": 0.5}
        there.post("/v1/completions", small)
        assert there.provider.seen[-1].json == small
        there.post("/v1/completions", {"model": "m", "prompt": [PROMPT]})
        assert bytes_over_four(there.provider.seen[-1].json["prompt"][0]) <= 1_900


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [PROMPT, "two"]},
        {"prompt": list(range(2_500))},
        {"prompt": "one", "prompt_embeds": "A" * 4_000},
        {"prompt": "one", "suffix": {"text": PROMPT}},
    ],
)
def test_a_completion_that_cannot_be_shortened_and_may_not_fit_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    with world(tmp_path) as there:
        answer = there.post("/v1/completions", {"model": "m", **body})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] in ("window_unavailable", "context_length_exceeded")
        assert there.provider.seen == []


SAME = ["", "/v1", "/openai", "/api", "/beta"]
ASKING = ["completions", "responses", "messages", "complete", "fim/completions", "chat/completions", "infill",
          "engines/m/completions", "deployments/m/chat/completions", "models/m:generateContent", "responses/compact",
          "threads/runs", "batches", "edits"]  # fmt: skip


def spelled(rng: random.Random) -> str:
    """A path that asks for a text, as a client may write it."""
    path = f"/v1{rng.choice(SAME)}/{rng.choice(ASKING)}"
    path = "".join(letter.upper() if rng.random() < 0.1 else letter for letter in path.removeprefix("/v1"))
    path = "".join(f"%{ord(letter):02x}" if rng.random() < 0.05 and letter != "/" else letter for letter in path)
    return f"/v1{path}{rng.choice(['', '', '/'])}"


def test_no_path_carries_more_than_the_window(tmp_path: Path) -> None:
    rng = random.Random(7)
    long, ways = PROMPT[:12_000], set[str]()
    with world(tmp_path) as there:
        for _ in range(examples(150)):
            body = {"model": "m", "prompt": long, "suffix": long, "input": long, "max_tokens": 100}
            body |= {"messages": [{"role": "user", "content": long}], "contents": [{"parts": [{"text": long}]}]}
            told = rng.choice(sorted(body.keys() - {"model"}))
            if rng.random() < 0.7:
                body = {name: body[name] for name in ("model", "max_tokens", told)}
            path, seen = spelled(rng), len(there.provider.seen)
            answer = there.post(path, body)
            for sent in there.provider.seen[seen:]:
                assert bytes_over_four(sent.body.decode().replace("\\n", "\n")) <= 2_000, path
                ways.add("sent")
            if len(there.provider.seen) == seen:
                assert 400 <= answer.status_code < 500, path
                ways.add(answer.json()["error"]["code"])
        assert {"sent", "window_unavailable", "context_length_exceeded"} <= ways
        # Where no window is configured, and on paths that ask for no text, nothing changes.
        assert there.post("/v1/responses", {"model": "free", "input": long}).status_code == 200
        assert there.post("/v1/embeddings", {"model": "m", "input": long}).status_code == 200
        assert (
            there.post("/v1/responses", {"model": "free", "input": "x"}, **{"x-stratiform-profile": "mine"}).json()[
                "error"
            ]["code"]
            == "window_unavailable"
        )


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_that_is_refused_all_the_same_is_tried_once_more_and_then_empty(
    tmp_path: Path, stream: bool
) -> None:
    with world(tmp_path, replies(TOO_LARGE, 400)) as there:
        found: Any = there.client.completions.create(model="m", prompt=PROMPT, stream=stream)
        choices = [part.choices[0] for part in found] if stream else found.choices
        assert ("".join(choice.text for choice in choices), choices[-1].finish_reason) == ("", "stop")
        first, second = (seen.json["prompt"] for seen in there.provider.seen)
        assert first.endswith(second)
        assert len(second) < 0.6 * len(first)


def test_a_completion_is_streamed_as_ever(tmp_path: Path) -> None:
    with world(tmp_path, streams(event({**FINE, "choices": [{"index": 0, "text": "fi"}]}), event(FINE), DONE)) as there:
        found = there.client.completions.create(model="m", prompt=PROMPT, stream=True)
        assert "".join(part.choices[0].text for part in found) == "fifine"


def counts(ratio: float, names_tokens: bool) -> Reply:
    """A provider whose model reads 2,000 tokens, the answer's 100 among them, and counts so many times the proxy's."""

    async def reply(seen: Seen, send: Send, receive: Receive) -> None:
        await read_body(seen, receive)
        tokens = math.ceil(ratio * sum(bytes_over_four(one["content"]) + 4 for one in seen.json["messages"]))
        usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
        status, body = 200, {**completion(), "usage": usage}
        if tokens + 100 > 2_000:
            message = f"This model's maximum context length is 2000 tokens. However, your messages resulted in {tokens}"
            status, body = 400, {"error": {**TOO_LARGE["error"], **({"message": message} if names_tokens else {})}}
        await send_whole(send, status, json.dumps(body).encode(), [("content-type", "application/json")])

    return reply


@pytest.mark.parametrize("names_tokens", [True, False])
def test_a_model_with_another_tokenizer_refuses_once_and_never_again_even_after_a_restart(
    tmp_path: Path, names_tokens: bool
) -> None:
    messages: list[Any] = []
    for number in range(12):
        messages += [
            {"role": "user", "content": text_of(250, f"first {number} ")},
            {"role": "assistant", "content": "."},
        ]
    refused: list[int] = []
    for start in (0, 6):
        with world(tmp_path, counts(1.4, names_tokens)) as there:
            for number in range(start, start + 6):
                messages.append({"role": "user", "content": text_of(250, f"question {number} ")})
                there.client.chat.completions.create(model="m", messages=messages)
                messages.append({"role": "assistant", "content": "fine"})
            refused.append(len(there.provider.seen) - 6)
    assert refused == [1, 0]

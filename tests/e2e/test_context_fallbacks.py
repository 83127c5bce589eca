"""LiteLLM's ``context_window_fallbacks`` and ``enable_pre_call_checks``, through the proxy as it is configured."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.doubles import serving
from tests.e2e.provider import DONE, Reply, Scripted, chunk, completion, event, replies, streams
from tests.e2e.test_fallbacks import metric
from tests.whole import settings_of, whole

CONFIG = """
model_list:
  - {{model_name: small, litellm_params: {{model: openai/small, api_base: "{small}/v1", api_key: ka}},
     model_info: {{max_input_tokens: 100}}}}
  - {{model_name: large, litellm_params: {{model: openai/large, api_base: "{large}/v1", api_key: kb}},
     model_info: {{max_input_tokens: 200}}}}
  - {{model_name: huge, litellm_params: {{model: openai/huge, api_base: "{huge}/v1", api_key: kc}}}}
router_settings: {{num_retries: 1, enable_pre_call_checks: {checks}}}
litellm_settings: {{context_window_fallbacks: [{{small: [large]}}, {{large: [huge]}}]}}
general_settings: {{master_key: sk-master}}
stratiform:
  port: 0
  store: memory
  teams:
    - {{name: free, keys: [sk-free]}}
    - {{name: listed, keys: [sk-listed], models: [small]}}
    - {{name: tight, keys: [sk-tight], budget: {{usd: 0.01}}}}
  prices:
    small: {{input_cost_per_token: 0.000001, output_cost_per_token: 0.000001}}
    large: {{input_cost_per_token: 0.000001, output_cost_per_token: 0.000001}}
    huge: {{input_cost_per_token: 0.001, output_cost_per_token: 0.001}}
"""
TOO_LONG = {"message": "prompt is too long: 213462 tokens > 200000 maximum", "type": "invalid_request_error"}
REFUSED = replies({"error": TOO_LONG}, 400)
FINE = replies(completion())
ASKED: list[Any] = [{"role": "user", "content": "hello"}]


@dataclass
class World:
    """The proxy before three providers."""

    url: str
    small: Scripted
    large: Scripted
    huge: Scripted

    def calls(self) -> tuple[int, int, int]:
        return len(self.small.seen), len(self.large.seen), len(self.huge.seen)

    def ask(self, key: str = "sk-free", messages: list[Any] = ASKED, **more: Any) -> Any:
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0) as client:
            answer = client.chat.completions.create(model="small", messages=messages, max_tokens=5, **more)
            return list(answer) if more.get("stream") else answer

    def metric(self, name: str) -> float:
        return metric(self.url, name)


@contextmanager
def world(
    folder: Path, small: Reply, large: Reply = FINE, huge: Reply = FINE, *, checks: bool = False
) -> Iterator[World]:
    with ExitStack() as stack:
        apps = {"small": Scripted(small), "large": Scripted(large), "huge": Scripted(huge)}
        urls = {name: stack.enter_context(serving(app)) for name, app in apps.items()}
        config = CONFIG.format(**urls, checks=str(checks).lower())
        assert not settings_of(folder, config).unused
        yield World(stack.enter_context(whole(folder, config)), **apps)


def words(tokens: int) -> list[Any]:
    """A message of about so many tokens."""
    return [{"role": "user", "content": "word " * tokens}]


def test_a_wider_model_answers_what_is_too_long_for_the_one_that_was_asked(tmp_path: Path) -> None:
    with world(tmp_path, REFUSED) as on:
        assert on.ask().choices[0].message.content == "fine"
        assert on.calls() == (1, 1, 0)
        assert on.large.seen[0].json["model"] == "large"
        assert on.large.seen[0].header("authorization") == "Bearer kb"
        assert on.metric('stratiform_context_refusals_total{outcome="wider_model",profile="none"}') == 1
        # The refusal costs nothing, and the answer is billed once, at the price of the model that gave it.
        cost = 'stratiform_cost_usd_total{client="unrecognised",model="large",team="free"}'
        assert on.metric(cost) == pytest.approx(11e-6)
        cost = 'stratiform_cost_usd_total{client="unrecognised",model="small",team="free"}'
        assert on.metric(cost) == 0


def test_a_stream_that_begins_with_the_refusal_comes_from_the_wider_model(tmp_path: Path) -> None:
    with world(tmp_path, streams(event({"error": TOO_LONG})), streams(chunk("here"), DONE)) as on:
        parts = on.ask(stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == "here"
        assert on.calls() == (1, 1, 0)


def test_a_key_with_a_list_reaches_no_wider_model_that_is_not_on_it(tmp_path: Path) -> None:
    with world(tmp_path, REFUSED) as on:
        with pytest.raises(openai.BadRequestError, match="prompt is too long"):
            on.ask("sk-listed")
        assert on.calls() == (1, 0, 0)


def test_a_budget_must_suffice_for_the_dearest_of_the_wider_models(tmp_path: Path) -> None:
    with world(tmp_path, FINE) as on:
        with pytest.raises(openai.RateLimitError) as caught:
            on.ask("sk-tight")
        assert caught.value.code == "insufficient_quota"
        assert on.calls() == (0, 0, 0)


def test_a_model_whose_window_is_too_small_is_not_called_where_that_is_checked(tmp_path: Path) -> None:
    with world(tmp_path, FINE, checks=True) as on:
        for tokens, calls in ((50, (1, 0, 0)), (150, (1, 1, 0)), (250, (1, 1, 1))):
            assert on.ask(messages=words(tokens)).choices[0].message.content == "fine"
            assert on.calls() == calls
        assert on.metric('stratiform_context_refusals_total{outcome="wider_model",profile="none"}') == 0


def test_a_prompt_that_no_model_takes_is_refused_before_any_call(tmp_path: Path) -> None:
    with world(tmp_path, FINE, checks=True) as on:
        with pytest.raises(openai.BadRequestError) as caught:
            on.ask("sk-listed", messages=words(250))
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        assert "word" not in str(caught.value.body)
        assert on.calls() == (0, 0, 0)


@pytest.mark.slow
def test_tools_count_as_much_as_messages(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "word " * 150, "parameters": {}}}
    with world(tmp_path, FINE, checks=True) as on:
        on.ask(tools=[tool])
        assert on.calls() == (0, 1, 0)

"""A deployment that fails, another that does not, and the SDK that notices nothing."""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.doubles import serving
from tests.e2e.provider import Scripted, completion, replies
from tests.whole import whole

CONFIG = """
model_list:
  - {{model_name: m, litellm_params: {{model: openai/a, api_base: "{a}/v1", api_key: ka, order: 1}}}}
  - {{model_name: m, litellm_params: {{model: openai/b, api_base: "{b}/v1", api_key: kb, order: 2}}}}
router_settings: {{num_retries: 1, cooldown_time: 60}}
stratiform: {{port: 0, log_level: error}}
"""
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@contextmanager
def proxy_before(folder: Path, a: Scripted, b: Scripted, config: str = CONFIG) -> Iterator[tuple[str, openai.OpenAI]]:
    """The proxy as it is configured, in front of two providers."""
    with ExitStack() as stack:
        urls = {"a": stack.enter_context(serving(a)), "b": stack.enter_context(serving(b))}
        url = stack.enter_context(whole(folder, config.format(**urls)))
        yield url, stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0))


def metric(url: str, name: str) -> float:
    """One series of a metric."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_the_next_deployment_answers_and_the_failing_one_is_left_alone(tmp_path: Path) -> None:
    a, b = Scripted(replies({"error": {"message": "down"}}, 503)), Scripted(replies(completion()))
    with proxy_before(tmp_path, a, b) as (url, client):
        for _ in range(4):
            answer = client.chat.completions.create(model="m", messages=HELLO)
            assert answer.choices[0].message.content == "fine"
        assert metric(url, 'stratiform_breaker_state{deployment="m#1"}') == 2
        assert metric(url, 'stratiform_retries_total{kind="server-error",model="m"}') == 7
    # Twice each, as a warm cache is worth a second look, until the fourth call opens the breaker: a call counts once.
    assert (len(a.seen), len(b.seen)) == (7, 4)
    assert {seen.json["model"] for seen in a.seen} == {"a"}
    assert {(seen.json["model"], seen.header("authorization")) for seen in b.seen} == {("b", "Bearer kb")}


def test_a_deployment_gets_no_more_calls_than_its_limit_and_the_next_one_gets_the_rest(tmp_path: Path) -> None:
    a, b = Scripted(replies(completion())), Scripted(replies(completion()))
    enforced = "{{optional_pre_call_checks: [enforce_model_rate_limits], "
    config = CONFIG.replace("order: 1", "order: 1, rpm: 2").replace("order: 2", "order: 2, rpm: 3")
    config = config.replace("router_settings: {{", f"router_settings: {enforced}")
    config = config.replace("log_level: error", "log_level: error, clock: header")
    with proxy_before(tmp_path, a, b, config) as (url, client):
        told = {"x-stratiform-time": "1700000040"}  # a minute begins
        for _ in range(5):
            client.chat.completions.create(model="m", messages=HELLO, extra_headers=told)
        with pytest.raises(openai.RateLimitError, match="deployment 'm#2' does not allow") as caught:
            client.chat.completions.create(model="m", messages=HELLO, extra_headers=told)
        assert caught.value.code == "rate_limit_exceeded"
        assert 1 < int(caught.value.response.headers["retry-after"]) <= 60
        # Whoever comes in the next minute is served at once.
        client.chat.completions.create(model="m", messages=HELLO, extra_headers={"x-stratiform-time": "1700000100"})
        assert metric(url, 'stratiform_retries_total{kind="rate-limited",model="m"}') == 1
    assert (len(a.seen), len(b.seen)) == (3, 3)


def test_a_short_rate_limit_is_waited_out_where_the_cache_is(tmp_path: Path) -> None:
    limited = replies({"error": {"message": "slow down"}}, 429, [("retry-after", "0.05")])
    a, b = Scripted(limited, replies(completion())), Scripted(replies(completion()))
    with proxy_before(tmp_path, a, b) as (url, client):
        client.chat.completions.create(model="m", messages=HELLO)
        assert metric(url, 'stratiform_retries_total{kind="rate-limited",model="m"}') == 1
    assert (len(a.seen), len(b.seen)) == (2, 0)

"""Live panels where another upstream with other rules takes over, and at the provider in the process."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from proxy.app.settings import Environment, load
from proxy.lab.demo.command import running
from proxy.protocol.providers import ANTHROPIC, MISTRAL, OPENAI, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from tests.doubles import serving
from tests.e2e.conftest import Start
from tests.e2e.provider import Scripted, completion, embedded_app, new_embedded, replies
from tests.e2e.test_live_panels import TODO, TREE, ask, bodies, outline

CONFIG = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/a, api_base: "{a}/v1", api_key: ka, order: 1}}
    model_info: {{cache_profile: anthropic}}
  - model_name: m
    litellm_params: {{model: openai/b, api_base: "{b}/v1", api_key: kb, order: 2}}
    model_info: {{cache_profile: openai}}
router_settings: {{num_retries: 1, cooldown_time: 60}}
stratiform: {{port: 0, log_level: error}}
"""
OK, DOWN = replies(completion()), replies({"error": {"message": "down"}}, 503)
LONG = "line of the panel\n" * 500


def say(client: openai.OpenAI, panels: list[dict[str, Any]], *texts: str) -> None:
    messages: Any = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
    section = {"session": "s", "panels": panels}
    client.chat.completions.create(model="m", messages=messages, extra_body={"stratiform": section})


@pytest.mark.slow
def test_another_deployment_gets_what_it_takes_and_the_panels_keep_their_places(tmp_path: Path) -> None:
    a, b = Scripted(OK, DOWN, DOWN, OK), Scripted(OK)
    with serving(a) as url_a, serving(b) as url_b:
        path = tmp_path / "config.yaml"
        path.write_text(CONFIG.format(a=url_a, b=url_b))
        with (
            running(load(path, environment=Environment({})), bytes_over_four) as proxy,
            openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client,
        ):
            say(client, [TODO, TREE], "q")
            say(client, [TODO | {"content": "rest"}, TREE], "q", "a", "r")
            say(client, [TODO | {"content": "rest"}, TREE], "q", "a", "r", "b", "s")
    first, second, _, third = bodies(a)
    (elsewhere,) = bodies(b)
    assert [[tool["function"]["name"] for tool in body["tools"]] for body in bodies(a)] == [["dynamic_panel"]] * 4
    assert "tools" not in elsewhere
    assert "cache_control" not in str(elsewhere)
    assert outline(second) == outline(elsewhere)
    assert outline(second)[:2] == outline(first)[:2]
    assert outline(third)[: len(outline(second))] == outline(second)


@pytest.mark.parametrize("profile", [ANTHROPIC, OPENAI, MISTRAL], ids=lambda profile: profile.name)
def test_the_embedded_provider_takes_panels_and_reads_what_has_not_changed(start: Start, profile: CacheProfile) -> None:
    proxy = start(embedded_app(new_embedded(), profile), profile=profile)
    tree, talk = TREE | {"content": LONG}, ["q"]
    shares = []
    for turn in range(4):
        todo = TODO | {"content": f"task {turn}"}
        answer = ask(proxy, {"panels": [tree, todo]}, *talk).parse()
        shares.append((answer.usage.prompt_tokens_details.cached_tokens or 0) / answer.usage.prompt_tokens)
        talk += [answer.choices[0].message.content, f"question {turn}"]
    assert shares[-1] > 0.8
    assert shares[-2] > 0.8
    assert [exchange.answer.status for exchange in proxy.ledger.wait(4)] == [200] * 4
    assert not any(exchange.planned.was_retried for exchange in proxy.ledger.wait(4))


def test_a_server_given_by_its_address_alone_gets_the_panels_that_its_profile_wants() -> None:
    provider = Scripted(replies(completion()))
    with serving(provider) as url:
        settings = load(None, f"{url}/v1", environment=Environment({}))
        ours = settings.stratiform.model_copy(update={"port": 0, "log_level": "error"})
        settings = replace(settings, stratiform=ours, upstream_profile="anthropic")
        with (
            running(settings, bytes_over_four) as proxy,
            openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client,
        ):
            say(client, [TODO, TREE], "q")
            say(client, [TODO | {"content": "rest"}, TREE], "q", "a", "r")
    first, second = bodies(provider)
    assert [tool["function"]["name"] for tool in second["tools"]] == ["dynamic_panel"]
    assert outline(second)[:2] == outline(first)[:2]
    assert outline(second)[-4:] == ["assistant todo", "tool =======", "user Current", "user r"]

"""What one team does is not to be seen by another: neither in answers, headers, lists, metrics nor the layout.

How long something takes is left out: SECURITY.md says what may be learnt from that.
"""

import json
import re
from typing import Any

import pytest

from tests.security.provider import Answer
from tests.security.world import KEYS, World, chat, world_of

CHAT = "/v1/chat/completions"
SECRET = "Project Nightjar ships on the ninth of May"
# A long prompt, of which the proxy keeps state: rules, a file that changes, a question.
RULES = "You are a careful assistant. " + "Keep every rule that was agreed upon. " * 150
CONFIG = """
model_list:
  - {model_name: claude,
     litellm_params: {model: openai/claude-sonnet-4-5, api_base: "{alpha}/v1", api_key: sk-provider},
     model_info: {transport: http, cache_profile: openrouter-anthropic}}
general_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}
stratiform:
  store: "{sqlite}"
  teams:
    - {name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa]}
    - {name: team-b, keys: [sk-bravo-team-19ce77d0aa318b42]}
"""
NOT_THE_SAME = {"x-stratiform-id", "x-request-id", "date"}


def turns(count: int, secret: str = "") -> dict[str, Any]:
    """A conversation so far."""
    messages = [{"role": "system", "content": f"{RULES}\nThe time is 10:0{count}. {secret}"}]
    for turn in range(count):
        messages += [
            {"role": "user", "content": f"Question {turn}?"},
            {"role": "assistant", "content": f"Answer {turn}."},
        ]
    return {"model": "claude", "max_tokens": 16, "messages": [*messages, {"role": "user", "content": "And now?"}]}


def seen_by_b(a_speaks: bool) -> tuple[list[bytes], list[object], list[object]]:
    """What team-b's conversation looks like to the provider and to team-b, with or without team-a having had the very
    same one before."""
    with world_of(CONFIG) as world:
        if a_speaks:
            for turn in range(4):
                assert world.call("POST", CHAT, turns(turn), {"x-session-id": "one"}).status == 200
        world.forget()
        replies = [world.call("POST", CHAT, turns(n), {"x-session-id": "one"}, key="team-b") for n in range(4)]
        bodies = [re.sub(rb'"prompt_cache_key":"[^"]*"', b"", seen.body) for seen in world.sent()]
        headers = [[h for h in one.headers if h[0] not in NOT_THE_SAME and "time" not in h[0]] for one in replies]
        return bodies, headers, [reply.json for reply in replies]


@pytest.mark.slow
def test_a_neighbours_very_same_conversation_changes_nothing() -> None:
    alone, beside = seen_by_b(False), seen_by_b(True)
    assert alone[0] == beside[0], "the layout of team-b's requests"
    assert alone[1] == beside[1], "the headers of its answers"
    assert alone[2] == beside[2]


def test_two_teams_never_share_a_routing_key() -> None:
    text = CONFIG.replace("claude-sonnet-4-5", "gpt-5.6").replace(", cache_profile: openrouter-anthropic", "")
    with world_of(text) as world:
        for key in ("team-a", "team-b"):
            for turn in range(3):
                world.call("POST", CHAT, turns(turn), {"x-session-id": "one"}, key=key)
        keys = [seen.json.get("prompt_cache_key") for seen in world.sent()]
        assert not set(keys[:3]) - {None} & set(keys[3:])


def test_no_answer_of_one_team_holds_anything_of_the_other(world: World) -> None:
    def echo(seen: Any) -> Answer:
        # A provider that answers with what it was asked: whoever asks gets his own words.
        usage = {"prompt_tokens": 5, "completion_tokens": 5}
        said = {"role": "assistant", "content": json.dumps(seen.json["messages"])}
        return Answer(
            body={"choices": [{"index": 0, "message": said}], "usage": usage}, headers=[("set-cookie", "a=b")]
        )

    for provider in world.providers.values():
        provider.script = echo

    def ask(number: int) -> tuple[int, str]:
        team = ("team-a", "team-b")[number % 2]
        reply = world.call("POST", CHAT, chat("cheap", f"{team} says {number}"), key=team)
        assert reply.header("set-cookie") is None
        return number, reply.body.decode()

    for number, answer in world.at_once([lambda n=number: ask(n) for number in range(24)]):  # type: ignore[misc]
        assert f"{('team-a', 'team-b')[number % 2]} says {number}" in answer
        assert ("team-b", "team-a")[number % 2] not in answer
    assert all(seen.header("cookie") is None for seen in world.sent())


LOOKS = [
    ("GET", "/v1/models"), ("GET", "/v1/models/dear"), ("GET", "/metrics"), ("GET", "/healthz"), ("GET", "/readyz"),
    ("GET", "/admin/spend"), ("GET", "/admin/entries"), ("GET", "/v1/usage"), ("GET", "/v1/organization/costs"),
    ("GET", "/spend/logs"), ("GET", "/key/info"), ("GET", "/global/spend"), ("GET", "/user/info"), ("GET", "/docs"),
    ("GET", "/openapi.json"), ("GET", "/config"), ("GET", "/debug/vars"), ("GET", "/.env"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), LOOKS, ids=[path for _, path in LOOKS])
def test_no_path_tells_a_team_of_anothers_prompts_keys_or_sessions(world: World, method: str, path: str) -> None:
    headers = {"x-session-id": "session-of-team-a"}
    assert world.call("POST", CHAT, chat("cheap", SECRET, user="ann-of-team-a"), headers).status == 200
    world.forget()
    told = world.call(method, path, key="team-b").body.decode("utf-8", "replace")
    for hidden in (SECRET, "Nightjar", KEYS["team-a"], "session-of-team-a", "ann-of-team-a", "sk-provider"):
        assert hidden not in told


def test_the_answers_headers_tell_of_ones_own_budget_alone(world: World) -> None:
    rich = world.call("POST", CHAT, chat("cheap"), key="team-b")
    tight = world.call("POST", CHAT, chat("cheap"), key="tight")
    assert rich.status == 200
    assert tight.status in (200, 429), "what other attacks have left of the budget"
    for reply in (rich, tight):
        told = " ".join(f"{name}={value}" for name, value in reply.headers)
        for other in ("team-a", "0.05", "sk-", "alpha", "beta", "cheap-1"):
            assert other not in told, told


def test_ones_user_and_session_names_count_in_ones_own_team_only(world: World) -> None:
    """A user's or a session's name that another team uses opens nothing: the ledger keeps them apart."""
    for key in ("team-a", "team-b"):
        assert world.call("POST", CHAT, chat("cheap", user="bob"), {"x-session-id": "s"}, key=key).status == 200
    for team in ("team-a", "team-b"):
        assert world.ledger(team)[-1].team == team
    rows = world.call("GET", "/admin/spend?by=team&by=user", key="master")
    assert rows.status in (200, 400)


def test_metrics_name_no_client_no_key_and_no_session(world: World) -> None:
    headers = {"x-session-id": "session-of-team-a", "user-agent": "agent-of-team-a"}
    for model in ("cheap", "a-model-of-team-a", KEYS["team-a"]):
        world.call("POST", CHAT, chat(model, SECRET, user="ann-of-team-a"), headers)
    told = world.metrics()
    for hidden in (*KEYS.values(), SECRET, "ann-of-team-a", "session-of-team-a", "a-model-of-team-a", "agent-of-"):
        assert hidden not in told


def test_naming_another_team_does_not_spend_its_budget(world: World) -> None:
    before = world.spent("tight")
    ways: list[dict[str, Any]] = [
        {"user": "tight"}, {"team": "tight"}, {"metadata": {"team": "tight", "user_api_key_team_id": "tight"}},
        {"organization": "tight"}, {"stratiform": {"team": "tight"}}, {"tags": ["team:tight"]},
    ]  # fmt: skip
    for more in ways:
        world.call("POST", CHAT, chat("cheap", **more))
    for headers in ({"x-litellm-team": "tight"}, {"x-team-id": "tight"}, {"x-stratiform-team": "tight"}):
        world.call("POST", CHAT, chat("cheap"), headers)
    assert world.spent("tight") == before

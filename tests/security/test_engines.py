"""Self-hosted engines behind a router: a conversation has one session key, and teams share no entry of the cache."""

import pytest

from tests.security.test_isolation import CHAT, turns
from tests.security.world import World, world_of

CONFIG = """
model_list:
  - model_name: claude
    litellm_params: {model: openai/qwen3-coder, api_base: "{alpha}/v1", api_key: sk-provider}
    model_info: {cache_profile: vllm, session_header: X-SMG-Routing-Key, cache_salt: team}
general_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}
stratiform:
  store: "{sqlite}"
  teams:
    - {name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa]}
    - {name: team-b, keys: [sk-bravo-team-19ce77d0aa318b42]}
"""


def _header(world: World) -> list[str | None]:
    return [dict(seen.headers).get("x-smg-routing-key") for seen in world.sent()]


def test_each_conversation_has_a_session_key_of_its_own_in_the_header_of_the_router() -> None:
    with world_of(CONFIG) as world:
        for session in ("one", "two"):
            for turn in range(3):
                opening = {"role": "system", "content": f"You are agent {session}. " + "Follow the rules. " * 200}
                body = turns(turn)
                body["messages"][0] = opening
                world.call("POST", CHAT, body, {"x-session-id": session}, key="team-a")
        keys = _header(world)
        assert None not in keys
        assert len(set(keys[:3])) == len(set(keys[3:])) == 1
        assert keys[0] != keys[3]


@pytest.mark.parametrize("mode", ["tier", "passthrough"])
def test_a_team_has_a_salt_of_its_own_whatever_a_client_says(mode: str) -> None:
    with world_of(CONFIG) as world:
        for key in ("team-a", "team-b"):
            for further in ({}, {"cache_salt": "of another team"}):
                reply = world.call("POST", CHAT, turns(2) | further, {"x-stratiform-mode": mode}, key=key)
                assert reply.status == 200
        salts = [seen.json["cache_salt"] for seen in world.sent()]
        assert len(set(salts[:2])) == len(set(salts[2:])) == 1
        assert salts[0] != salts[2]


def test_other_paths_are_salted_and_bodies_that_are_no_objects_are_not_touched() -> None:
    with world_of(CONFIG) as world:
        world.call("POST", "/v1/completions", {"model": "claude", "prompt": "x"}, key="team-a")
        world.call("GET", "/v1/files", key="master")
        sent = world.sent()
        assert sent[0].json["cache_salt"]
        assert all(seen.body == b"" for seen in sent[1:])

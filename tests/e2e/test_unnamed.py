"""Paths that name no model: whose deployment serves them, and what the answer says of that."""

from collections.abc import Iterator

import pytest

from proxy.app.settings import ConfigError
from tests.examples import sampled
from tests.security.world import CONFIG, KEYS, World, chat, world_of

SAYS = "x-stratiform-deployment"
OPEN = CONFIG.replace(
    f"- name: team-a\n      keys: [{KEYS['team-a']}]",
    f'- {{name: team-a, keys: [{KEYS["team-a"]}], paths: ["*"]}}\n    - {{name: made, keys: [sk-made-2c9f17d0e5b8]}}',
)
LITELLM = "  - {model_name: far, litellm_params: {model: anthropic/claude, api_key: x}}\n"


@pytest.fixture(scope="module")
def two() -> Iterator[World]:
    with world_of(OPEN) as world:
        yield world


@pytest.fixture
def world(two: World) -> World:
    two.forget()
    return two


def test_the_first_upstream_serves_and_the_answer_says_so(world: World) -> None:
    for method, path, body in (("GET", "/v1/files", None), ("POST", "/v1/moderations", {"input": "x"})):
        reply = world.call(method, path, body)
        assert (reply.status, reply.header(SAYS)) == (200, "cheap; by=first")
    assert [seen.provider for seen in world.sent()] == ["alpha", "alpha"]


def test_the_client_may_say_which(world: World) -> None:
    for method, path, body in (
        ("GET", "/v1/files", None),
        ("POST", "/v1/moderations", {"input": "x"}),
        ("POST", "/v1/unheard/of", {"x": 1}),
    ):
        reply = world.call(method, path, body, {"x-stratiform-model": "dear"})
        assert (reply.status, reply.header(SAYS)) == (200, "dear; by=header")
    assert [seen.provider for seen in world.sent()] == ["beta"] * 3
    assert all(seen.header("x-stratiform-model") is None for seen in world.sent())


def test_a_model_of_the_request_counts_for_more(world: World) -> None:
    for path in ("/v1/chat/completions", "/v1/embeddings", "/openai/deployments/cheap/chat/completions"):
        reply = world.call("POST", path, chat("cheap", input="x"), {"x-stratiform-model": "dear"})
        assert (reply.status, reply.header(SAYS)) == (200, None)
    assert {seen.provider for seen in world.sent()} == {"alpha"}


def test_a_name_that_is_not_listed_is_refused(world: World) -> None:
    reply = world.call("GET", "/v1/files", headers={"x-stratiform-model": "none"})
    assert (reply.status, reply.error_code) == (404, "model_not_found")
    assert not world.sent()


def test_objects_are_asked_for_where_they_live(world: World) -> None:
    made = world.call("POST", "/v1/responses", {"model": "dear", "input": "x"}, key="sk-made-2c9f17d0e5b8").json["id"]
    reply = world.call("GET", f"/v1/responses/{made}", None, {"x-stratiform-model": "cheap"}, "sk-made-2c9f17d0e5b8")
    assert (reply.status, reply.header(SAYS)) == (200, "dear; by=object")
    assert [seen.provider for seen in world.sent()] == ["beta", "beta"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (OPEN.replace("stratiform:\n", "stratiform:\n  default_model: dear\n"), "dear; by=configuration"),
        (OPEN.replace("{beta}", "{alpha}").replace("sk-provider-beta-f94e7a3350", "sk-provider-alpha-6b1f0c8e2d"),
         "cheap; by=configuration"),
    ],
)  # fmt: skip
def test_the_operator_may_say_which(config: str, said: str) -> None:
    with world_of(config) as world:
        reply = world.call("GET", "/v1/files")
        assert (reply.status, reply.header(SAYS)) == (200, said)


@pytest.mark.parametrize("name", sampled(["none", "far"], 2))
def test_a_default_that_cannot_serve_is_refused_at_the_start(name: str) -> None:
    config = OPEN.replace("router_settings:", f"{LITELLM}router_settings:")
    config = config.replace("stratiform:\n", f"stratiform:\n  default_model: {name}\n")
    with pytest.raises(ConfigError, match="default_model"), world_of(config):
        pass

"""The harness itself: a plain request arrives, is billed to its team, and is seen by its provider alone."""

from proxy.cli.logs import log_to_stderr
from tests.log_setup import logging_restored
from tests.security.provider import INPUT_USD, OUTPUT_USD, Answer
from tests.security.world import KEYS, PROVIDER_KEYS, World, chat


def test_a_plain_request_reaches_its_provider_and_is_billed_to_its_team(world: World) -> None:
    before = world.spent("team-a"), world.spent("team-b")
    reply = world.call("POST", "/v1/chat/completions", chat("cheap"))
    (seen,) = world.sent()
    assert (reply.status, seen.provider, seen.json["model"]) == (200, "alpha", "cheap-1")
    assert seen.header("authorization") == f"Bearer {PROVIDER_KEYS['alpha']}"
    prompt, output = world.providers["alpha"].tokens
    assert output == 16
    cost = prompt * INPUT_USD + output * OUTPUT_USD
    assert abs(world.spent("team-a") - before[0] - cost) < 1e-9
    assert world.spent("team-b") == before[1]
    assert "in_flight" in world.metrics()
    assert "chat" in world.log
    assert KEYS["team-a"] not in world.log


def test_a_command_in_the_same_process_does_not_end_what_a_world_hears(world: World) -> None:
    with logging_restored():
        log_to_stderr("error")
    world.call("POST", "/v1/chat/completions", chat("cheap"))
    world.spent("team-a")
    assert "exchange id=" in world.log


def test_scripts_errors_streams_and_raw_bytes(world: World) -> None:
    world.providers["beta"].script = lambda seen: Answer(418, {"error": {"code": "teapot"}})
    assert world.call("POST", "/v1/chat/completions", chat("dear"), key="team-b").error_code == "teapot"
    streamed = world.call("POST", "/v1/chat/completions", chat("cheap", stream=True))
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    assert world.raw(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert world.call("GET", "/v1/models", key=None).error_code == "invalid_api_key"

"""No field, header, path or URL of a client chooses the address that the proxy talks to.

``canary`` is a server that no configuration names: whatever a row tries, it hears nothing, and the provider's key goes
to the provider alone.
"""

import json
from collections.abc import Iterator

import pytest

from tests.contract.litellm_calls import LITELLM
from tests.security.provider import Answer
from tests.security.world import CONFIG, KEYS, PROVIDER_KEYS, Reply, World, chat, world_of

pytestmark = LITELLM

CHAT = "/v1/chat/completions"
SERVERS = ("alpha", "beta", "canary")
AT_LITELLM = """
model_list:
  - {model_name: cheap, litellm_params: {model: openai/cheap-1, api_base: "{alpha}/v1", api_key: sk-provider-alpha-6b1f0c8e2d},
     model_info: {transport: litellm}}
  - {model_name: claude, litellm_params: {model: anthropic/claude-3-5-haiku-20241022, api_base: "{beta}", api_key: sk-provider-beta-f94e7a3350},
     model_info: {transport: litellm}}
  - {model_name: over-aiohttp, litellm_params: {model: aiohttp_openai/cheap-1, api_base: "{alpha}/v1/chat/completions", api_key: sk-provider-alpha-6b1f0c8e2d},
     model_info: {transport: litellm}}
router_settings: {num_retries: 0, disable_cooldowns: true}
stratiform:
  port: 0
  store: "{sqlite}"
  limits: {drain_s: 2}
  teams: [{name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa]}]
"""  # noqa: E501


@pytest.fixture(scope="module")
def begun() -> Iterator[World]:
    with world_of(CONFIG, providers=SERVERS) as world:
        yield world


@pytest.fixture
def world(begun: World) -> World:
    begun.forget()
    return begun


def canary(world: World) -> str:
    """Where the canary listens."""
    return world.urls["canary"]


def check_nobody_was_led_astray(world: World, reply: Reply) -> None:
    assert world.sent("canary") == []
    assert PROVIDER_KEYS["alpha"] not in reply.body.decode("utf-8", "replace")
    for seen in world.sent():
        # The key of one provider is not for the other.
        other = {"alpha": "beta", "beta": "alpha"}[seen.provider]
        assert PROVIDER_KEYS[other] not in seen.text


FIELDS: dict[str, dict[str, object]] = {
    "api_base": {"api_base": "URL/v1"},
    "base_url": {"base_url": "URL/v1"},
    "litellm_params": {"litellm_params": {"model": "openai/x", "api_base": "URL/v1"}},
    "litellm_params as a text": {"litellm_params": '{"api_base": "URL/v1"}'},
    "extra_body": {"extra_body": {"api_base": "URL/v1"}},
    "extra_headers with a host": {"extra_headers": {"host": "HOST"}},
    "fallbacks with a base": {"fallbacks": [{"model": "openai/x", "api_base": "URL/v1"}]},
    "context window fallbacks": {"context_window_fallback_dict": {"cheap": "x"}, "model_list": [{"api_base": "URL"}]},
    "a deployment of its own": {"deployment_url": "URL", "azure_endpoint": "URL", "endpoint": "URL", "proxy": "URL"},
    "callbacks": {"success_callback": ["URL"], "callbacks": ["URL"], "webhook": "URL", "callback_url": "URL"},
    "metadata": {"metadata": {"api_base": "URL", "model_info": {"base_url": "URL"}, "hidden_params": "URL"}},
    "our own part": {"stratiform": {"upstream": "URL", "api_base": "URL"}},
    "mock response": {"mock_response": "x", "mock_testing_fallbacks": True},
    "vertex and bedrock places": {"vertex_location": "URL", "aws_bedrock_runtime_endpoint": "URL"},
    "a model that is a URL": {"model": "URL/v1"},
    "a provider in the model's name": {"model": "openai/cheap@URL"},
    "a path in the model's name": {"model": "../../canary"},
    "an image from the network": {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "URL/i.png"}}]}]
    },
    "a file from the network": {
        "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "URL/f.pdf"}}]}]
    },
    "an MCP server": {"tools": [{"type": "mcp", "server_url": "URL/mcp", "server_label": "x"}]},
}  # fmt: skip


def fields(row: dict[str, object], url: str) -> dict[str, object]:
    """The row with the canary's address."""
    text = json.dumps(row).replace("URL", url).replace("HOST", url.removeprefix("http://"))
    return dict(json.loads(text))


@pytest.mark.parametrize("row", FIELDS.values(), ids=FIELDS)
def test_no_field_of_a_body_chooses_the_address(world: World, row: dict[str, object]) -> None:
    reply = world.call("POST", CHAT, {**chat(), **fields(row, canary(world))})
    assert reply.status in (200, 400, 404)
    check_nobody_was_led_astray(world, reply)


HEADERS = {
    "host": {"host": "HOST"},
    "forwarded host": {"x-forwarded-host": "HOST", "x-forwarded-proto": "http", "forwarded": "host=HOST"},
    "original URL": {"x-original-url": "URL/v1/x", "x-rewrite-url": "URL/v1/x"},
    "a base of the request's own": {"x-api-base": "URL", "x-base-url": "URL", "x-stratiform-upstream": "URL"},
    "litellm's": {"x-litellm-api-base": "URL", "x-litellm-model": "openai/x", "x-litellm-tags": "x"},
    "gateways'": {"x-portkey-custom-host": "URL", "helicone-target-url": "URL", "helicone-openai-api-base": "URL"},
    "Azure's": {"openai-organization": "URL", "x-ms-endpoint": "URL"},
    "a location": {"location": "URL", "content-location": "URL", "referer": "URL", "origin": "URL"},
}


@pytest.mark.parametrize("row", HEADERS.values(), ids=HEADERS)
def test_no_header_chooses_the_address(world: World, row: dict[str, str]) -> None:
    reply = world.call("POST", CHAT, chat(), {k: str(v) for k, v in fields(dict(row), canary(world)).items()})
    check_nobody_was_led_astray(world, reply)
    for seen in world.sent():
        assert seen.header("host") == world.urls["alpha"].removeprefix("http://")


@pytest.mark.parametrize(
    "said", ["URL", "  https://evil.example/v1", '{"custom_host": "URL"}', '["HTTP://evil.example"]']
)
@pytest.mark.parametrize("name", ["x-portkey-custom-host", "Helicone-Target-Url", "x_portkey_config", "x-nobody-knows"])
def test_no_gateway_behind_is_told_where_to_send_the_operators_key(world: World, name: str, said: str) -> None:
    """Gateways read from headers which server is asked: https://portkey.ai/docs/api-reference/inference-api/headers,
    https://docs.helicone.ai/getting-started/integration-method/gateway."""
    told = [(name, said.replace("URL", canary(world))), ("http-referer", canary(world)), ("x-title", "URL")]
    assert world.call("POST", CHAT, chat(), told).status == 200
    (seen,) = world.sent()
    found = {key: value for key, value in seen.headers if "http://" in value.lower() or "https://" in value.lower()}
    assert found == {"http-referer": canary(world)}
    assert seen.header("x-title") == "URL"


PATHS = {
    "a user before the host": "/v1@HOST/files",
    "a user behind an encoded slash": "/v1%2F@HOST/files",
    "a user behind the slash": "/v1/@HOST/files",
    "two slashes": "/v1//HOST/files",
    "two slashes and a user": "/v1//x@HOST/files",
    "a URL behind the version": "/v1/URL/files",
    "an encoded URL": "/v1/http%3A%2F%2FHOST/files",
    "a port": "/v1:80@HOST/",
    "an encoded port": "/v1%3a80@HOST/files",
    "a fragment": "/v1#@HOST/files",
    "an encoded fragment": "/v1%23@HOST/files",
    "an encoded question mark": "/v1%3f@HOST/files",
    "a backslash": "/v1\\@HOST/files",
    "an encoded backslash": "/v1%5C@HOST/files",
    "dot segments": "/v1/../../HOST/files",
    "encoded dot segments": "/v1/%2e%2e/%2e%2e/files",
    "twice encoded dot segments": "/v1/%252e%252e/files",
    "dots behind a semicolon": "/v1/..;/files",
    "an encoded line end": "/v1/files%0d%0aHost:%20HOST",
    "an encoded tab and user": "/v1/%09@HOST/files",
    "absolute form": "URL/v1/files",
    "absolute form with a user": "http://x@HOST/v1/files",
    "a query with a URL": "/v1/files?url=URL&api_base=URL&target=URL",
    "a query that begins at once": "/v1/?@HOST/",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_path_chooses_the_address(world: World, method: str, path: str) -> None:
    url = canary(world)
    path = path.replace("URL", url).replace("HOST", url.removeprefix("http://"))
    reply = world.call(method, path, chat() if method == "POST" else None)
    check_nobody_was_led_astray(world, reply)
    for seen in world.sent():
        assert seen.path.startswith("/v1/")
        assert seen.header("host") == world.urls[seen.provider].removeprefix("http://")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300, 201])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_is_passed_on_and_not_followed(world: World, method: str, status: int) -> None:
    url = canary(world)
    headers = [("location", f"{url}/v1/stolen"), ("refresh", f"0; url={url}"), ("link", f"<{url}>; rel=canonical")]
    world.providers["alpha"].script = lambda seen: Answer(status, {}, headers)
    path = "/v1/embeddings" if method == "POST" else "/v1/things"
    reply = world.call(method, path, {"model": "cheap", "input": "x"} if method == "POST" else None)
    assert world.sent("canary") == []
    assert reply.status in (status, 403, 404, 502)


@pytest.fixture(scope="module")
def behind_litellm(litellm_imported: None) -> Iterator[World]:
    with world_of(AT_LITELLM, providers=SERVERS) as world:
        yield world


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("model", ["cheap", "claude"])
@pytest.mark.parametrize("stream", [False, True])
def test_litellm_follows_no_redirect(behind_litellm: World, model: str, status: int, stream: bool) -> None:
    """The prompt, and a key in a header of the provider's own, would go to the other host."""
    world = behind_litellm
    world.forget()
    for provider in ("alpha", "beta"):
        world.providers[provider].script = lambda _: Answer(status, {}, [("location", f"{canary(world)}/v1/stolen")])
    reply = world.call("POST", CHAT, chat(model, stream=stream))
    assert world.sent("canary") == []
    assert len(world.sent()) == 1
    assert reply.status == status
    assert reply.header("location") is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_litellm_follows_no_redirect_over_aiohttp(behind_litellm: World, status: int) -> None:
    """For these models, litellm calls aiohttp itself, and reads any answer below 400 as a completion."""
    world = behind_litellm
    world.forget()
    world.providers["alpha"].script = lambda _: Answer(status, {}, [("location", f"{canary(world)}/v1/stolen")])
    reply = world.call("POST", CHAT, chat("over-aiohttp"))
    assert world.sent("canary") == []
    assert len(world.sent()) == 1
    assert reply.status >= 400


@pytest.mark.parametrize("row", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("model", ["cheap", "claude"])
def test_no_field_becomes_a_setting_of_litellm(behind_litellm: World, model: str, row: dict[str, object]) -> None:
    world = behind_litellm
    world.forget()
    reply = world.call("POST", CHAT, {**chat(model), **fields(row, canary(world))})
    assert reply.status != 500
    assert world.sent("canary") == []
    answer = reply.body.decode()
    for name, key in PROVIDER_KEYS.items():
        assert key not in answer
        assert all(seen.provider == name for seen in world.sent() if key in seen.text)
    assert all(KEYS["team-a"] not in seen.text for seen in world.sent())


@pytest.mark.parametrize(
    "name", ["azure_endpoint", "aws_bedrock_runtime_endpoint", "proxy_url", "x_credentials", "api_base"]
)
def test_a_name_that_stands_for_a_place_or_a_key_is_refused_where_litellm_could_obey_it(
    behind_litellm: World, name: str
) -> None:
    behind_litellm.forget()
    reply = behind_litellm.call("POST", CHAT, chat("claude", **{name: canary(behind_litellm)}))
    assert (reply.status, reply.error_code) == (400, "unknown_parameter")
    assert behind_litellm.sent() == []

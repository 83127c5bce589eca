"""Azure's addresses with the real ``AzureOpenAI`` client, and deployments that are called as Azure's are."""

import gzip
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from proxy.protocol.providers import ANTHROPIC
from tests.e2e.conftest import Start
from tests.e2e.provider import embedded_app, new_embedded
from tests.security.world import KEYS, MODELS, World, chat, world_of

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
VERSION = "2024-10-21"
CONFIG = (
    MODELS.replace(
        "router_settings:",
        """  - model_name: own
    litellm_params:
      {model: azure/gpt-own, api_base: "{beta}", api_key: sk-provider-beta-f94e7a3350, api_version: 2024-06-01}
    model_info: {transport: http}
router_settings:""",
    )
    + f"""
general_settings: {{master_key: {KEYS["master"]}}}
stratiform:
  port: 0
  store: "{{sqlite}}"
  teams:
    - {{name: team-a, keys: [{KEYS["team-a"]}]}}
    - {{name: listed, keys: [{KEYS["listed"]}], models: [cheap]}}
    - {{name: tight, keys: [{KEYS["tight"]}], budget: {{usd: 0.05}}}}
  prices:
    cheap-1: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
    dear-1: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
"""
)


@pytest.fixture(scope="module")
def azure() -> Iterator[World]:
    with world_of(CONFIG) as world:
        yield world


@pytest.fixture
def world(azure: World) -> World:
    azure.forget()
    return azure


def client_of(world: World, key: str = "team-a", **options: Any) -> openai.AzureOpenAI:
    return openai.AzureOpenAI(
        azure_endpoint=world.url, api_key=KEYS[key], api_version=VERSION, max_retries=0, **options
    )


def test_a_chat_is_one_of_openais(world: World) -> None:
    with client_of(world) as client:
        answer = client.chat.completions.with_raw_response.create(model="cheap", messages=HELLO)
    (seen,) = world.sent()
    assert (seen.provider, seen.path, seen.query) == ("alpha", "/v1/chat/completions", "")
    assert seen.json == {"model": "cheap-1", "messages": HELLO}
    assert seen.header("authorization") == "Bearer sk-provider-alpha-6b1f0c8e2d"
    assert seen.header("api-key") is None
    assert answer.parse().choices[0].message.content
    assert answer.headers["x-stratiform-mode"] == "tier"


def test_a_stream(world: World) -> None:
    with client_of(world) as client, client.chat.completions.create(model="dear", messages=HELLO, stream=True) as parts:
        assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert [(seen.provider, seen.json["stream"]) for seen in world.sent()] == [("beta", True)]


def test_the_name_in_the_path_wins(world: World) -> None:
    with client_of(world, azure_deployment="cheap") as client:
        client.chat.completions.create(model="dear", messages=HELLO)
    path = "/openai/deployments/cheap/chat/completions"
    for body in (chat("dear"), {"messages": HELLO}, b'{"model":"dear","model":"dear","messages":[],"x":NaN}'):
        assert world.call("POST", path, body).status == 200
    assert [(seen.provider, seen.text.count("dear")) for seen in world.sent()] == [("alpha", 0)] * 4
    assert [seen.json.get("model") for seen in world.sent()[:3]] == ["cheap-1"] * 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": "x"}), ("completions", {"prompt": "x"}), ("responses", {"input": "x"}),
        ("images/generations", {"prompt": "x"}), ("audio/speech", {"input": "x", "voice": "v"}),
    ],
)  # fmt: skip
def test_other_paths_of_a_deployment(world: World, path: str, body: dict[str, object]) -> None:
    reply = world.call("POST", f"/openai/deployments/cheap/{path}?api-version={VERSION}&x=1", {**body, "model": "dear"})
    assert reply.status == 200
    (seen,) = world.sent()
    assert (seen.provider, seen.path, seen.query) == ("alpha", f"/v1/{path}", "x=1")
    assert seen.json == {**body, "model": "cheap-1"}


@pytest.mark.slow
def test_paths_that_name_no_deployment(world: World) -> None:
    with client_of(world) as client:
        client.responses.create(model="dear", input="x")
        names = [model.id for model in client.models.list()]
        assert client.models.retrieve("cheap").id == "cheap"
    assert names == ["cheap", "dear", "own"]
    assert [(seen.provider, seen.path) for seen in world.sent()] == [("beta", "/v1/responses")]
    openai.OpenAI(base_url=f"{world.url}/openai/v1", api_key=KEYS["team-a"]).chat.completions.create(
        model="cheap", messages=HELLO
    )
    assert world.sent("alpha")[0].path == "/v1/chat/completions"


def test_lists_of_models_and_budgets_hold_by_the_name_in_the_path(world: World) -> None:
    with client_of(world, "listed") as client:
        client.chat.completions.create(model="cheap", messages=HELLO)
        with pytest.raises(openai.PermissionDeniedError) as caught:
            client.chat.completions.create(model="dear", messages=HELLO)
        assert caught.value.code == "model_not_allowed"
        with pytest.raises(openai.PermissionDeniedError):
            client.embeddings.create(model="dear", input="x")
    reply = world.call("POST", "/openai/deployments/dear/chat/completions", chat("cheap"), key="listed")
    assert reply.status == 403
    assert [seen.provider for seen in world.sent()] == ["alpha"]
    before = world.spent("tight")
    with client_of(world, "tight") as client:
        client.chat.completions.create(model="cheap", messages=HELLO, max_tokens=16)
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="cheap", messages=HELLO, max_tokens=100_000)
    assert world.spent("tight") > before


def test_what_is_refused_says_why(world: World) -> None:
    front = "/openai/deployments"
    for path, status, code in (
        (f"{front}/none/chat/completions", 404, "model_not_found"),
        (f"{front}/cheap/extensions/chat/completions", 404, "model_not_found"),
        (f"{front}/cheap/else", 404, "not_found"),
        (f"{front}/cheap/../dear/chat/completions", 404, "invalid_path"),
        (f"{front}/cheap%2F..%2Fdear/chat/completions", 404, "invalid_path"),
    ):
        reply = world.call("POST", path, chat())
        assert (reply.status, reply.error_code) == (status, code), path
    packed = gzip.compress(b'{"model":"dear","messages":[]}')
    reply = world.call("POST", f"{front}/cheap/chat/completions", packed, {"content-encoding": "gzip"})
    assert reply.status == 400
    for model, status in (("dear", 400), ("cheap", 200)):
        part = b'--b\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\nx\r\n'
        form = part.replace(b"x\r\n", model.encode() + b"\r\n") % (b"model", b"") + part % (b"file", b'; filename="f"')
        kind = {"content-type": "multipart/form-data; boundary=b"}
        reply = world.call("POST", f"{front}/cheap/audio/transcriptions", form + b"--b--\r\n", kind)
        assert (reply.status, reply.error_code) == (status, None if status == 200 else "model_mismatch")
    assert [seen.path for seen in world.sent()] == ["/v1/audio/transcriptions"]


def test_a_deployment_that_is_azures_is_called_at_its_own_path(world: World) -> None:
    with client_of(world) as client:
        client.chat.completions.create(model="own", messages=HELLO)
        client.embeddings.create(model="own", input="x", encoding_format="float")
    openai.OpenAI(base_url=f"{world.url}/v1", api_key=KEYS["team-a"]).chat.completions.create(
        model="own", messages=HELLO
    )
    front = "/openai/deployments/gpt-own"
    assert [seen.path for seen in world.sent()] == [
        f"{front}/chat/completions", f"{front}/embeddings", f"{front}/chat/completions",
    ]  # fmt: skip
    for seen in world.sent():
        assert (seen.provider, seen.query) == ("beta", "api-version=2024-06-01")
        assert (seen.header("api-key"), seen.header("authorization")) == ("sk-provider-beta-f94e7a3350", None)
        assert seen.json["model"] == "gpt-own"


def test_an_azure_chat_is_planned_like_any_other_chat(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()), profile=ANTHROPIC)
    system = "You answer in one word. " * 400
    with openai.AzureOpenAI(azure_endpoint=proxy.url, api_key="k", api_version=VERSION, max_retries=0) as client:
        for turn in range(2):
            client.chat.completions.create(
                model="m",
                messages=[{"role": "system", "content": system}, *HELLO * (2 * turn + 1)],
                tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
            )
    first, second = proxy.ledger.wait(2)
    assert first.planned.reason == second.planned.reason == "marked"
    assert second.answer.outcome.usage is not None
    assert second.answer.outcome.usage.read > 1000

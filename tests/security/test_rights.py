"""Lists of models and budgets hold for every way of asking for a model.

Each row is sent by a key with a list, by one under a hard budget, and by one that nothing restricts. What matters is
what the provider saw: nothing at all, or a request that names no other model than the one that is allowed.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.examples import sampled
from tests.security.provider import Answer
from tests.security.world import KEYS, World, world_of

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}
FORM = {"content-type": "multipart/form-data; boundary=b"}
FREE, LISTED, BUDGET = KEYS["team-a"], KEYS["listed"], KEYS["tight"]
_ENTRY = (
    '  - {{model_name: "{0}", litellm_params: {{model: "openai/{1}", api_base: "{{alpha}}/v1", api_key: sk-provider}}, '
    "model_info: {{transport: http}}}}\n"
)
_MODELS = [
    ("cheap", "cheap"), ("small", "small"), ("dear", "dear"), ("mini", "tiny-1"), ("gpt-big", "tiny-1"), ("x-*", "x-*"),
]  # fmt: skip
# How servers call what decides which of their models answers: Azure and LiteLLM, OpenAI's first API, servers of
# adapters (TGI, LoRAX), TensorZero, Mistral's agents, gateways.
_CHOICES = (
    "engine", "engines", "engineId", "deployment", "deployment_id", "deploymentName", "Deployment-ID", "adapter_id",
    "adapter", "lora", "llm", "llm_name", "variant_name", "tensorzero::variant_name",
)  # fmt: skip
_ODD_NAMES = (
    "x-*", "x-1 ", "x-1\x00", "x-1\n", "x-a/../dear", "x-1?y", "x-1#y", "x-1%2e", "x-\u200b1", "x-1&b=c",
)  # fmt: skip
CONFIG = (
    "model_list:\n"
    + "".join(_ENTRY.format(name, model) for name, model in _MODELS)
    + _ENTRY.replace("sk-provider", "sk-of-another-account").format("twin", "twin")
    + f"""
router_settings:
  num_retries: 0
  model_group_alias: {{nick: cheap, other: dear}}
  fallbacks: [{{cheap: [dear]}}]
general_settings: {{master_key: {KEYS["master"]}}}
stratiform:
  port: 0
  store: "{{sqlite}}"
  teams:
    - {{name: team-a, keys: [{FREE}], paths: ["*"]}}
    - {{name: listed, keys: [{LISTED}], models: [cheap, small, gpt-big, twin, "x-*"], paths: ["*"]}}
    - {{name: all, keys: [sk-everything-5b1c9e3d77], models: ["*"], paths: ["*"]}}
    - {{name: tight, keys: [{BUDGET}], budget: {{usd: 100}}, paths: ["*"]}}
  prices:
    cheap: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
    small: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
    dear: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
    twin: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
    tiny-1: {{input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}}
"""
)  # fmt: skip


@pytest.fixture(scope="module")
def rights() -> Iterator[World]:
    with world_of(CONFIG, providers=("alpha",)) as world:
        yield world


@dataclass(frozen=True)
class Row:
    """A request, and who may send it. ``budget`` is None where that hangs on what is known of the path's price."""

    name: str
    body: Any = None
    path: str = CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    listed: bool | None = False
    budget: bool | None = False
    free: bool = True
    as_sent: bool = True
    """An unrestricted client's bytes reach the provider as they were."""


def chat(**more: object) -> dict[str, object]:
    return {"model": "cheap", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, **more}


def raw(text: str) -> bytes:
    """A chat body with ``text`` for further members."""
    return b'{"model":"cheap",' + text.encode() + b',"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}'


def part(name: str, value: str, more: str = "") -> bytes:
    return f'--b\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'.encode()


SOUND = part("file", "sound", '; filename="a.wav"') + b"--b--\r\n"
PROMPT = {"prompt": "hi", "max_tokens": 5}
GEMINI = {"contents": [{"parts": [{"text": "hi"}]}]}

ROWS = [
    # what is allowed
    Row("a choice of the deployment beside the model", chat(), headers={**JSON, "x-stratiform-model": "dear"},
        listed=True, budget=True),
    Row("a choice of the deployment for a path without a model", None, "/v1/files",
        {"x-stratiform-model": "cheap"}, "GET", budget=True),
    Row("a choice of the deployment for the upstream's list", None, "/v1/models/none/at/all",
        {"x-stratiform-model": "dear"}, "GET", free=False),
    Row("a choice of the deployment for moderation", {"input": "x"}, "/v1/moderations",
        {**JSON, "x-stratiform-model": "cheap"}, budget=True),
    Row("a choice of the deployment in the place of a model", {"input": "x"}, "/v1/embeddings",
        {**JSON, "x-stratiform-model": "cheap"}),
    Row("Azure's path", chat(), "/openai/deployments/cheap/chat/completions", listed=True, budget=True),
    Row("Azure's path without a model in the body", {"input": "x"}, "/openai/deployments/cheap/embeddings",
        listed=True, budget=True, as_sent=False),
    Row("Azure's path with another model in the body", chat(model="dear"),
        "/openai/deployments/cheap/chat/completions", listed=True, budget=True, as_sent=False),
    Row("Azure's path with two models in the body", raw('"model":"dear"'),
        "/openai/deployments/cheap/chat/completions", listed=True, budget=True, as_sent=False),
    Row("Azure's path to another model", chat(), "/openai/deployments/dear/chat/completions", budget=True,
        as_sent=False),
    Row("Azure's path with a stand-in", chat(models=["dear"]), "/openai/deployments/cheap/chat/completions",
        budget=True),
    Row("a form with another model than Azure's path", part("model", "dear") + SOUND,
        "/openai/deployments/cheap/audio/transcriptions", FORM, free=False),
    Row("Azure's path without a deployment", {"model": "dear", "input": "x"}, "/openai/responses", budget=True),
    Row("a chat", chat(), listed=True, budget=True),
    Row("a chat that is not taken apart", raw('"x":NaN'), listed=True, budget=True),
    Row("a chat with half a character", raw('"x":"\\ud800"'), listed=True, budget=True),
    Row("an alias", chat(model="nick"), listed=True, budget=True, as_sent=False),
    Row("a completion", {"model": "cheap", **PROMPT}, "/v1/completions", listed=True, budget=True),
    Row("embeddings", {"model": "cheap", "input": "x"}, "/v1/embeddings", listed=True, budget=True),
    Row("a function with a parameter 'model'", chat(tools=[{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": {"model": {"enum": ["dear"]}}}}}]),
        listed=True, budget=True),
    Row("a tool of Anthropic's with a parameter 'model'", chat(tools=[{"name": "f", "input_schema": {
        "type": "object", "properties": {"model": {"enum": ["dear"]}}}}]), "/v1/messages", listed=True, budget=True),
    Row("a group of functions with a parameter 'model'", chat(tools=[{"type": "namespace", "name": "agents", "tools": [
        {"type": "function", "name": "f", "parameters": {"properties": {"model": {"enum": ["dear"]}}}}]}]),
        "/v1/responses", listed=True, budget=True),
    Row("a group of tools with a model of its own", chat(tools=[{"type": "namespace", "name": "agents", "tools": [
        {"type": "x", "model": "dear"}]}]), "/v1/responses"),
    Row("metadata with a model", chat(metadata={"model": "dear"}), listed=True, budget=True),
    Row("a schema with a model", chat(response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"properties": {"model": {"type": "string"}}}}}), listed=True, budget=True),
    Row("a plugin without a model", chat(plugins=[{"id": "web"}]), listed=True, budget=True),
    Row("the provider's own choice of servers", chat(provider={"order": ["x"], "allow_fallbacks": False}),
        listed=True, budget=True),
    Row("text/plain that is JSON", json.dumps(chat()).encode(), "/v1/completions", TEXT, listed=True, budget=True),
    Row("stand-ins that are allowed", chat(models=["cheap", "small"], route="fallback"), listed=True, budget=True),
    Row("a query that agrees", chat(), CHAT + "?model=cheap", listed=True, budget=True),
    Row("a query without rights", chat(), CHAT + "?api-version=2024-10-21&beta=true", listed=True, budget=True),
    Row("an engine", PROMPT, "/v1/engines/cheap/completions", listed=True, budget=True),
    Row("a deployment", chat(), "/v1/openai/deployments/cheap/chat/completions", listed=True, budget=True),
    Row("a form", part("model", "cheap") + SOUND, "/v1/audio/transcriptions", FORM, listed=True, budget=None),
    *[
        Row(f"a form with {name}", part("model", "cheap") + part(name, "dear") + SOUND, "/v1/audio/transcriptions",
            FORM, budget=None)
        for name in ("fallbacks", "models", "x-Model-y", "fallback%5b%5d")
    ],
    Row("the list of models", None, "/v1/models", method="GET", listed=True, budget=True),
    # the model itself
    Row("another model", chat(model="dear"), budget=True),
    Row("an alias of another model", chat(model="other"), budget=True, as_sent=False),
    Row("capitals", chat(model="Cheap"), free=False),
    Row("a blank behind the name", chat(model="cheap "), free=False),
    Row("a name of a pattern", chat(model="x-1"), listed=True, budget=None),
    *[
        Row(f"a name that servers read differently, {ascii(name)}", chat(model=name), budget=None)
        for name in _ODD_NAMES
    ],
    Row("a list's pattern as a name", chat(model="*"), free=False),
    Row("a list of models as the model", {"model": ["dear"], **PROMPT}, "/v1/completions", budget=True),
    Row("half a character in the name", raw('"x":NaN').replace(b'"cheap"', b'"\\ud800"'), free=False),
    Row("no model", PROMPT, "/v1/completions"),
    Row("a model that is null", {"model": None, **PROMPT}, "/v1/completions"),
    # names that stand twice, or in another form
    *[
        row
        for odd in ('"x":NaN', '"x":Infinity', '"x":"\\ud800"', '"x":1')
        for row in (
            Row(f"Model beside model, {odd}", raw(odd + ',"Model":"dear"'), free=False),
            Row(f"MODEL in front, {odd}", b'{"MODEL":"dear",' + raw(odd)[1:], free=False),
            Row(f"full-width letters, {odd}", raw(odd + ',"\uff4dodel":"dear"'), free=False),
            Row(f"a zero byte in the name, {odd}", raw(odd + ',"model\\u0000":"dear"'), free=False),
            Row(f"a blank in the name, {odd}", raw(odd + ',"model ":"dear"'), free=False),
            Row(f"model twice, the other last, {odd}", raw(odd + ',"model":"dear"'), budget=True, as_sent=False),
            Row(f"model twice by an escape, {odd}", raw(odd + ',"\\u006dodel":"dear"'), budget=True, as_sent=False),
        )
    ],
    *[
        Row(f"model twice, the own last, {odd}", b'{"model":"dear",' + raw(odd)[1:], listed=True, budget=True,
            as_sent=False)
        for odd in ('"x":NaN', '"x":"\\ud800"', '"x":1')
    ],
    Row("a BOM and another model last", b"\xef\xbb\xbf" + raw('"model":"dear"'), budget=True, as_sent=False),
    Row("models in capitals", chat(Models=["dear"])),
    Row("tools in capitals", chat(Tools=[{"type": "advisor", "model": "dear"}]), free=False),
    # bodies that only some servers read
    Row("UTF-16", json.dumps(chat(model="dear")).encode("utf-16"), free=False),
    Row("two objects", b'{"model":"cheap","prompt":"x"}{"model":"dear","prompt":"x"}', "/v1/completions"),
    Row("garbage behind", b'{"model":"dear","prompt":"x"}xyz', "/v1/completions"),
    Row("a zero byte behind", b'{"model":"dear","prompt":"x"}\x00', "/v1/completions"),
    Row("a comment", b'{/* "model":"cheap" */"model":"dear","prompt":"x"}', "/v1/completions"),
    Row("single quotes", b"{'model':'dear','prompt':'x'}", "/v1/completions"),
    Row("form fields of a URL", b"model=dear&prompt=x", "/v1/completions",
        {"content-type": "application/x-www-form-urlencoded"}),
    Row("JSON within a form", part("x", '{"model":"dear"}') + b"--b--\r\n", "/v1/completions", FORM),
    Row("a form on a path of JSON", part("model", "dear") + b"--b--\r\n", "/v1/images/generations", FORM),
    Row("text/plain, another model", json.dumps(chat(model="dear")).encode(), "/v1/images/generations", TEXT,
        budget=None),
    Row("text/plain that is JSON, for an image", b'{"model":"cheap","prompt":"x"}', "/v1/images/generations", TEXT,
        listed=True, budget=None),
    Row("text/plain without a model", b"dear", "/v1/images/generations", TEXT),
    Row("compressed", gzip.compress(b'{"model":"dear","prompt":"x"}'), "/v1/completions",
        {**JSON, "content-encoding": "gzip"}, free=False),
    Row("too many members", b'{"model":"dear","x":NaN,' + b",".join(b'"%d":1' % n for n in range(1000)) + b"}",
        "/v1/completions"),
    # other members that choose a model
    Row("models", chat(models=["cheap", "dear"]), budget=True),
    Row("models that nobody knows", chat(models=["cheap", "unheard-of"])),
    Row("models of another account", chat(models=["cheap", "twin"])),
    Row("models by a name that means another one there", chat(models=["gpt-big"])),
    Row("models and no model", {"models": ["dear"], **PROMPT}, "/v1/completions", budget=True),
    Row("models as an object", chat(models={"first": "dear"})),
    Row("a route without models", chat(route="fallback")),
    Row("a route of its own", chat(models=["cheap"], route={"model": "dear"})),
    Row("fallbacks", chat(fallbacks=["dear"]), budget=True),
    Row("fallbacks as LiteLLM writes them", chat(fallbacks=[{"cheap": ["dear"]}]), budget=True),
    Row("fallbacks with members", chat(fallbacks=[{"model": "dear"}]), budget=True),
    Row("fallbacks by default", chat(fallbacks="default")),
    Row("context window fallbacks", chat(context_window_fallbacks=[{"cheap": ["dear"]}]), budget=True),
    Row("fallbacks that are not taken apart", raw('"x":NaN,"fallbacks":["dear"]'), budget=True),
    *[Row(f"a member {name}", chat(**{name: "dear"})) for name in _CHOICES],
    *[Row(f"a member {name} with members", chat(**{name: {"name": "dear"}})) for name in _CHOICES],
    Row("an agent, whose model nobody knows", chat(agent_id="ag:1")),
    Row("what only sounds like a choice", chat(search_engine_results=["dear"], user_agent="dear", invariant="dear"),
        listed=None, budget=True),
    Row("extra_body", chat(extra_body={"models": ["dear"]})),
    Row("options of a gateway", chat(providerOptions={"gateway": {"models": ["dear"]}})),
    Row("a name twice within", raw('"extra_body":{"model":"dear","model":"cheap"}')),
    Row("a preset as the model", chat(model="x-@preset/y")),
    Row("a preset", chat(preset="anything")),
    Row("a plugin that chooses", chat(plugins=[{"id": "fusion"}])),
    Row("a plugin with models", chat(plugins=[{"id": "web", "models": ["dear"]}])),
    Row("a tool with a model", chat(tools=[{"type": "advisor_20260301", "name": "a", "model": "dear"}]),
        "/v1/messages", budget=None),
    Row("a function with a model beside it", chat(tools=[{
        "type": "function", "function": {"name": "f"}, "model": "dear"}])),
    Row("a tool with a model within", chat(tools=[{"type": "openrouter:advisor", "parameters": {"model": "dear"}}]),
        budget=None),
    Row("a tool that says its type twice", raw(
        '"tools":[{"type":"openrouter:advisor","parameters":{"model":"dear"},"type":"function"}]'), budget=False),
    Row("a tool with a model of the provider's choice", chat(tools=[{"type": "image_generation"}]), "/v1/responses",
        budget=None),
    Row("an image tool's own model", chat(tools=[{"type": "image_generation", "model": "dear"}]), "/v1/responses",
        budget=None),
    Row("a session's model", {"session": {"type": "realtime", "model": "dear"}}, "/v1/realtime/client_secrets",
        budget=None),
    Row("a transcription's model", {"model": "cheap", "input_audio_transcription": {"model": "dear"}},
        "/v1/realtime/sessions", budget=None),
    # the path and the query
    Row("a query with another model", chat(), CHAT + "?model=dear", budget=True),
    Row("a query twice", chat(), CHAT + "?model=cheap&model=dear", budget=True),
    *[Row(f"a query with {name}", chat(), f"{CHAT}?{name}=dear", budget=True) for name in _CHOICES],
    Row("a query with an escape", chat(), CHAT + "?%6dodel=de%61r", budget=True),
    Row("a query in capitals", chat(), CHAT + "?MODEL=dear", budget=True),
    Row("a query encoded twice", chat(), CHAT + "?%256dodel=dear"),
    Row("a query behind a semicolon", chat(), CHAT + "?a=1;model=dear", budget=True),
    Row("a query of another method", chat(), CHAT + "?_method=PUT"),
    Row("another engine", {"model": "cheap", **PROMPT}, "/v1/engines/dear/completions", budget=True),
    Row("another engine and no model", PROMPT, "/v1/engines/dear/completions", budget=True),
    Row("an engine that nobody knows", PROMPT, "/v1/engines/unheard-of/completions"),
    Row("another deployment", chat(), "/v1/openai/deployments/dear/chat/completions", budget=True),
    Row("generateContent", GEMINI, "/v1/models/dear:generateContent", budget=True),
    Row("streamGenerateContent", GEMINI, "/v1beta/models/dear:streamGenerateContent", free=False),
    Row("another verb", GEMINI, "/v1/models/cheap:batchGenerateContent", budget=None),
    Row("a path that nobody knows", chat(), "/v1/whatever", budget=None),
    Row("a batch with a model", {"model": "cheap", "input_file_id": "f"}, "/v1/batches", budget=None),
    Row("a preset's path", chat(), "/v1/presets/x/chat/completions", budget=True),
    Row("a model to be deleted", None, "/v1/models/cheap", method="DELETE", budget=True),
    Row("files", None, "/v1/files", method="GET", budget=True),
    Row("a run of an assistant", {"assistant_id": "a"}, "/v1/threads/t/runs"),
    # methods and headers
    Row("GET with a body", chat(), "/v1/completions", method="GET"),
    Row("PUT", chat(), "/v1/completions", method="PUT"),
    Row("a header with a method", chat(), headers={"x-http-method-override": "PUT"}),
    Row("tools within the messages", chat(), "/v1/messages", {"anthropic-beta": "a,inline-tools-2026-09-15"}),
    Row("tools of the request that come and go", chat(tools=[{"name": "f", "input_schema": {}, "defer_loading": True}]),
        "/v1/messages", {"anthropic-beta": "a,mid-conversation-tool-changes-2026-07-01"}, listed=True, budget=True),
    Row("a header with a model", chat(), headers={"helicone-model-override": "dear"}),
    *[
        Row(f"a header with {name}", chat(), headers={f"x-{name.replace('::', '-')}": "dear"})
        for name in ("portkey_config", "portkey-provider", "Http_Method_Override", "engine", "deployment-id", "lora",
                     "adapter-id", "variant_name", "llm")
    ],
    Row("two forms of content", b'{"model":"cheap","prompt":"x"}', "/v1/completions",
        {"content-type": "application/json", "Content-Type": "text/plain"}),
    Row("a header with the id of an agent", chat(), headers={"x-agent-id": "researcher"}, listed=True, budget=True),
    Row("UTF-8 by name", chat(), headers={"content-type": 'application/json; Charset="UTF-8"'},
        listed=True, budget=True),
    *[
        Row(f"content with {charset}", chat(), headers={"content-type": f"application/json;{charset}"})
        for charset in ("charset=utf-7", 'x=y; CHARSET = "UTF-16"', "charset*=utf-7''x", "charset=ibm037")
    ],
]  # fmt: skip

KEYS_OF_ROWS = {"listed": LISTED, "budget": BUDGET, "free": FREE}


@pytest.mark.parametrize("who", ["listed", "budget", "free"])
@pytest.mark.parametrize("row", sampled(ROWS, 4), ids=[row.name for row in ROWS])
def test_what_a_key_can_reach(rights: World, row: Row, who: str) -> None:
    rights.forget()
    reply = rights.call(row.method, row.path, row.body, row.headers, key=KEYS_OF_ROWS[who])
    sent = rights.sent()
    # What no one may send is refused for everybody, and a budget does not ask for more than that.
    may = row.free and getattr(row, who)
    if may is None:
        return
    if not may:
        assert (sent, reply.status in (400, 403, 404)) == ([], True), (reply.status, reply.body)
        assert reply.error_code, reply.body
        return
    if row.path == "/v1/models":
        assert reply.status == 200
        return
    assert reply.status == 200, reply.body
    (seen,) = sent
    if who == "listed":
        assert b"dear" not in seen.body.replace(b'"enum": ["dear"]', b"").replace(b'"metadata": {"model": "dear"}', b"")
        assert "dear" not in seen.path + seen.query
    if who == "free" and row.as_sent:
        assert seen.body == (
            row.body if isinstance(row.body, bytes) else json.dumps(row.body).encode() if row.body else b""
        )


@pytest.mark.parametrize("odd", ['"x":1', '"x":NaN', '"x":"\\ud800"'])
@pytest.mark.parametrize("who", list(KEYS_OF_ROWS))
def test_a_name_that_means_another_model_there_is_replaced(rights: World, odd: str, who: str) -> None:
    for path, body in ((CHAT, raw(odd)), ("/v1/completions", raw(odd))):
        rights.forget()
        reply = rights.call("POST", path, body.replace(b'"cheap"', b'"gpt-big"'), key=KEYS_OF_ROWS[who])
        assert reply.status == 200, reply.body
        (seen,) = rights.sent()
        assert (b"gpt-big" in seen.body, b'"tiny-1"' in seen.body) == (False, True)


@pytest.mark.parametrize("path", ["/v1/engines/{}/completions", "/v1/models/{}:generateContent"])
def test_a_path_goes_by_the_upstreams_name_for_its_model(rights: World, path: str) -> None:
    for who, name in ((FREE, "mini"), (LISTED, "gpt-big")):
        rights.forget()
        assert rights.call("POST", path.format(name), PROMPT, key=who).status == 200
        assert [seen.path for seen in rights.sent()] == [path.format("tiny-1")]


def test_what_stands_in_for_a_model_is_allowed_by_its_own_name(rights: World) -> None:
    for who, models in ((FREE, ["cheap", "dear"]), (LISTED, ["cheap"])):
        rights.forget()
        rights.providers["alpha"].script = lambda seen: Answer(500, {"error": {"message": "no"}})
        assert rights.call("POST", CHAT, chat(), key=who).status == 500
        assert [seen.json["model"] for seen in rights.sent()] == models


@pytest.mark.slow
def test_a_list_of_everything_is_none(rights: World) -> None:
    for row in ROWS:
        rights.forget()
        reply = rights.call(row.method, row.path, row.body, row.headers, key="sk-everything-5b1c9e3d77")
        assert (reply.status < 400) is row.free or row.name == "compressed", (row.name, reply.body)


@pytest.mark.parametrize("who", list(KEYS_OF_ROWS))
@pytest.mark.parametrize(
    ("method", "path"),
    sampled([
        ("TRACE", "/v1/files"), ("TRACE", CHAT), ("CONNECT", "/v1/files"), ("PROPFIND", "/v1/files"),
        *[
            (method, path)
            for method in ("GET", "POST")
            for path in (
                "/v1/models;/files", "/v1/models/..;/files", "/v1/models/../files", "/v1/models/%2e%2e/files",
                "/v1/models/..%2ffiles", "/v1/models%2f..%2ffiles", "/v1/models/%252e%252e/files",
                "/v1/models%00/files",
                "/v1/models/%c0%ae%c0%ae/files", "/v1/models/..%5cfiles", "/v1/models/..%255cfiles", "/v1//files",
                "/v1/models//files", "/v1/files%20", "/v1/files.", "/v1/files%0a", "/v1/files%09", "/v1/%ff",
                "/v1/files%", "/v1/%EF%BD%86iles",
                "/v1/models/%EF%BC%8E%EF%BC%8E/files", "/v1/models%EF%BC%8F..%EF%BC%8Ffiles",
                "/v1/files%3fmodel=x", "/v1/files%23x", "/%761/files", "/v1%2ffiles", "/v1/files/" + "a" * 3000,
                "/v1/chat//completions", "/v1/completions;x=1", "/v1/./completions", "/v1/file%C5%BF",
            )
        ],
    ], 2),
)  # fmt: skip
def test_no_path_passes_as_another_one(rights: World, method: str, path: str, who: str) -> None:
    rights.forget()
    reply = rights.call(method, path, chat() if method == "POST" else None, key=KEYS_OF_ROWS[who])
    assert rights.sent() == []
    assert 400 <= reply.status < 500
    assert method in ("GET", "POST") or reply.status in (400, 404, 405)


def test_a_native_path_is_not_free(rights: World) -> None:
    before = rights.spent("tight")
    assert rights.call("POST", "/v1/models/cheap:generateContent", GEMINI, key=BUDGET).status == 200
    assert rights.spent("tight") > before


GROUPED = """
model_list:
  - model_name: cheap
    litellm_params: {model: openai/c, api_base: "{alpha}/v1", api_key: k}
    model_info: {access_groups: [beta], id: c-1}
  - model_name: dear
    litellm_params: {model: openai/d, api_base: "{alpha}/v1", api_key: k}
    model_info: {access_groups: [best], id: d-1}
router_settings: {num_retries: 0, fallbacks: [{cheap: [d-1]}]}
stratiform:
  port: 0
  store: "{sqlite}"
  teams:
    - {name: grouped, keys: [LISTED], models: [beta]}
    - {name: starred, keys: [FREE], models: ["be*"]}
""".replace("LISTED", LISTED).replace("FREE", FREE)


def test_a_group_allows_its_models_and_no_others() -> None:
    with world_of(GROUPED, providers=("alpha",)) as world:
        statuses = {
            (key, name): world.call("POST", CHAT, chat(model=name), key=key).status
            for key in (LISTED, FREE)
            for name in ("cheap", "c-1", "dear", "d-1", "beta", "best")
        }
        assert [statuses[LISTED, name] for name in ("cheap", "c-1", "dear", "d-1")] == [200, 200, 403, 403]
        assert {statuses[LISTED, name] for name in ("beta", "best")} <= {403, 404}
        assert {statuses[FREE, name] for name in ("cheap", "c-1", "dear", "d-1", "beta", "best")} <= {403, 404}
        assert {json.loads(seen.body)["model"] for seen in world.sent()} == {"c"}


def test_there_are_enough_rows() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)

"""What a request asks for that costs money, also beyond text at the usual price."""

import json
from collections.abc import Mapping
from itertools import product

import pytest
from msgspec import Raw

from proxy.protocol.request import head_of
from proxy.protocol.request.demand import MEMBERS, PLAIN, BillingKind, Demand, Tool, Wants, demand_of, wants_of
from tests.examples import for_every, sampled
from tests.growth import assert_linear

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/chat/completions", "/completions", "/responses", "/messages"
GEMINI = "/models/gemini-3-pro:generatecontent"


def of(path: str, body: Mapping[str, object] | str, method: str = "POST") -> Demand:
    text = body if isinstance(body, str) else json.dumps(body)
    return demand_of(method, path, head_of(text.encode()).asked)


@for_every(
    [
        (CHAT, {}, None),
        (CHAT, {"max_tokens": 9}, 9),
        (CHAT, {"max_completion_tokens": 9}, 9),
        (CHAT, {"max_tokens": 9, "max_completion_tokens": 90}, 90),
        (CHAT, {"max_tokens": 90, "max_completion_tokens": 9}, 90),
        (CHAT, {"max_tokens": 9, "max_completion_tokens": None}, 9),
        (CHAT, {"max_output_tokens": 1}, None),
        (CHAT, {"max_output_tokens": 1, "max_tokens": 9}, 9),
        (CHAT, {"generationConfig": {"maxOutputTokens": 1}}, None),
        (CHAT, {"max_tokens": 9, "n_predict": 90}, 90),
        (CHAT, {"max_tokens": 9, "n_predict": -1}, None),
        (CHAT, {"max_tokens": 9, "n_predict": None}, 9),
        (CHAT, {"n_predict": 9}, None),
        (COMPLETIONS, {"max_tokens": 9, "n_predict": 90}, 90),
        (COMPLETIONS, {"max_completion_tokens": 1, "max_tokens": 1_000_000}, 1_000_000),
        (COMPLETIONS, {"max_completion_tokens": 1}, None),
        (RESPONSES, {"max_output_tokens": 9, "max_tokens": 1}, 9),
        (RESPONSES, {"max_tokens": 1, "max_completion_tokens": 1}, None),
        (MESSAGES, {"max_tokens": 9, "max_output_tokens": 1}, 9),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 9}}, 9),
        (GEMINI, {"generation_config": {"max_output_tokens": 9}}, 9),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 9}, "generation_config": {"max_output_tokens": 90}}, 90),
        (GEMINI, {"maxOutputTokens": 9}, None),
        (GEMINI, {"generationConfig": None}, None),
    ]
)
def test_the_limits_that_the_path_knows_count_and_the_largest_of_them(
    path: str, body: Mapping[str, object], limit: int | None
) -> None:
    assert of(path, body).max_output_tokens == limit


@for_every(
    product(
        ['"10"', "10.0", "true", "0", "-1", "1e400", "1e1", "[10]", "{}", '"x"', "NaN", '""'],
        ["", ', "max_completion_tokens": 5'],
    )
)
def test_a_limit_that_some_server_may_pass_over_is_none(odd: str, beside: str) -> None:
    assert of(CHAT, f'{{"max_tokens": {odd}{beside}}}').max_output_tokens is None


def test_what_some_server_takes_for_a_limit_is_the_least_that_is_reserved() -> None:
    assert of(CHAT, {"max_tokens": "100000", "max_completion_tokens": 5}).least_output_tokens == 100_000
    assert of(CHAT, {"max_tokens": 9}).least_output_tokens == 0
    assert of(CHAT, {}).least_output_tokens == 0


@pytest.mark.parametrize("name", ["n", "best_of", "num_completions", "num_generations"])
@pytest.mark.parametrize(
    ("value", "answers", "is_clear"),
    [
        ("3", 3, True), ('"3"', 3, True), ('" 3 "', 3, True), ('"1_0"', 10, True), ('"3e1"', 30, True),
        ("3.0", 3, True), ("2.5", 3, True), ("true", 1, True), ("null", 1, True), ("0", 1, True), ("-4", 1, True),
        ("1000", 1000, True), ("1e6", 1, False), ("1" + "0" * 400, 1, False), ('"many"', 1, False), ("[3]", 1, False),
        ('{"n": 3}', 1, False), ("NaN", 1, False), ('"inf"', 1, False),
    ],
)  # fmt: skip
def test_a_count_is_the_largest_that_a_server_could_read(name: str, value: str, answers: int, is_clear: bool) -> None:
    found = of(CHAT, f'{{"{name}": {value}}}')
    assert (found.answers, found.unclear) == (answers, "" if is_clear else name)


def test_best_of_is_billed_and_not_its_product_with_n() -> None:
    assert of(COMPLETIONS, {"n": 2, "best_of": 5}).answers == 5
    assert of(GEMINI, {"generationConfig": {"candidateCount": 4}}).answers == 4


@for_every(
    [
        ("one", 1), (["one"], 1), (["a"] * 200, 200), ([1, 2, 3], 1), ([[1, 2], [3], [4]], 3), ([1, "a", [2]], 3),
        ([], 1), (None, 1),
    ]
)  # fmt: skip
def test_every_prompt_of_a_completion_is_answered(prompt: object, prompts: int) -> None:
    assert of(COMPLETIONS, {"prompt": prompt, "n": 2}).answers == 2 * prompts
    assert of(CHAT, {"prompt": prompt}).answers == 1


def test_prompts_of_large_bodies_are_never_too_few() -> None:
    assert of(COMPLETIONS, {"prompt": ["a" * 50] * 20_000}).answers >= 20_000


def test_a_prompt_that_is_neither_is_named() -> None:
    assert of(COMPLETIONS, {"prompt": {"id": "p"}}).unclear == "prompt"


@for_every(
    [
        ("POST", "/v1/threads/t/messages", BillingKind.FREE),
        ("POST", "/messages/count_tokens", BillingKind.FREE),
        ("POST", "/files", BillingKind.FREE),
        ("GET", "/batches", BillingKind.FREE),
        ("DELETE", "/files/f", BillingKind.FREE),
        ("POST", "/batches", BillingKind.UNKNOWN),
        ("POST", "/messages/batches", BillingKind.UNKNOWN),
        ("POST", "/fine_tuning/jobs", BillingKind.UNKNOWN),
        ("POST", "/threads/t/runs", BillingKind.UNKNOWN),
        ("POST", "/videos", BillingKind.UNKNOWN),
        ("POST", "/chat/completions;x", BillingKind.UNKNOWN),
        ("PURGE", "/chat/completions/x/y", BillingKind.UNKNOWN),
        ("POST", "/engines/m/completions", BillingKind.TEXT),
        ("POST", "/responses/compact", BillingKind.TEXT),
        ("POST", "/embeddings", BillingKind.PROMPT),
        ("POST", "/images/edits", BillingKind.IMAGE),
        ("POST", "/audio/speech", BillingKind.SPEECH),
        ("POST", "/audio/translations", BillingKind.TRANSCRIPTION),
        ("POST", "/rerank", BillingKind.RERANK),
    ]
)
def test_what_a_path_is_billed_by(method: str, path: str, kind: BillingKind) -> None:
    assert demand_of(method, path, {}).kind is kind


def test_a_body_that_was_not_read_has_no_limit() -> None:
    assert demand_of("POST", CHAT, None) == Demand(unclear="body")


def test_members_stand_once() -> None:
    assert len(set(MEMBERS)) == len(MEMBERS)


@pytest.mark.parametrize("name", sampled(MEMBERS, 4))
@pytest.mark.parametrize(("opening", "unit", "end"), [("[", "[]," * 9, "0]"), ("[", "{},", "{}]"), ('"', "x", '"')])
def test_a_huge_value_is_read_in_linear_time(name: str, opening: str, unit: str, end: str) -> None:
    def work(value: bytes) -> None:
        for path in (CHAT, COMPLETIONS, RESPONSES, GEMINI, "/images/generations", "/audio/speech", "/rerank"):
            demand_of("POST", path, {name: value})

    assert_linear(work, lambda size: f"{opening}{unit * (size // len(unit))}{end}".encode(), 500_000)


def test_settings_that_cannot_be_read_are_named() -> None:
    assert of(GEMINI, {"generationConfig": [1]}).unclear == "generationConfig"


@for_every(
    [
        (CHAT, '{"tools":[{"type":"web_search","type":"function"}]}', "tools"),
        (CHAT, '{"tools":[{"max_uses":9, "type":"web_search","max\\u005fuses":1}]}', "tools"),
        (GEMINI, '{"generationConfig":{"maxOutputTokens":9000,"maxOutputTokens":1}}', "generationConfig"),
        (CHAT, '{"tools":[ {"type" : "function", "name":"f"}, {}, {"n\\u0061me":"f","input_schema":{}}]}', ""),
        (GEMINI, '{"generationConfig": {"maxOutputTokens": 9, "stopSequences": ["\\u00e9"]}}', ""),
    ]
)
def test_a_name_that_stands_twice_where_the_cost_is_read_is_not_understood(path: str, body: str, unclear: str) -> None:
    assert of(path, body).unclear == unclear


@for_every(
    [
        (MESSAGES, '{"tools":[{"type":"web_search","max_uses":1,%s:900}]}', "max_uses", "tools"),
        (MESSAGES, '{"tools":[{"name":"f",%s:"web_search"}]}', "type", "tools"),
        (RESPONSES, '{"tools":[{"type":"shell",%s:{"type":"auto"}}]}', "environment", "tools"),
        (CHAT, '{"plugins":[{"id":"web",%s:900}]}', "max_results", "plugins"),
        (GEMINI, '{"generationConfig":{"maxOutputTokens":1,%s:900}}', "maxOutputTokens", "generationConfig"),
        (GEMINI, '{"generationConfig":{%s:8}}', "candidateCount", "generationConfig"),
    ]
)
def test_a_name_that_only_some_servers_read_is_not_understood_where_the_cost_is_read(
    path: str, body: str, name: str, unclear: str
) -> None:
    for written in (name.upper(), name.title(), f"{name} ", name.replace("s", "ſ").replace("t", "T")):
        assert of(path, body % json.dumps(written)).unclear == unclear


@for_every(
    [
        (CHAT, '{"modalities":["text","audio"]}', True),
        (CHAT, '{"modalities":["text","\\u0061udio"]}', True),
        (GEMINI, '{"generationConfig":{"responseModalities":["AUDIO"]}}', True),
        (CHAT, '{"modalities":["text"]}', False),
    ]
)
def test_an_answer_that_is_spoken(path: str, body: str, speaks: bool) -> None:
    assert of(path, body).wants.has_audio is speaks


def wanted_by(limit: str = "max_uses", /, **members: object) -> tuple[Wants, str]:
    return wants_of({name: Raw(json.dumps(value).encode()) for name, value in members.items()}, limit)


@for_every(
    [
        ("auto", ""), ("default", ""), ("Priority", "priority"), ("fast", "priority"), ("flex", "flex"), (None, ""),
        ("standard_only", ""), ("ultrafast", "ultrafast"),
    ]
)  # fmt: skip
def test_tiers(asked: object, tier: str) -> None:
    assert wanted_by(service_tier=asked) == (Wants(tier=tier), "")


def grouped(*tools: object) -> dict[str, object]:
    """A group of tools in OpenAI's form."""
    return {"type": "namespace", "name": "n", "description": "d", "tools": list(tools)}


@pytest.mark.parametrize("odd", [["priority"], 3, True, {"a": 1}, "pri ority"])
def test_a_tier_that_cannot_be_read_is_named(odd: object) -> None:
    assert wanted_by(service_tier=odd)[1] == "service_tier"


@for_every(
    [
        ([{"type": "function", "function": {"name": "web_search"}}], ()),
        ([{"name": "mine", "input_schema": {}}], ()),
        ([{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}], ((Tool.SEARCH, 3),)),
        ([{"type": "web_search"}, {"type": "file_search"}], ((Tool.SEARCH, 8), (Tool.FILES, 8))),
        ([{"type": "web_search", "max_uses": "1"}], ((Tool.SEARCH, 8),)),
        ([{"type": "web_search", "max_uses": 2}, {"type": "web_search", "max_uses": 3}], ((Tool.SEARCH, 5),)),
        ([{"type": "shell"}], ()),
        ([{"type": "shell", "environment": {"type": "local", "skills": []}}], ()),
        ([{"type": "shell", "environment": {"type": "container_auto"}}], ((Tool.CONTAINER, 8),)),
        ([{"type": "shell", "environment": [1]}], ((Tool.CONTAINER, 8),)),
        ([{"googleSearch": {}, "codeExecution": {}}], ((Tool.SEARCH, 8), (Tool.CODE, 8))),
        ([{"functionDeclarations": [{"name": "f"}]}], ()),
        ([grouped({"type": "function", "name": "f"}, {"type": "custom", "name": "g"}), grouped()], ()),
        ([], ()),
    ]
)
def test_tools_that_the_provider_runs(tools: object, calls: object) -> None:
    wanted, odd = wanted_by(tools=tools)
    assert (tuple(wanted.calls), odd) == (calls, "")


@for_every(
    [
        [{"type": "video_maker"}],
        [{"type": 7}],
        "web_search",
        [["web_search"]],
        [{"x": 1}],
        *[[grouped({"type": name})] for name in ("web_search", "code_interpreter", "mcp", "video_maker", "namespace")],
        [grouped({"type": "function"}, {"type": "web_search_preview"})],
        [grouped(["web_search"])],
        [{**grouped(), "Tools": [{"type": "web_search"}]}],
    ]
)
def test_a_tool_that_is_not_known_is_named(tools: object) -> None:
    assert wanted_by(tools=tools)[1] == "tools"


def test_known_members_give_their_wants() -> None:
    assert wanted_by() == (PLAIN, "")
    assert wanted_by("max_tool_calls", max_tool_calls=2, tools=[{"type": "web_search"}])[0].calls == ((Tool.SEARCH, 2),)
    assert wanted_by(web_search_options={})[0] == Wants(calls=((Tool.SEARCH, 1),), searches_once=True)
    assert wanted_by(speed="fast", inference_geo="us")[0] == Wants(is_fast=True, is_local=True)
    assert wanted_by(speed="standard", inference_geo="global") == (PLAIN, "")
    assert wanted_by(modalities=["text", "audio"])[0].has_audio
    assert wanted_by(previous_response_id="r")[0].is_beyond
    assert wanted_by(previous_response_id=None) == (PLAIN, "")
    assert wanted_by(deferred=True)[1] == "deferred"


@pytest.mark.parametrize("limit", ["", "max_uses", "max_tool_calls"])
def test_a_limit_of_another_path_limits_nothing(limit: str) -> None:
    tool = {"type": "web_search", "max_tool_calls": 1, **({} if limit == "max_uses" else {"max_uses": 1})}
    more = {} if limit == "max_tool_calls" else {"max_tool_calls": 1}
    assert wanted_by(limit, tools=[tool], **more)[0].calls == ((Tool.SEARCH, 8),)


@for_every(
    [
        ({}, 1),
        ({"container": "cntr_1"}, 1),
        ({"container": {"type": "auto"}}, 1),
        ({"container": {"type": "auto", "memory_limit": "16g", "x": "1g"}}, 16),
        ({"container": {"type": "auto", "memory_limit": "8g"}}, 64),
        ({"container": {"type": "auto", "memory_limit": ["1g"]}}, 64),
        ({"container": [1]}, 64),
        ({"container": "cntr_1", "environment": {"memory_limit": "4g"}}, 4),
    ]
)
def test_a_container_has_the_most_memory_that_a_server_could_read(more: dict[str, object], gib: int) -> None:
    wanted, odd = wanted_by(tools=[{"type": "code_interpreter", **more}] * 2)
    assert (wanted.memory_gib, odd) == (2 * gib, "")
    assert wanted_by(tools=[{"type": "code_execution_20250825", "name": "x", **more}])[0].memory_gib == 0


@for_every(
    [
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, True),
        ({"context_management": [{"type": "compaction"}]}, True),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, False),
        ({"compaction": {"type": "request"}}, True),
        ({"compaction": None}, False),
    ]
)
def test_a_summary_that_a_provider_may_make(members: dict[str, object], is_summarised: bool) -> None:
    assert wanted_by(**members)[0].is_summarised == is_summarised


@for_every(
    [
        ([{"id": "web"}], ""),
        ([{"id": "web", "max_results": 50}, {"id": "response-healing"}], ""),
        ([{"id": "web", "max_results": 51}], "plugins"),
        ([{"id": "web", "max_results": "5"}], "plugins"),
        ([{"id": "file-parser"}], "file-parser"),
        ([{"id": "file-parser"}, {"id": ["web"]}, {"id": "web"}], "plugins"),
        ([None], "plugins"),
        (["web"], "plugins"),
        ([{}], "plugins"),
        ("web", "plugins"),
    ]
)
def test_plugins_that_cost_no_more_than_searches(plugins: object, odd: str) -> None:
    assert wanted_by(plugins=plugins)[1] == odd
    for asked in ({}, {"mode": "auto"}, {"mode": "off", "Mode": "on"}, {"mode": ["off"]}, "off"):
        assert wanted_by(search_parameters=asked)[1] == "search_parameters"
    assert wanted_by(search_parameters={"mode": "off", "sources": [{"type": "x"}]}) == wanted_by()


@pytest.mark.parametrize("name", ["tools", "plugins"])
def test_what_may_ask_a_model_is_named_before_all_that_cannot_be_understood(name: str) -> None:
    more = {name: [{"type": "advisor", "id": "fusion"}], "service_tier": 3, "deferred": True, "search_parameters": {}}
    assert wanted_by(**more)[1] == name
    assert wanted_by(deferred=False) == (PLAIN, "")

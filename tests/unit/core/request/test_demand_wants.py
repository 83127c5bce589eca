"""What a request wants beyond text at the usual price."""

import json

import pytest
from msgspec import Raw

from proxy.core.request.demand import PLAIN, Tool, Wants, wants_of
from tests.examples import for_every


def of(limit: str = "max_uses", /, **members: object) -> tuple[Wants, str]:
    return wants_of({name: Raw(json.dumps(value).encode()) for name, value in members.items()}, limit)


@for_every(
    [
        ("auto", ""),
        ("default", ""),
        ("Priority", "priority"),
        ("fast", "priority"),
        ("flex", "flex"),
        (None, ""),
        ("standard_only", ""),
        ("ultrafast", "ultrafast"),
    ]
)
def test_tiers(asked: object, tier: str) -> None:
    assert of(service_tier=asked) == (Wants(tier=tier), "")


@pytest.mark.parametrize("odd", [["priority"], 3, True, {"a": 1}, "pri ority"])
def test_a_tier_that_cannot_be_read_is_named(odd: object) -> None:
    assert of(service_tier=odd)[1] == "service_tier"


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
        ([], ()),
    ]
)
def test_tools_that_the_provider_runs(tools: object, calls: object) -> None:
    wanted, odd = of(tools=tools)
    assert (tuple(wanted.calls), odd) == (calls, "")


@pytest.mark.parametrize(
    "tools", [[{"type": "video_maker"}], [{"type": 7}], "web_search", [["web_search"]], [{"x": 1}]]
)
def test_a_tool_that_is_not_known_is_named(tools: object) -> None:
    assert of(tools=tools)[1] == "tools"


def test_known_members_give_their_wants() -> None:
    assert of() == (PLAIN, "")
    assert of("max_tool_calls", max_tool_calls=2, tools=[{"type": "web_search"}])[0].calls == ((Tool.SEARCH, 2),)
    assert of(web_search_options={})[0] == Wants(calls=((Tool.SEARCH, 1),), searches_once=True)
    assert of(speed="fast", inference_geo="us")[0] == Wants(is_fast=True, is_local=True)
    assert of(speed="standard", inference_geo="global") == (PLAIN, "")
    assert of(modalities=["text", "audio"])[0].has_audio
    assert of(previous_response_id="r")[0].is_beyond
    assert of(previous_response_id=None) == (PLAIN, "")
    assert of(deferred=True)[1] == "deferred"


@pytest.mark.parametrize("limit", ["", "max_uses", "max_tool_calls"])
def test_a_limit_of_another_path_limits_nothing(limit: str) -> None:
    tool = {"type": "web_search", "max_tool_calls": 1, **({} if limit == "max_uses" else {"max_uses": 1})}
    more = {} if limit == "max_tool_calls" else {"max_tool_calls": 1}
    assert of(limit, tools=[tool], **more)[0].calls == ((Tool.SEARCH, 8),)


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
    wanted, odd = of(tools=[{"type": "code_interpreter", **more}] * 2)
    assert (wanted.memory_gib, odd) == (2 * gib, "")
    assert of(tools=[{"type": "code_execution_20250825", "name": "x", **more}])[0].memory_gib == 0


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
    assert of(**members)[0].is_summarised == is_summarised


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
    assert of(plugins=plugins)[1] == odd
    assert of(search_parameters={})[1] == "search_parameters"


@pytest.mark.parametrize("name", ["tools", "plugins"])
def test_what_may_ask_a_model_is_named_before_all_that_cannot_be_understood(name: str) -> None:
    more = {name: [{"type": "advisor", "id": "fusion"}], "service_tier": 3, "deferred": True, "search_parameters": {}}
    assert of(**more)[1] == name
    assert of(deferred=False) == (PLAIN, "")

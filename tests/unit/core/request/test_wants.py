"""What a request wants beyond text at the usual price."""

import json

import pytest
from msgspec import Raw

from proxy.core.request.wants import PLAIN, Tool, Wants, wants_of
from tests.examples import for_every


def of(**members: object) -> tuple[Wants, str]:
    return wants_of({name: Raw(json.dumps(value).encode()) for name, value in members.items()})


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
    assert of(max_tool_calls=2, tools=[{"type": "web_search"}])[0].calls == ((Tool.SEARCH, 2),)
    assert of(web_search_options={})[0] == Wants(calls=((Tool.SEARCH, 1),), searches_once=True)
    assert of(speed="fast", inference_geo="us")[0] == Wants(is_fast=True, is_local=True)
    assert of(speed="standard", inference_geo="global") == (PLAIN, "")
    assert of(modalities=["text", "audio"])[0].has_audio
    assert of(previous_response_id="r")[0].is_beyond
    assert of(previous_response_id=None) == (PLAIN, "")
    assert of(deferred=True)[1] == "deferred"
    assert of(deferred=False) == (PLAIN, "")

"""Pairs are JSON whatever the panel holds, and a call and its result name each other."""

import json
from datetime import UTC, datetime
from itertools import product
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.factories import load_panel_texts
from proxy.context.panels import (
    DECLARATION,
    EMPTY,
    FOOTER,
    UNKNOWN,
    Panel,
    call_id,
    iso_time,
    names_tool,
    panel_answer,
    panel_pair,
    panel_text,
    with_declaration,
)
from proxy.protocol.response.panel_answer import PANEL_TOOL
from tests.examples import for_every

any_text = st.text(st.characters(exclude_categories=()), max_size=40)


def bodies(pair: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in pair]


@given(st.from_regex(r"[A-Za-z0-9_-]{1,56}", fullmatch=True), any_text, any_text, any_text)
def test_a_pair_says_exactly_what_it_shall(panel_id: str, words: str, header: str, content: str) -> None:
    call, result = bodies(panel_pair(panel_id, words, panel_text(Panel(panel_id, "own", header, content))))

    (made,) = call.pop("tool_calls")
    assert call == {"role": "assistant", "content": words}
    assert json.loads(made["function"].pop("arguments")) == {"id": panel_id}
    assert made == {"id": call_id(panel_id), "type": "function", "function": {"name": "dynamic_panel"}}
    text = f"======= [{panel_id}] {header} =======\n{content}"
    assert result == {"role": "tool", "tool_call_id": call_id(panel_id), "content": text}


def test_the_footer_ends_the_display() -> None:
    call, result = bodies(panel_pair(FOOTER, "end", "ok"))
    assert call["tool_calls"][0]["function"]["arguments"] == '{"action":"end_panels"}'
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "panel_footer"
    assert (call["content"], result["content"]) == ("end", "ok")


# Times are written as every calendar has them, and what no clock could show is not written.


TEXTS = load_panel_texts()
FIRST_S, BEHIND_S = 1_577_836_800, 253_402_300_800


@given(st.floats(FIRST_S, BEHIND_S, exclude_max=True))
def test_a_time_is_that_of_the_calendar(time_s: float) -> None:
    assert iso_time(time_s) == datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("year", "month", "day"), [(2020, 2, 29), (2020, 3, 1), (2100, 2, 28), (2100, 3, 1), (2400, 2, 29), (9999, 12, 31)]
)
def test_days_beside_leap_days_are_those_of_the_calendar(year: int, month: int, day: int) -> None:
    last = datetime(year, month, day, 23, 59, 59, tzinfo=UTC)
    assert iso_time(last.timestamp()) == f"{year}-{month:02}-{day:02}T23:59:59Z"


@pytest.mark.parametrize("time_s", [0.0, -1.0, FIRST_S - 1, BEHIND_S, inf, -inf, nan])
def test_a_time_that_no_clock_shows_is_not_known(time_s: float) -> None:
    assert not iso_time(time_s)
    assert TEXTS.generated(time_s) == TEXTS.unknown_timestamp
    assert TEXTS.current(time_s) == ""


def test_only_the_placeholder_is_replaced() -> None:
    assert TEXTS.generated(FIRST_S) == "Panel automatically generated at 2020-01-01T00:00:00Z"
    assert TEXTS.current(FIRST_S) == "Current datetime: 2020-01-01T00:00:00Z"


# The tool is declared once and for all, and a call of it is answered by what the conversation shows.


PANELS = (Panel("todo", "todo", "Tasks", "[ ] a"), Panel("logs", "logs", "Logs", ""), Panel("chat", "own", "", "x"))


def test_the_declaration_takes_the_arguments_of_both_of_our_calls() -> None:
    declared = json.loads(DECLARATION)
    assert declared["type"] == "function"
    assert declared["function"]["name"] == PANEL_TOOL
    assert declared["function"]["parameters"]["properties"].keys() == {"id", "action"}
    assert "required" not in declared["function"]["parameters"]


def test_a_call_is_answered_by_the_same_text_as_the_pair_has() -> None:
    assert panel_answer(PANELS, "todo") == "======= [todo] Tasks =======\n[ ] a" == panel_text(PANELS[0])


@pytest.mark.parametrize("panel_id", ["", "TODO", "footer", "chat", "x" * 1_000_000, "\ud83d"])
def test_an_unknown_id_is_answered_by_a_sentence_that_repeats_nothing_of_it(panel_id: str) -> None:
    assert panel_answer(PANELS, panel_id) == UNKNOWN == "There is no panel with this id."


def test_a_panel_without_content_is_empty() -> None:
    assert panel_answer(PANELS, "logs") == EMPTY == "This panel is empty at present."


def test_the_declaration_stands_in_front_of_the_client_s_tools_which_stay_as_they_are() -> None:
    own = b'{"type":"function","function":{"name":"own"}}'
    for nothing in (None, b"null", b"[]", b"[ ]"):
        assert with_declaration(nothing) == b"[" + DECLARATION + b"]"
    assert with_declaration(b"[ " + own + b"\n]") == b"[" + DECLARATION + b", " + own + b"\n]"


@pytest.mark.parametrize("tools", [b'{"a":1}', b"{}", b"1", b'""', b"true"])
def test_tools_that_are_no_array_stay_as_they_are(tools: bytes) -> None:
    assert with_declaration(tools) is None


@for_every(
    product(
        [
            b'{"function":{"name":"dynamic_panel"}}',
            b'{"type":"function","function":{"description":"x","name" : "dynamic\\u005fpanel"}}',
            b'{"type":"custom","custom":{"name":"dynamic_panel"}}',
            b'{"name":"dynamic_panel","input_schema":{}}',
            b'{"function":{"name":"dynamic_panel","description":"\\ud800"}}',
        ],
        [b'{"function":{"name":"own"}}', b'"no tool"', b'{"function":3}', b"[]"],
    )
)
def test_a_tool_of_the_client_s_with_this_name_is_seen_however_it_is_written(tool: bytes, other: bytes) -> None:
    assert names_tool(b"[" + tool + b"]")
    assert names_tool(b"[" + other + b" , " + tool + b"]")
    assert not names_tool(b"[" + other + b"]")


@pytest.mark.parametrize(
    "tools",
    [
        None,
        b"null",
        b"[]",
        b"3",
        b'[{"function":{"description":"as \\"dynamic_panel\\" does","name":"own"}}]',
        b'[{"function":{"name":"own","parameters":{"properties":{"of":{"enum":["dynamic_panel"]}}}}}]',
        b'[{"function":{"name":["dynamic_panel"]}}]',
    ],
)
def test_a_tool_that_only_speaks_of_this_name_is_not_taken_for_it(tools: bytes | None) -> None:
    assert not names_tool(tools)

"""The tool is declared once and for all, and a call of it is answered by what the conversation shows."""

import json
from itertools import product

import pytest

from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.structured.panels.pairs import (
    DECLARATION,
    EMPTY,
    UNKNOWN,
    names_tool,
    panel_answer,
    panel_text,
    with_declaration,
)
from proxy.core.structured.panels.panel import Panel
from tests.examples import for_every

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

"""Pairs are JSON whatever the panel holds, and a call and its result name each other."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.panels.pairs import FOOTER, call_id, panel_pair, panel_text
from proxy.core.structured.panels.panel import Panel

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


@pytest.mark.parametrize("half", ["\ud83d", '\udc00a\ud83d\n"\\b'])
def test_half_a_surrogate_pair_stays_half(half: str) -> None:
    (_, result) = bodies(panel_pair("A", half, panel_text(Panel("A", "own", half, half))))
    assert result["content"] == f"======= [A] {half} =======\n{half}"


def test_the_footer_ends_the_display() -> None:
    call, result = bodies(panel_pair(FOOTER, "end", "ok"))
    assert call["tool_calls"][0]["function"]["arguments"] == '{"action":"end_panels"}'
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "panel_footer"
    assert (call["content"], result["content"]) == ("end", "ok")


def test_an_id_that_needs_escapes_is_escaped_twice() -> None:
    call, result = bodies(panel_pair('"\\', "", ""))
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"id": '"\\'}
    assert result["tool_call_id"] == 'panel_"\\'

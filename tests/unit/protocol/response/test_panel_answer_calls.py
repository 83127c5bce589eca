"""The request that answers calls of panels."""

from typing import Any

import orjson
import pytest

from proxy.kit.errors import InvalidRequest
from proxy.protocol.response.panel_answer import PANEL_TOOL, called, continued_request
from tests.examples import for_every

BODY = b'{ "messages" : [ {"role":"user"} ] ,\n"x":1.0, "model":"m"}'


def message(*arguments: str) -> Any:
    functions = [{"name": PANEL_TOOL, "arguments": one} for one in arguments]
    return called({}, [{"index": 0, "id": f"c{at}", "function": one} for at, one in enumerate(functions)])


def results(body: bytes | None) -> list[Any]:
    assert body is not None
    return list(orjson.loads(body)["messages"][2:])


def test_messages_are_added_at_the_end_and_nothing_else_changes() -> None:
    found = continued_request(BODY, {"m": 1, "tool_calls": []}, str)
    assert found == b'{ "messages" : [ {"role":"user"} ,{"m":1,"tool_calls":[]}] ,\n"x":1.0, "model":"m"}'


@for_every(
    [
        ('{"id":"P2","why":1}', "P2"), ('{"id":7}', "7"), ('{"action":"end_panels"}', ""), ('{"id":null}', ""),
        ("[]", ""), ("", ""),
    ]
)  # fmt: skip
def test_a_result_names_its_call_and_has_the_panels_text(arguments: str, panel: str) -> None:
    found = continued_request(BODY, message(arguments), lambda panel: f"<{panel}>")
    assert results(found) == [{"role": "tool", "tool_call_id": "c0", "content": f"<{panel}>"}]


def test_a_text_with_half_a_surrogate_pair_can_be_sent() -> None:
    found = continued_request(BODY, message("{}"), lambda panel: "\ud83d")
    assert found is not None
    assert b'"content":"\\ud83d"' in found


def test_results_that_no_model_could_read_are_not_even_written() -> None:
    asked = list[str]()

    def large(panel: str) -> str:
        asked.append(panel)
        return "x" * (5 << 20)

    assert continued_request(BODY, message(*["{}"] * 20), large) is None
    assert len(asked) == 2


@pytest.mark.parametrize("body", [b"[]", b"{}", b"\xff"])
def test_a_request_without_messages_is_not_continued(body: bytes) -> None:
    with pytest.raises((InvalidRequest, KeyError)):
        continued_request(body, message("{}"), str)

"""The request that answers calls of panels."""

import orjson
import pytest

from proxy.core.response.panel_calls import PANEL_TOOL, continued_request, panel_call

CALL = panel_call({"id": b'"a"', "index": b"0"}, b'"{\\"id\\":\\"P1\\"}"', 0)


def test_a_result_names_its_call_and_has_the_panels_text() -> None:
    assert orjson.loads(CALL.result(lambda panel: f"<{panel}>")) == {
        "role": "tool",
        "tool_call_id": "a",
        "content": "<P1>",
    }


def test_a_text_with_half_a_surrogate_pair_can_be_sent() -> None:
    assert b'"content":"\\ud83d"' in CALL.result(lambda panel: "\ud83d")


def test_messages_are_added_at_the_end_and_nothing_else_changes() -> None:
    body = b'{ "messages" : [ {"role":"user"} ] ,\n"x":1.0, "model":"m"}'
    found = continued_request(body, b'{"m":1}', [b'{"r":1}', b'{"r":2}'])
    assert found == b'{ "messages" : [ {"role":"user"} ,{"m":1},{"r":1},{"r":2}] ,\n"x":1.0, "model":"m"}'


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"messages":[]}', b'{"messages":[ ]}', b'{"messages":1}', b"\xff"])
def test_a_request_without_messages_is_not_continued(body: bytes) -> None:
    assert continued_request(body, b"{}", []) is None


def test_a_call_goes_back_under_the_name_of_the_tool() -> None:
    assert orjson.loads(CALL.raw)["function"]["name"] == PANEL_TOOL

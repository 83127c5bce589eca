"""The operator's text in front of the client's system text."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.request.parsed_body import parse_body
from proxy.core.request.system_text import with_system
from proxy.core.wire.json_body import Unreadable

USER = {"role": "user", "content": "Hello"}


def sent(messages: list[object], text: str = "Rules.") -> list[object]:
    body = orjson.dumps({"model": "m", "messages": messages, "temperature": 0.5})
    found = orjson.loads(with_system(parse_body(body), text))
    assert found.pop("temperature") == 0.5
    assert found.pop("model") == "m"
    messages_sent: list[object] = found.pop("messages")
    assert not found
    return messages_sent


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_text_stands_in_front_of_the_clients_own_with_a_blank_line(role: str) -> None:
    own = {"role": role, "content": "Be kind.", "name": "n"}
    assert sent([own, USER]) == [{**own, "content": "Rules.\n\nBe kind."}, USER]


def test_parts_of_the_clients_stay_whole() -> None:
    part = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    own = {"role": "system", "content": [part]}
    assert sent([own, USER]) == [{"role": "system", "content": [{"type": "text", "text": "Rules.\n\n"}, part]}, USER]


@pytest.mark.parametrize(
    "first",
    [USER, {"role": "system", "content": None}, *({"role": odd, "content": "x"} for odd in (7, ["system"], {"a": 1}))],
)
def test_without_a_system_text_there_is_a_message_in_front(first: object) -> None:
    assert sent([first]) == [{"role": "system", "content": "Rules."}, first]


def test_an_empty_system_text_gets_no_blank_line() -> None:
    assert sent([{"role": "system", "content": ""}]) == [{"role": "system", "content": "Rules."}]


def test_an_empty_array_gets_the_message() -> None:
    assert sent([]) == [{"role": "system", "content": "Rules."}]


@pytest.mark.parametrize("body", [b'{"model":"m"}', b'{"messages":{}}', b'{"messages":[1]}', b'{"messages":null}'])
def test_what_is_no_array_of_messages_is_not_edited(body: bytes) -> None:
    with pytest.raises(Unreadable):
        with_system(parse_body(body), "Rules.")


@given(st.text(), st.text(), st.sampled_from(['{{ "messages" : [ {} , {{"role":"user","content":"x"}} ] , "n":1.0}}']))
def test_all_other_bytes_stay(own: str, text: str, form: str) -> None:
    first = orjson.dumps({"role": "system", "content": own}).decode()
    body = form.format(first).encode()
    found = with_system(parse_body(body), text or "x")
    start, end = body.index(first.encode()), body.index(first.encode()) + len(first.encode())
    assert found.startswith(body[:start])
    assert found.endswith(body[end:])
    assert orjson.loads(found)["messages"][0]["content"] == (f"{text or 'x'}\n\n{own}" if own else text or "x")

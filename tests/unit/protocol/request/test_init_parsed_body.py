"""The head of a body, its changes, and the operator's texts in it: every other byte stays."""

import json
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.protocol.request import (
    BodyChanges,
    Inset,
    head_of,
    inset_body,
    parse_body,
    placed,
    untouched,
    with_inset,
    with_system,
)
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.wire.json_body import Unreadable
from tests.examples import for_every
from tests.talk import Body, as_parts, calling, chat, result, text_part, user


def test_the_members_that_decide() -> None:
    head = head_of(b'{"messages": [], "model": "m", "stream": true, "stream_options": {"include_usage": true}}')
    assert (head.model, head.stream, head.wants_usage, head.asked) == ("m", True, True, {})
    assert head.members is not None


@pytest.mark.parametrize("rest", [b"", b', "x": "\\ud800"', b', "x": NaN'])
def test_the_members_that_cost_money_are_found_however_the_body_is_read(rest: bytes) -> None:
    asked = head_of(b'{"n": 3, "max_tokens": "50"' + rest + b"}").asked
    assert {name: bytes(raw) for name, raw in asked.items()} == {"n": b"3", "max_tokens": b'"50"'}


@pytest.mark.parametrize(
    "body", [b"{}", b'{"model": 7, "stream": "yes", "stream_options": [], "max_tokens": true}', b'{"model": null}']
)
def test_odd_values_count_as_absent(body: bytes) -> None:
    head = head_of(body)
    assert (head.model, head.stream, head.wants_usage) == ("", False, False)


@pytest.mark.parametrize("body", [b"", b"[]", b"nope", b'{"model": "m"', b'"text"', b"\xff", b'{"a": "\x00"'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        head_of(body)
    assert caught.value.code == "invalid_json"


@for_every(product(["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"], [1, 1_000_000]))
def test_what_is_not_utf8_is_refused_as_that(encoding: str, size: int) -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8 but looks like UTF-") as caught:
        head_of(f'{{"model": "m", "messages": [{{"role": "user", "content": "{"x" * size}"}}]}}'.encode(encoding))
    assert caught.value.code == "invalid_encoding"


@pytest.mark.parametrize("depth", [1_100, 1_000_000])
def test_what_is_nested_too_deeply_is_refused_as_that(depth: int) -> None:
    for body in (b'{"model": "m", "x": ' + b"[" * depth + b"]" * depth + b"}", b'{"x":' * depth + b"1" + b"}" * depth):
        with pytest.raises(InvalidRequest, match="nested too deeply") as caught:
            head_of(body)
        assert caught.value.code == "too_deep"


def test_untouched_is_the_clients_bytes_but_for_three_members() -> None:
    body = b'{ "model":"mine", "messages" : [ {"a":1.0} ],"stream":true ,"stratiform":{},"x":"\\u00e9"}'
    sent = untouched(head_of(body), "theirs")
    assert sent == (
        b'{"model":"theirs","messages":[ {"a":1.0} ],"stream":true,"x":"\\u00e9",'
        b'"stream_options":{"include_usage":true}}'
    )
    same = b'{ "model":"m", "messages" : 7}'
    assert untouched(head_of(same), "m") is same


def test_what_cannot_be_taken_apart_is_renamed_where_the_member_stands_once() -> None:
    body = b'{"model": "m", "\\ud800": 1}'
    assert untouched(head_of(body), "m") is body
    assert untouched(head_of(body), "theirs") == b'{"model": "theirs", "\\ud800": 1}'
    inner = b'{"\\ud800": {"model": "m"}, "\\u006dodel" :"m"}'
    assert untouched(head_of(inner), "theirs") == b'{"\\ud800": {"model": "m"}, "\\u006dodel" :"theirs"}'
    twice = b'{"model": "m", "\\ud800": 1, "model": "m"}'
    assert untouched(head_of(twice), "theirs") is twice


TEXTS = st.lists(st.text(max_size=4), min_size=1, max_size=5)


def changed(body: bytes, members: dict[str, bytes | None], new: dict[int, Any]) -> bytes:
    reader = RequestReader(bytes_over_four, [], 1 << 20)
    parsed = reader.parse(body)
    reader.read(parsed)
    return BodyChanges(parsed, members, {index: json.dumps(one).encode() for index, one in new.items()}).body()


@pytest.mark.parametrize("front", ["", '"seed" : 1 , "seed" : 1 , '], ids=["places known", "a name stands twice"])
@given(TEXTS, st.data())
def test_only_what_is_named_changes(front: str, texts: list[str], data: st.DataObject) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    body = f'{{ {front}"model" : "m" , "messages" : {json.dumps(messages)}, "top_p" : 1.0 }}'.encode()
    indices = data.draw(st.sets(st.integers(0, len(texts) - 1)))
    new = {index: {"role": "user", "content": f"new {index}"} for index in indices}
    members: dict[str, bytes | None] = data.draw(
        st.sampled_from([{}, {"model": b'"n"'}, {"top_p": None, "user": b'"u"'}])
    )
    found = changed(body, members, new)
    expected = {**json.loads(body), "messages": [new.get(i, one) for i, one in enumerate(messages)]}
    for name, raw in members.items():
        expected.pop(name, None)
        expected |= {} if raw is None else {name: json.loads(raw)}
    assert json.loads(found) == expected
    if not members and not new:
        assert found == body
    elif not members and not front:
        at = body.index(json.dumps(messages).encode())
        assert found[:at] == body[:at]
        assert found.endswith(b', "top_p" : 1.0 }')


PICTURE: Body = {"type": "image_url", "image_url": {"url": "u"}}
BOTH = Inset("Read this.", "Be brief.")


@pytest.mark.parametrize(
    ("message", "inset", "expected"),
    [
        (user("do it"), BOTH, user("Read this.\n\ndo it\n\nBe brief.")),
        (user("do it", name="ann"), Inset(after="Be brief."), user("do it\n\nBe brief.", name="ann")),
        (user("do it"), Inset("Read this."), user("Read this.\n\ndo it")),
        (user(""), BOTH, user("Read this.\n\n\n\nBe brief.")),
        (user([text_part("x")]), BOTH, user(list(map(text_part, ["Read this.\n\n", "x", "\n\nBe brief."])))),
        (user([PICTURE]), Inset("Read this."), user([text_part("Read this.\n\n"), PICTURE])),
        (user([]), Inset(after="Be brief."), user([text_part("\n\nBe brief.")])),
    ],
)  # fmt: skip
def test_texts_stand_around_the_clients_own(message: Body, inset: Inset, expected: Body) -> None:
    assert json.loads(with_inset(json.dumps(message).encode(), inset)) == expected


@pytest.mark.parametrize(
    "raw", [b'{"role":"user"}', b'{"role":"user","content":null}', b'{"role":"user","content": 7}']
)
def test_a_message_without_a_text_or_parts_is_left_alone(raw: bytes) -> None:
    assert with_inset(raw, BOTH) == raw


def test_no_text_changes_no_byte() -> None:
    raw = b'{ "role": "user", "content": "x" }'
    assert with_inset(raw, Inset()) is raw


@given(st.text(), st.text(st.characters(exclude_categories=[]), max_size=9), st.text(max_size=9))
def test_the_clients_text_is_in_it_whole(text: str, before: str, after: str) -> None:
    written: Any = json.loads(with_inset(json.dumps(user(text)).encode(), Inset(before, after)))
    front, back = (f"{before}\n\n" if before else ""), (f"\n\n{after}" if after else "")
    assert written["content"] == front + text + back


def test_a_later_text_stands_behind_the_first() -> None:
    assert Inset("a", "b").followed_by("c") == Inset("a", "b\n\nc")
    assert Inset("a").followed_by("c") == Inset("a", "c")
    assert BOTH.followed_by("") == BOTH


def test_texts_of_before_are_placed_in_front_of_the_newest_user_message_only() -> None:
    asked = [False, True, False, True, False]
    earlier = {-1: BOTH, 0: BOTH, 1: BOTH, 2: BOTH, 3: BOTH, 4: BOTH, 9: BOTH}
    assert placed(asked, Inset("new"), earlier) == {1: BOTH, 3: Inset("new")}
    assert placed(asked, Inset(), {1: Inset()}) == {}
    assert placed([False], BOTH, {}) == {}


def test_results_in_a_users_message_get_no_texts() -> None:
    question, *loop = as_parts(user("do it"), calling("1"), result("1", "x"))
    done = json.loads(inset_body(json.dumps(chat(question, *loop)).encode(), BOTH))
    assert done["messages"] == [user("Read this.\n\ndo it\n\nBe brief."), *loop]


def test_a_body_keeps_every_other_byte() -> None:
    first, last = b'{ "role": "user", "content": "a" }', b'{"content": "b\\u0041", "role": "user"}'
    body = b'{"x": 1.0, "messages" : [\n %s ,\n {"role":"assistant","content":null}, %s\n ], "y":[ ]}' % (first, last)
    done = inset_body(body, Inset("in front"), {0: Inset(after="then")})
    new_first, new_last = b'{"role":"user","content":"a\\n\\nthen"}', b'{"content":"in front\\n\\nbA","role":"user"}'
    assert done == body.replace(first, new_first).replace(last, new_last)


def test_of_two_members_of_one_name_the_last_counts() -> None:
    body = b'{"messages":[], "messages":[{"role":"user","content":"a"}],"z":1}'
    assert json.loads(inset_body(body, Inset("in front"))) == {"messages": [user("in front\n\na")], "z": 1}


@pytest.mark.parametrize(
    "body",
    [b'{"messages":[]}', b"{}", b'{"messages":[7,{"role":7},{"content":"a"},[]]}', b'{"messages":[{"role":"system"}]}'],
)
def test_a_body_without_a_user_message_is_as_it_was(body: bytes) -> None:
    assert inset_body(body, BOTH) is body


def test_messages_that_are_none_raise() -> None:
    with pytest.raises(Unreadable):
        inset_body(b'{"messages":{}}', BOTH)
    assert inset_body(b'{"messages":{}}', Inset()) == b'{"messages":{}}'


HELLO = {"role": "user", "content": "Hello"}


def begun(messages: list[object], text: str = "Rules.") -> list[object]:
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
    assert begun([own, HELLO]) == [{**own, "content": "Rules.\n\nBe kind."}, HELLO]


def test_parts_of_the_clients_stay_whole() -> None:
    part = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    own = {"role": "system", "content": [part]}
    assert begun([own, HELLO]) == [{"role": "system", "content": [{"type": "text", "text": "Rules.\n\n"}, part]}, HELLO]


@pytest.mark.parametrize(
    "first",
    [HELLO, {"role": "system", "content": None}, *({"role": odd, "content": "x"} for odd in (7, ["system"], {"a": 1}))],
)
def test_without_a_system_text_there_is_a_message_in_front(first: object) -> None:
    assert begun([first]) == [{"role": "system", "content": "Rules."}, first]


def test_an_empty_system_text_gets_no_blank_line() -> None:
    assert begun([{"role": "system", "content": ""}]) == [{"role": "system", "content": "Rules."}]


def test_an_empty_array_gets_the_message() -> None:
    assert begun([]) == [{"role": "system", "content": "Rules."}]


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

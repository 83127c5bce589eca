import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.protocol.request import ParsedBody, parse_body
from proxy.protocol.wire.json_body import (
    MAX_LINE_CHARS,
    Unreadable,
    elements,
    join_members,
    members_of,
    one_line,
    parse_members,
    splice,
    value,
)

MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'


def spliced(body: bytes, **changes: bytes | None) -> bytes:
    return splice(body, parse_members(body), changes)


class TestParseChat:
    def test_reads_what_decides_about_the_answer(self) -> None:
        request = parse_body(
            b'{"model":"m","stream":true,"stream_options":{"include_usage":true},' + MESSAGES + b"}"
        ).chat()
        assert (request.model, request.usage_asked()) == ("m", None)
        assert [bytes(raw) for raw in request.unread()] == [b'{"role":"user","content":"hi"}']

    @pytest.mark.parametrize(
        ("body", "code", "param"),
        [
            (b"", "invalid_json", None),
            (b"nonsense", "invalid_json", None),
            (b"[1]", "invalid_json", None),
            (b'"text"', "invalid_json", None),
            (b'{"model":"m"', "invalid_json", None),
            (b'{"model":"m"}', "missing_messages", "messages"),
            (b'{"model":"m","messages":[]}', "missing_messages", "messages"),
            (b'{"model":"m","messages":{}}', "invalid_type", "messages"),
            (b'{"model":"m","messages":null}', "invalid_type", "messages"),
            (b"{" + MESSAGES + b"}", "missing_model", "model"),
            (b'{"model":"",' + MESSAGES + b"}", "missing_model", "model"),
            (b'{"model":7,' + MESSAGES + b"}", "missing_model", "model"),
        ],
    )
    def test_what_is_no_chat_request_is_a_client_error(self, body: bytes, code: str, param: str | None) -> None:
        with pytest.raises(InvalidRequest) as error:
            parse_body(body).chat()
        assert (error.value.code, error.value.param, error.value.status) == (code, param, 400)

    @pytest.mark.parametrize(
        "body",
        [
            b'{"model":"m","temperature":NaN,' + MESSAGES + b"}",
            b'\xef\xbb\xbf{"model":"m",' + MESSAGES + b"}",
            b'{"\\ud800":1,"model":"m",' + MESSAGES + b"}",
            b'{"model":"\\ud800",' + MESSAGES + b"}",
        ],
        ids=["NaN", "byte order mark", "lone surrogate in a key", "lone surrogate in the model"],
    )
    def test_what_only_we_cannot_read_is_not_the_clients_fault(self, body: bytes) -> None:
        with pytest.raises(Unreadable):
            parse_body(body).chat()

    def test_members_that_were_cut_before_are_not_cut_again(self) -> None:
        body = b'{"model":"m",' + MESSAGES + b"}"
        members = parse_members(body)
        assert ParsedBody(body, members).chat().members is members


class TestSplice:
    def test_every_other_byte_stays(self) -> None:
        body = (
            b' {\n "model" :\t"m" , "temperature": 1.0,"big":123456789012345678901234567890,'
            b'"float":1e2, "text":"\\u00e9\\/\\"}{" ,"messages": [ {"role": "user" } ] }\r\n'
        )
        assert spliced(body, model=b'"other"') == body.replace(b'"m"', b'"other"')

    def test_an_escaped_key_is_the_key_that_it_spells(self) -> None:
        assert spliced(b'{"mod\\u0065l":"m","a":1}', model=b'"x"') == b'{"mod\\u0065l":"x","a":1}'

    def test_a_new_member_stands_at_the_end(self) -> None:
        assert spliced(b'{"a":1 }  ', b=b"2", c=b"3") == b'{"a":1 ,"b":2,"c":3}  '
        assert spliced(b"{}", a=b"1") == b'{"a":1}'

    def test_nothing_to_change_is_the_same_object(self) -> None:
        body = b'{"a": 1}'
        assert spliced(body) is body
        assert spliced(body, b=None) is body

    def test_a_removed_member_is_gone_and_the_values_of_others_stay(self) -> None:
        assert spliced(b'{ "a": 1.0, "stratiform": {"x": 1}, "b": "\\u00e9" }', stratiform=None) == (
            b'{"a":1.0,"b":"\\u00e9"}'
        )

    def test_a_key_that_stands_twice_keeps_the_value_that_parsers_take(self) -> None:
        out = spliced(b'{"a":1,"b":2,"a":3}', b=b"4")
        assert json.loads(out) == {"a": 3, "b": 4}

    @given(
        st.dictionaries(
            st.text(max_size=6),
            st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none(),
                      st.lists(st.text(max_size=4), max_size=3)),
            max_size=6,
        ),
        st.dictionaries(st.text(max_size=6), st.one_of(st.none(), st.integers()), max_size=3),
        st.sampled_from([None, 1, "\t"]),
        st.booleans(),
    )  # fmt: skip
    def test_any_object_means_the_same_but_for_the_change(
        self, before: dict[str, object], change: dict[str, int | None], indent: int | str | None, ascii_only: bool
    ) -> None:
        body = json.dumps(before, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        try:
            members = parse_members(body)
        except Unreadable:
            return
        raw = {key: None if new is None else json.dumps(new).encode() for key, new in change.items()}
        expected = dict(before)
        for key, new in change.items():
            if new is None:
                expected.pop(key, None)
            else:
                expected[key] = new
        out = json.loads(splice(body, members, raw))
        assert out == expected
        assert list(out) == list(expected)


class TestJoin:
    def test_same_values_same_order(self) -> None:
        members = members_of(b'{"b": 1.0 , "a": [ 1 , 2 ]}')
        assert join_members(members, {}) == b'{"b":1.0,"a":[ 1 , 2 ]}'

    def test_replaced_removed_added(self) -> None:
        members = members_of(b'{"a":1,"b":2}')
        assert join_members(members, {"a": None, "b": b"3", "c": b"4", "d": None}) == b'{"b":3,"c":4}'

    def test_keys_are_escaped(self) -> None:
        assert join_members({}, {'a"b': b"1"}) == b'{"a\\"b":1}'


class TestPieces:
    def test_elements_stay_as_they_were_written(self) -> None:
        assert [bytes(raw) for raw in elements(b'[ {"a": 1.0} ,2 ]')] == [b'{"a": 1.0}', b"2"]

    @pytest.mark.parametrize("raw", [b"{}", b"null", b'"x"', b"1", b"[" * 5000])
    def test_what_is_no_array(self, raw: bytes) -> None:
        with pytest.raises(Unreadable):
            elements(raw)

    @pytest.mark.parametrize("raw", [b"[]", b"null", b'"x"', b"1"])
    def test_what_is_no_object(self, raw: bytes) -> None:
        with pytest.raises(Unreadable):
            members_of(raw)

    def test_values(self) -> None:
        assert value(msgspec.Raw(b'{"a":[1,null]}')) == {"a": [1, None]}
        with pytest.raises(Unreadable):
            value(b'"\\ud800"')
        with pytest.raises(Unreadable):
            value(b'"\xff"')


@pytest.mark.parametrize("raw", [b'{"\xff":1}', b'{"a":1,"\xc3":2}'])
def test_names_that_are_no_text_cannot_be_read(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        members_of(raw)


@pytest.mark.parametrize(("count", "is_read"), [(10_000, True), (10_001, False)])
def test_an_object_has_up_to_ten_thousand_members(count: int, is_read: bool) -> None:
    body = json.dumps({f"m{number}": 1 for number in range(count)}).encode()
    if is_read:
        assert len(parse_members(body)) == count
    else:
        with pytest.raises(Unreadable):
            parse_members(body)


def test_what_clients_name_is_cut_and_kept_on_one_line() -> None:
    assert one_line("a\r\nb\u2028c\x1b[31m") == "abc[31m"
    assert len(one_line("x" * 1000)) == MAX_LINE_CHARS

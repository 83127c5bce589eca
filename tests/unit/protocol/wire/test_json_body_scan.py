"""Members of bodies that are not taken apart."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.wire import has_more_commas, json_body, names_in
from proxy.protocol.wire.json_body import PIECE_BYTES, counted, folded, join_members, scan_members
from tests.examples import for_every, sampled
from tests.growth import assert_linear

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.tuples(st.text(max_size=5), JSON), max_size=6), st.sampled_from(["", " ", "\n\t"]), st.booleans())
def test_every_member_is_found_in_its_order(pairs: list[tuple[str, object]], space: str, is_ascii: bool) -> None:
    written = [(json.dumps(k, ensure_ascii=is_ascii), json.dumps(v, ensure_ascii=is_ascii)) for k, v in pairs]
    text = space + "{" + space + f"{space},{space}".join(f"{k}{space}:{space}{v}" for k, v in written) + "}" + space
    found = scan_members(text.encode("utf-8", "surrogatepass"))
    assert found is not None
    assert [(m.name, m.value.decode("utf-8", "surrogatepass")) for m in found] == [
        (k, v) for (k, _), (_, v) in zip(pairs, written, strict=True)
    ]
    names = json.loads(join_members({member.name: member.value for member in found}, {}))
    assert list(names) == list(dict(pairs))


@for_every(
    [
        b"", b"[]", b"x", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,}', b'{"a":1} x', b'{"a":1}{"a":2}',
        b'{"a":1}\x00', b"{'a':1}", b"{a:1}", b'{"a":1 "b":2}', b'{"a":[1}', b'{"a":"x}', b'{"a":["x}', b'{"\\x":1}',
        b'{/**/"a":1}', b'{"' + b"a" * 2000 + b'":1}', b"{" + b",".join(b'"%d":1' % n for n in range(1001)) + b"}",
    ]
)  # fmt: skip
def test_a_body_that_is_not_understood_has_no_members(body: bytes) -> None:
    assert scan_members(body) is None


def test_names_are_read_as_they_mean() -> None:
    found = scan_members(b'{"\\u006dodel":1,"mo\\u0000del":NaN,"m\\"":"\\ud800"}')
    assert found is not None
    assert {member.name: member.value for member in found} == {"model": b"1", "mo\x00del": b"NaN", 'm"': b'"\\ud800"'}


@pytest.mark.parametrize("inner", [b'"",', b"[],", b'{"":0},', b'"\\"\\\\",', b"[[[]]],", b'"' + b"x" * 99 + b'",'])
def test_the_time_of_a_scan_grows_with_the_bytes(inner: bytes) -> None:
    assert_linear(scan_members, lambda size: b'{"a":[' + inner * (size // len(inner)) + b'0],"b":1}', 100_000)


@given(
    st.dictionaries(st.text(max_size=20), JSON, max_size=6),
    st.integers(2, 40),
    st.sampled_from([0, 1]),
    st.sampled_from([b"", b"}", b'"']),
)
def test_pieces_of_any_length_show_the_same(body: dict[str, object], size: int, cut: int, more: bytes) -> None:
    text = json.dumps(body, indent=2).encode()
    text = text[: len(text) - cut] + more
    whole = scan_members(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_body, "PIECE_BYTES", size)
        assert scan_members(text) == whole


@pytest.mark.parametrize("value", sampled([b'"%s"', b'["%s"]', b"[[[[%s", b'{"a":{"b":[{"c":"%s"}]}}', b"9%s"], 3))
@pytest.mark.parametrize("unit", [b"x", b'\\"', b'",', b"[],", b" ", b'"x":{"y":1},'])
def test_no_call_looks_at_more_than_a_piece(value: bytes, unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Watched:
        def __init__(self, pattern: re.Pattern[bytes]) -> None:
            self._pattern = pattern

        def match(self, body: bytes, at: int, end: int) -> re.Match[bytes] | None:
            looked.append(min(end, len(body)) - at)
            return self._pattern.match(body, at, end)

    for name, pattern in vars(json_body).copy().items():
        if isinstance(pattern, re.Pattern):
            monkeypatch.setattr(json_body, name, Watched(pattern))
    body = b'{"a":' + value % (unit * ((2 << 20) // len(unit))) + b"}"
    scan_members(body)
    assert max(looked) <= json_body.PIECE_BYTES
    assert sum(looked) < 8 * len(body) + 100 * json_body.PIECE_BYTES


@pytest.mark.parametrize(
    "name", ["messages", "Messages", " messages", "mess\u200bages", "me\u017f\u017fages", "ｍessages"]
)
def test_a_name_that_a_lenient_server_takes_for_another_is_that_one(name: str) -> None:
    assert folded(name) == "messages"


def test_other_names_stay_what_they_are() -> None:
    assert folded("message_s") == "message_s"


texts = st.text(st.sampled_from('",\\{}[]:é a'), max_size=8)
nested = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def commas_of(value: object) -> int:
    if isinstance(value, dict):
        return max(0, len(value) - 1) + sum(map(commas_of, value.values()))
    if isinstance(value, list):
        return max(0, len(value) - 1) + sum(map(commas_of, value))
    return 0


@given(nested, st.booleans())
def test_only_commas_outside_of_strings_count(value: object, is_ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii).encode()
    commas = commas_of(value)
    assert not has_more_commas(raw, commas)
    assert not commas or has_more_commas(raw, commas - 1)


@pytest.mark.parametrize("shift", sampled(range(-8, 4), 4))
@pytest.mark.parametrize("text", [",", "\\", '"', "\\,", 'é",'])
def test_strings_are_longer_than_a_piece(shift: int, text: str) -> None:
    long = "x" * (PIECE_BYTES + shift) + text * 20
    raw = json.dumps([long, long, 3], ensure_ascii=False).encode()
    assert not has_more_commas(raw, 2)
    assert has_more_commas(raw, 1)


def test_a_string_without_an_end_ends_the_count() -> None:
    assert not has_more_commas(b'[1,"' + b"," * 100, 1)
    assert not has_more_commas(b'[1,"\\', 1)
    assert has_more_commas(b"1,2,3,", 2)


def names_of(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(names_of, value.values()))
    return sum(map(names_of, value)) if isinstance(value, list) else 0


hard_texts = st.text(st.sampled_from('":\\,[{ \n\ta'), max_size=4)
hard_values = st.recursive(
    hard_texts | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(hard_texts, inner, max_size=4),
    max_leaves=20,
)
formats = st.tuples(st.sampled_from([",", " , ", ",\n"]), st.sampled_from([":", ": ", " : ", ":\t"]))


@given(hard_values, formats)
def test_no_text_within_a_string_is_taken_for_a_name(value: object, separators: tuple[str, str]) -> None:
    assert names_in(json.dumps([value], separators=separators).encode()) <= names_of(value)


@given(st.recursive(hard_texts, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)))
def test_plain_names_are_all_counted(value: object) -> None:
    assert names_in(json.dumps([value]).encode()) == names_of(value)


@for_every(range(PIECE_BYTES - 12, PIECE_BYTES + 4))
def test_names_between_two_pieces_count_once(before: int) -> None:
    raw = json.dumps({"x" * before: ":", "b": 'c":', "d": ['":'], "e": {}}).encode()
    assert names_in(raw) == 4
    assert counted(raw, b":") == raw.count(b":")


@pytest.mark.parametrize("part", [b'"",', b'"\\"",', b",", b'"', b"\\", b"x,"])
def test_counting_is_linear(part: bytes) -> None:
    assert_linear(lambda raw: has_more_commas(raw, 10**9), lambda size: part * size, 60_000)
    assert_linear(names_in, lambda size: part * size, 60_000)
    assert_linear(lambda raw: has_more_commas(raw, len(raw) // 3), lambda size: part * size, 60_000)

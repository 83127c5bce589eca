"""Members of bodies that are not taken apart."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.wire import scan
from proxy.core.wire.scan import folded, once, scan_members, values
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
    names = json.loads(once(found).decode("utf-8", "surrogatepass"))
    assert list(names) == list(dict(pairs)) == list(values(found))


@for_every(
    [
        b"",
        b"[]",
        b"x",
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,}',
        b'{"a":1} x',
        b'{"a":1}{"a":2}',
        b'{"a":1}\x00',
        b"{'a':1}",
        b"{a:1}",
        b'{"a":1 "b":2}',
        b'{"a":[1}',
        b'{"a":"x}',
        b'{"a":["x}',
        b'{"\\x":1}',
        b'{/**/"a":1}',
        b'{"' + b"a" * 2000 + b'":1}',
        b"{" + b",".join(b'"%d":1' % n for n in range(1001)) + b"}",
    ]
)
def test_a_body_that_is_not_understood_has_no_members(body: bytes) -> None:
    assert scan_members(body) is None


def test_names_are_read_as_they_mean() -> None:
    found = scan_members(b'{"\\u006dodel":1,"mo\\u0000del":NaN,"m\\"":"\\ud800"}')
    assert found is not None
    assert values(found) == {"model": b"1", "mo\x00del": b"NaN", 'm"': b'"\\ud800"'}


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
        patch.setattr(scan, "PIECE_BYTES", size)
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

    for name, pattern in vars(scan).copy().items():
        if isinstance(pattern, re.Pattern):
            monkeypatch.setattr(scan, name, Watched(pattern))
    body = b'{"a":' + value % (unit * ((2 << 20) // len(unit))) + b"}"
    scan_members(body)
    assert max(looked) <= scan.PIECE_BYTES
    assert sum(looked) < 8 * len(body) + 100 * scan.PIECE_BYTES


@pytest.mark.parametrize(
    "name", ["messages", "Messages", " messages", "mess\u200bages", "me\u017f\u017fages", "ｍessages"]
)
def test_a_name_that_a_lenient_server_takes_for_another_is_that_one(name: str) -> None:
    assert folded(name) == "messages"


def test_other_names_stay_what_they_are() -> None:
    assert folded("message_s") == "message_s"

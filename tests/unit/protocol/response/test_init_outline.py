"""The outline of a long JSON text: what it says of itself stays, whatever its strings quote and however it is cut."""

import tracemalloc

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.response import MOST_BYTES, Outline
from tests.examples import examples

USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
_TEXT = st.sampled_from(
    ["", "usage", 'a "quoted\\" \n text', '{"usage": {"prompt_tokens": 1}}', "é\U0001f600", "[", "x" * 2000]
)
_LEAF = st.none() | st.booleans() | st.integers(-9, 10**18) | st.just(-2.5e-9) | _TEXT | st.just([0.25] * 400)
_JSON = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4))


def outline(text: bytes, step: int) -> bytes:
    """The outline of a text that comes in pieces of that length."""
    found = Outline()
    for at in range(0, len(text), step):
        found.feed(text[at : at + step])
    return found.text()


@settings(max_examples=examples(150), deadline=None)
@given(_JSON, _JSON, st.integers(1, 50), st.booleans())
def test_an_outline_is_json_and_has_the_usage_however_the_text_is_cut(
    front: object, back: object, step: int, wide: bool
) -> None:
    whole = {"a": front, "usage": USAGE, "z": {"usage": back}}
    text = orjson.dumps(whole, option=orjson.OPT_INDENT_2 if wide else None)
    found = orjson.loads(outline(text, step))
    assert found["usage"] == USAGE
    assert found == orjson.loads(outline(text, len(text)))
    assert found.keys() == whole.keys()


@pytest.mark.parametrize("wrap", [b"%b", b'{"response":%b}'])
def test_the_usage_stays_behind_a_member_that_fills_the_outline(wrap: bytes) -> None:
    for room in (-16, 0, 16, 40, 64, 100):
        items = b'{"a":1},' * ((MOST_BYTES - room) // 8)
        outline = Outline()
        outline.feed(wrap % (b'{"output":[%b{}],"usage":{"input_tokens":7}}' % items))
        found = orjson.loads(outline.text())
        assert found.get("response", found)["usage"] == {"input_tokens": 7}


def test_what_is_long_is_left_out_and_what_is_small_stays() -> None:
    whole = {"data": [{"embedding": [0.5] * 9000, "text": "y" * 9000, "index": n} for n in range(3)], "usage": USAGE}
    found = orjson.loads(outline(orjson.dumps(whole), 1000))
    assert found == {"data": [{"embedding": [0], "text": "", "index": n} for n in range(3)], "usage": USAGE}


@pytest.mark.slow
def test_a_member_of_which_there_is_too_much_becomes_null() -> None:
    many = [{"n": n, "of": {"deep": [n, [n]]}} for n in range(12_000)]
    for whole, usage in (
        ({"many": many, "usage": USAGE}, ("usage",)),
        ({"type": "e", "response": {"many": many, "usage": USAGE}}, ("response", "usage")),
    ):
        found = orjson.loads(outline(orjson.dumps(whole), 60_000))
        for name in usage:
            found = found[name]
        assert found == USAGE
    nested = b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b', "usage": {"prompt_tokens": 1}}'
    assert orjson.loads(outline(nested, 60_000))["usage"] == {"prompt_tokens": 1}


@pytest.mark.slow
@pytest.mark.parametrize("count", [40_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_too_many_members_and_what_is_no_json_are_bounded(count: int) -> None:
    for text in (
        b"{" + b'"a":"bcd",' * count,
        b"]" * count,
        b'"' * (count + 1),
        b"1" * count,
        b"\\" * count,
    ):
        tracemalloc.start()
        found = outline(text, 1 << 16)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(found) <= MOST_BYTES + (1 << 18)
        assert peak < 4 << 20

"""The head of a request body."""

from itertools import product

import pytest

from proxy.core.request.parsed_body import head_of, untouched
from proxy.errors import InvalidRequest
from tests.examples import for_every


def test_the_members_that_decide() -> None:
    head = head_of(b'{"messages": [], "model": "m", "stream": true, "stream_options": {"include_usage": true}}')
    assert (head.model, head.stream, head.wants_usage, head.asked) == ("m", True, True, {})
    assert head.members is not None


@pytest.mark.parametrize("rest", [b"", b', "x": "\\ud800"', b', "x": NaN'])
def test_the_members_that_cost_money_are_found_however_the_body_is_read(rest: bytes) -> None:
    asked = head_of(b'{"n": 3, "max_tokens": "50"' + rest + b"}").asked
    assert asked is not None
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


def test_a_lone_surrogate_does_not_hide_the_model() -> None:
    head = head_of(b'{"model": "m", "stream": true, "user": "\\ud800", "\\ud800": 1}')
    assert (head.model, head.stream) == ("m", True)


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

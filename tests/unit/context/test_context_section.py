"""The section of a request, taken apart."""

import pytest

from proxy.context import Section, section_of, split
from proxy.kit.errors import InvalidRequest
from tests.examples import for_every


@for_every(
    [
        (b'{"files":[]}', Section(rest=b'{"files":[]}')),
        (b"{}", Section(rest=b"{}")),
        (b"[1]", Section(rest=b"[1]")),
        (b"null", Section(rest=b"null")),
        (b'{"prompts":{"persona":"a"}}', Section(prompts=b'{"persona":"a"}')),
        (b'{"window": {"profile":"chat"} }', Section(window=b'{"profile":"chat"}')),
        (b'{"prompts":null,"files":[1],"window":7}', Section(None, b"7", b'{"files":[1]}')),
        (b'{"prompts":null}', Section()),
        (b'{"return_usage": true}', Section(returns_usage=True)),
        (b'{"return_break": true}', Section(returns_break=True)),
        (
            b'{"return_break": false, "return_usage": true, "files":[1]}',
            Section(rest=b'{"files":[1]}', returns_usage=True),
        ),
        (b'{"files":[1],"return_usage":false}', Section(rest=b'{"files":[1]}')),
        (b'{"return_usage":true,"window":7,"prompts":8}', Section(b"8", b"7", returns_usage=True)),
    ]
)
def test_each_part_is_found(raw: bytes, expected: Section) -> None:
    assert split(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b'{"window":{"prefix":"a"},"window":{"prefix":"b"}}',
        b'{"prompts":null,"prompts":{}}',
        b'{"prompts":{},"files":[],"files":[{"path":"a"}]}',
    ],
)
def test_a_field_that_stands_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        split(raw)
    assert (refused.value.code, refused.value.param) == ("duplicate_field", "stratiform")


def test_a_field_that_stands_twice_within_a_part_is_left_to_its_reader() -> None:
    raw = b'{"window":{"prefix":"\\":1","prefix":"b"},"session":"\\"a\\":"}'
    assert split(raw).window == b'{"prefix":"\\":1","prefix":"b"}'


@pytest.mark.parametrize("raw", [b"null", b" null", b"{}", b"{ \n}"])
def test_a_section_that_says_nothing_is_none(raw: bytes) -> None:
    assert section_of({"stratiform": raw}) is None


def test_a_body_without_members_or_without_the_section_has_none() -> None:
    assert section_of({"model": b'"m"'}) is None
    assert section_of(None) is None


@pytest.mark.parametrize("raw", [b'{"files":[]}', b"[]", b'""', b"0", b"false", b" " * 100 + b"{}", b'{"a":1}' * 20])
def test_a_section_that_says_anything_is_found(raw: bytes) -> None:
    assert section_of({"stratiform": raw}) == raw

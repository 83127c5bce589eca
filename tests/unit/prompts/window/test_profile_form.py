"""The section ``stratiform.window``: what each field becomes, and what a mistake in it is called."""

import json
from typing import Any

import pytest

from proxy.kit.errors import InvalidRequest
from proxy.prompts.window import MOST_FILES, VirtualFile, WindowParts, read_parts


def read(**fields: Any) -> WindowParts:
    return read_parts(json.dumps(fields).encode())


def refused(raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        read_parts(raw)
    assert error.value.status == 400
    return error.value


@pytest.mark.parametrize("raw", [b"null", b" null ", b"{}", b'{"prefix":null,"virtual_files":null}'])
def test_a_section_that_says_nothing_has_no_parts(raw: bytes) -> None:
    found = read_parts(raw)
    assert not found.profile
    assert not found.has_any


def test_each_part_is_read() -> None:
    texts = {name: f"the {name}" for name in ("instruction", "selection", "prefix", "suffix", "summary")}
    files = [{"id": "tool.py", "content": "x = 1", "active": True}, {"id": "b", "content": ""}]
    assert read(profile="mine", virtual_files=files, **texts) == WindowParts(
        profile="mine", virtual_files=(VirtualFile("tool.py", "x = 1", True), VirtualFile("b", "")), **texts
    )


def test_an_empty_part_is_there_and_a_missing_one_is_not() -> None:
    assert read(prefix="").texts == {"prefix": ""}


@pytest.mark.parametrize(
    ("raw", "param", "code"),
    [
        (b'{"prefix":1}', "stratiform.window.prefix", "invalid_type"),
        (b'{"prefx":"a"}', "stratiform.window.prefx", "unknown_field"),
        (b"[1]", "stratiform.window", "invalid_type"),
        (b'{"prefix":', "stratiform.window", "invalid_json"),
        (b'{"prefix":"\\ud800"}', "stratiform.window.prefix", "invalid_unicode"),
        (b'{"virtual_files":[{"content":"a"}]}', "stratiform.window.virtual_files[0].id", "missing_field"),
        (b'{"virtual_files":[{"id":"","content":"a"}]}', "stratiform.window.virtual_files[0].id", "invalid_value"),
    ],
)
def test_a_mistake_names_its_field(raw: bytes, param: str, code: str) -> None:
    error = refused(raw)
    assert (error.param, error.code) == (param, code)


def test_ids_of_files_are_distinct_and_one_file_is_active() -> None:
    twice = [{"id": "a", "content": ""}, {"id": "a", "content": ""}]
    assert refused(json.dumps({"virtual_files": twice}).encode()).code == "duplicate_id"
    both = [{"id": "a", "content": "", "active": True}, {"id": "b", "content": "", "active": True}]
    assert refused(json.dumps({"virtual_files": both}).encode()).param == "stratiform.window.virtual_files[1].active"


def test_there_may_be_so_many_files_and_no_more() -> None:
    files = [{"id": str(n), "content": "a, b, c", "active": n == 0} for n in range(MOST_FILES)]
    assert len(read(virtual_files=files).virtual_files) == MOST_FILES
    assert (
        refused(json.dumps({"virtual_files": [*files, {"id": "x", "content": ""}]}).encode()).code == "too_many_items"
    )
    assert refused(b'{"virtual_files":[' + b"1," * 50_000 + b"1]}").code == "too_many_items"


def test_a_mistake_never_quotes_the_text() -> None:
    assert "secret" not in refused(b'{"prefix":["secret"]}').message


@pytest.mark.parametrize(
    "raw",
    [
        b'{"prefix":"a","prefix":"a"}',
        b'{"prefix":null,"prefix":"a"}',
        b'{"virtual_files":[{"id":"a","content":"x","content":"y"}]}',
        b'{"virtual_files":[],"virtual_files":[{"id":"a","content":"x","active":null}]}',
    ],
)
def test_a_field_that_stands_twice_is_refused(raw: bytes) -> None:
    error = refused(raw)
    assert (error.param, error.code) == ("stratiform.window", "duplicate_field")


def test_text_that_looks_like_fields_is_text() -> None:
    json_text = json.dumps({"a": {"b": ["c", {"d": ""}]}})
    files = [{"id": json_text, "content": json_text, "active": None}]
    assert read(prefix=json_text, suffix=None, virtual_files=files).prefix == json_text


def test_a_profile_alone_names_no_part() -> None:
    assert not WindowParts("chat").has_any


@pytest.mark.parametrize("name", ["instruction", "selection", "prefix", "suffix", "summary"])
def test_an_empty_text_is_a_part(name: str) -> None:
    assert WindowParts(**{name: ""}).has_any


def test_a_virtual_file_is_a_part() -> None:
    assert WindowParts(virtual_files=(VirtualFile("tool.py", ""),)).has_any

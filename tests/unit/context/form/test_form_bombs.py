"""Sections that are built to be slow or large are refused at a small price."""

import json
import tracemalloc
from contextlib import suppress
from itertools import product

import pytest

from proxy.context.form import read_form
from proxy.kit.errors import InvalidRequest
from tests.examples import for_every, sampled
from tests.growth import assert_linear

MIB = 1 << 20


def many(field: bytes, element: bytes, size: int = 8 * MIB) -> bytes:
    elements = b",".join([element] * (size // (len(element) + 1)))
    return b'{"' + field + b'":[' + elements + b"]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "element"),
    sampled(
        [
            (b"files", b'{"path":""}'), (b"files", b'{"\\u0070ath" :""}'),
            (b"files", b'{"path":"a","content":"x,y"}'), (b"tree", b'"a"'), (b"removed", b'""'),
            (b"images", b'"data:"'), (b"symbols", b'{"path":"a","block":""}'), (b"broken", b'"L0"'),
        ],
        4,
    ),
)  # fmt: skip
def test_long_lists_are_not_built(field: bytes, element: bytes) -> None:
    raw = many(field, element)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest) as refused:
            read_form(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.code == "too_many_items"
    assert peak < MIB


@for_every(product([b"files", b"tree", b"review", b"panels", b"x"], [b"[", b'{"a":', b'[{"a":']))
def test_deep_nesting_is_refused(field: bytes, opening: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_form(b'{"' + field + b'":' + opening * 200_000)
    deep = opening * 200_000 + b"1" + b"".join({91: b"]", 123: b"}"}.get(c, b"") for c in reversed(opening)) * 200_000
    with pytest.raises(InvalidRequest):
        read_form(b'{"files":[{"path":"a","content":' + deep + b"}]}")


def test_files_full_of_commas_and_braces_are_read() -> None:
    text = 'f(a, b, {"x": [1, 2]}), ' * 40_000
    form = read_form(json.dumps({"files": [{"path": "a", "content": text}]}).encode())
    assert form.context.files[0].text == text


def section_of(kind: str, size: int) -> bytes:
    match kind:
        case "files":
            files = [{"path": f"src/{n}/../{n}.py", "digest": f"{n:064x}"} for n in range(size // 100)]
            return json.dumps({"files": files}).encode()
        case "equal files":
            return many(b"files", b'{"path":"a/./b"}', size)
        case "content":
            return b'{"files":[{"path":"a","content":"' + b'\\\\\\",x' * (size // 6) + b'"}]}'
        case "surrogates":
            return b'{"files":[{"path":"a","content":"' + b"\\ud83d" * (size // 6) + b'"}]}'
        case "unknown field":
            return b'{"' + b"x` - at `$" * (size // 10) + b'":1}'
        case "review":
            diffs = {f"p{n}\\x": "-" for n in range(size // 12)}
            return json.dumps({"review": {"reverse_diffs": diffs}}).encode()
        case "spaces":
            return b'{"files":[' + b" " * size + b"]}"
        case _:
            return b'{"files":' + b"[" * size


@for_every(["files", "equal files", "content", "surrogates", "unknown field", "review", "spaces", "nested"])
def test_reading_is_linear(kind: str) -> None:
    def work(raw: bytes) -> None:
        with suppress(InvalidRequest):
            read_form(raw)

    assert_linear(work, lambda size: section_of(kind, size), 40_000)

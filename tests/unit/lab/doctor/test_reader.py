"""Logs of every product become the same calls; what cannot be read costs its line and no other one."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.doctor import records
from proxy.lab.doctor.reader import NO_CALL, NO_CONTENT, read_calls
from proxy.lab.doctor.records import BROKEN, NOT_JSON, NOT_UTF8, TOO_LONG, LoggedCall, MissingPart, Problem
from proxy.protocol.response.usage import Usage
from tests import doctor_logs as logs
from tests.growth import assert_linear

Found = LoggedCall | Problem


def _read(folder: Path, content: bytes) -> list[Found]:
    path = folder / "log"
    path.write_bytes(content)
    return list(read_calls(path, lambda read, size: None))


def _calls(found: Sequence[Found]) -> list[LoggedCall]:
    return [each for each in found if isinstance(each, LoggedCall)]


def _problems(found: Sequence[Found]) -> list[tuple[int, str]]:
    return [(each.line, each.text) for each in found if isinstance(each, Problem)]


@pytest.mark.parametrize("name", logs.WITH_REQUESTS)
def test_every_log_tells_the_same_calls(name: str, tmp_path: Path) -> None:
    spoken = logs.talk(4)
    found = _read(tmp_path, logs.WITH_REQUESTS[name](spoken))
    assert _problems(found) == []
    calls = sorted(_calls(found), key=lambda call: call.at or 0)
    assert [call.at for call in calls] == pytest.approx([s.at for s in spoken])
    for call, s in zip(calls, spoken, strict=True):
        assert call.is_chat is (name not in ("exchanges_messages", "exchanges_responses"))
        assert call.client == "helper"
        assert call.body is not None
        assert logs.SECRET.encode() in call.body
        written = 0 if name == "exchanges_responses" else s.usage["cache_creation_input_tokens"]
        assert (call.usage.prompt, call.usage.write) == (sum(s.usage.values()) - 20, written)
        assert not call.gaps


def test_a_request_keeps_its_bytes(tmp_path: Path) -> None:
    body = b'{ "model":"m",  "messages":[{"role":"user","content":"1\\u00e9"}],"temperature":1.0 }'
    (call,) = _calls(_read(tmp_path, b'{"t":1,"request":' + body + b"}\n"))
    assert call.body == body


def test_claude_code_tells_an_answer_once_and_no_request(tmp_path: Path) -> None:
    spoken = logs.talk(3)
    found = _read(tmp_path, logs.claude_code(spoken))
    assert _problems(found) == []
    assert [(call.client, call.session, call.body) for call in _calls(found)] == [("claude-code", "s1", None)] * 3
    assert _calls(found)[0].gaps == {MissingPart.NO_REQUEST}


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress, bz2.compress])
def test_compression_is_found_out_by_content(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert len(_calls(_read(tmp_path, pack(logs.recording(logs.talk(3)))))) == 3


def test_an_archive_that_is_cut_gives_what_stands_in_front(tmp_path: Path) -> None:
    packed = gzip.compress(logs.recording(logs.talk(30)), 0)
    found = _read(tmp_path, packed[: len(packed) // 2])
    assert 5 < len(_calls(found)) < 30
    assert [text.partition(":")[0] for _, text in _problems(found)] == ["is the last one that can be read"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark_is_understood(encoding: str, tmp_path: Path) -> None:
    found = _read(tmp_path, logs.recording(logs.talk(3)).decode().encode(encoding))
    assert (len(_calls(found)), _problems(found)) == (3, [])


BAD_LINES = {
    "torn": (b'{"t": 3, "request": {"mod', NOT_JSON),
    "foreign encoding": '{"t": 3, "request": "café"}'.encode("latin-1"),
    "another product": b'{"level": "info", "msg": "GET /health"}',
    "no JSON": b"127.0.0.1 - - [25/Nov/2026] GET /",
    "nothing but a number": b"17",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_costs_no_other_one(name: str, tmp_path: Path) -> None:
    bad = BAD_LINES[name]
    line = bad[0] if isinstance(bad, tuple) else bad
    good = logs.recording(logs.talk(4)).splitlines(keepends=True)
    found = _read(tmp_path, b"".join([*good[:2], line + b"\n", *good[2:]]))
    assert len(_calls(found)) == 4
    ((at, text),) = _problems(found)
    assert at == 3
    assert text == {"foreign encoding": NOT_UTF8, "another product": NO_CALL}.get(name, NOT_JSON)


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST_BYTES", 100_000)
    good = logs.recording(logs.talk(4, has_clock=False)).splitlines(keepends=True)
    found = _read(tmp_path, b"".join([good[0], b'{"t":1,"x":"' + b"y" * 3_000_000 + b'"}\n', *good[1:]]))
    assert (len(_calls(found)), _problems(found)) == (4, [(2, TOO_LONG)])


def test_a_document_is_read_piece_by_piece(tmp_path: Path) -> None:
    """It is longer than any piece, and so is one of its elements."""
    rows = orjson.loads(logs.litellm_array(logs.talk(40)))
    rows[3]["response"] = {"text": "z\n\u00e9" * 1_500_000}
    content = orjson.dumps(rows, option=orjson.OPT_INDENT_2)
    assert len(content) > 5_000_000
    found = _read(tmp_path, content)
    assert (len(_calls(found)), _problems(found)) == (40, [])
    starts = [number for number, line in enumerate(content.splitlines(), 1) if line == b"  {"]
    assert [call.line for call in _calls(found)] == starts


def test_many_small_elements_take_linear_time(tmp_path: Path) -> None:
    def make(count: int) -> bytes:
        return b"[" + b'{"a":1},' * count + b"{}]"

    assert {text for _, text in _problems(_read(tmp_path, make(50)))} == {NO_CALL}
    assert_linear(lambda content: _read(tmp_path, content), make, 1_000)


def test_an_element_that_is_too_long_ends_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST_BYTES", 3_000_000)
    rows = orjson.loads(logs.litellm_array(logs.talk(4)))
    rows[2]["messages"] = "z" * 9_000_000
    found = _read(tmp_path, orjson.dumps(rows))
    assert (len(_calls(found)), _problems(found)) == (2, [(1, BROKEN)])


def test_a_document_that_is_cut_gives_what_stands_in_front(tmp_path: Path) -> None:
    content = logs.har(logs.talk(5))
    found = _read(tmp_path, content[: -len(content) // 6])
    assert 2 < len(_calls(found)) < 5
    assert [text for _, text in _problems(found)] == [BROKEN]


def test_a_har_without_content_says_so(tmp_path: Path) -> None:
    found = _read(tmp_path, logs.har(logs.talk(3), has_content=False))
    assert [text for _, text in _problems(found)] == [NO_CONTENT] * 3


def test_an_empty_file_a_folder_and_no_file_say_so(tmp_path: Path) -> None:
    assert _problems(_read(tmp_path, b"")) == [(0, "is empty")]
    assert _problems(list(read_calls(tmp_path, lambda read, size: None))) == [(0, "cannot be read: Is a directory")]
    assert _problems(list(read_calls(tmp_path / "no", lambda read, size: None))) == [
        (0, "cannot be read: No such file or directory")
    ]


def test_a_row_of_another_length_costs_itself(tmp_path: Path) -> None:
    header, *rows = logs.litellm_csv(logs.talk(3)).splitlines(keepends=True)
    found = _read(tmp_path, b"".join([header, rows[0], b"a,b,c\n", *rows[1:]]))
    assert len(_calls(found)) == 3
    assert [text for _, text in _problems(found)] == ["has another number of columns than the first line"]


GAPS = {
    MissingPart.CUT: "abc... (litellm_truncated skipped 9000 chars. see docs) ...xyz",
    MissingPart.REDACTED: "redacted-by-litellm",
}


@pytest.mark.parametrize("gap", GAPS)
def test_what_was_taken_out_is_noticed(gap: MissingPart, tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": GAPS[gap]}]}
    (call,) = _calls(
        _read(tmp_path, logs.json_lines([{"t": 1, "request": body, "response": {"usage": {"prompt_tokens": 5}}}]))
    )
    assert gap in call.gaps
    assert (call.body is None) is (gap is MissingPart.REDACTED)


@pytest.mark.parametrize("content", ["the text was redacted by [REDACTED] and others", "*** stars ***"])
def test_a_prompt_that_speaks_of_redaction_is_whole(content: str, tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    (call,) = _calls(_read(tmp_path, logs.json_lines([{"t": 1, "request": body}])))
    assert MissingPart.REDACTED not in call.gaps


def test_embeddings_and_other_calls_are_no_prompts(tmp_path: Path) -> None:
    row = orjson.loads(logs.litellm_lines(logs.talk(1)))
    embedded = {**row, "call_type": "aembedding", "proxy_server_request": {"model": "e", "input": ["a"]}}
    plain = {"model": "text-embedding-3", "input": "a"}
    found = _read(tmp_path, logs.json_lines([row, embedded, {"request": plain}]))
    assert len(_calls(found)) == 1
    assert _problems(found) == [(3, NO_CALL)]


@pytest.mark.parametrize(
    ("told", "at"),
    [
        (1.5, 1.5), (1_790_000_000_000, 1_790_000_000.0), ("1790000000", 1_790_000_000.0), ([1], None), (None, None),
        ("2026-09-21T14:13:20Z", 1_790_000_000.0), ("2026-09-21 14:13:20", 1_790_000_000.0), (True, None),
        ("soon", None), (1e300, None),
    ],
)  # fmt: skip
def test_times_of_every_form(told: object, at: float | None, tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    (call,) = _calls(_read(tmp_path, logs.json_lines([{"t": told, "request": body}])))
    assert call.at == at
    assert (MissingPart.NO_TIME in call.gaps) is (at is None)


def test_usage_of_langfuse_that_holds_the_cache_already(tmp_path: Path) -> None:
    row = orjson.loads(logs.langfuse_lines(logs.talk(1)))
    row["usage_details"] = {"input": 1000, "output": 10, "total": 1010, "cache_read_input_tokens": 900}
    (call,) = _calls(_read(tmp_path, logs.json_lines([row])))
    assert call.usage == Usage(1000, 10, 900)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_WRITERS = sorted({**logs.WITH_REQUESTS, "claude_code": logs.claude_code})


@given(name=st.sampled_from(_WRITERS), data=st.data())
def test_no_mangled_log_stops_the_reading(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes that are cut out, repeated, turned round or put in, wherever it be."""
    writer = {**logs.WITH_REQUESTS, "claude_code": logs.claude_code}[name]
    content = bytearray(writer(logs.talk(2)))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 5000)))
        content[start:end] = data.draw(
            st.binary(max_size=30) | st.sampled_from([b'"', b"\n", b"{", b"]", b"\\", b"\xff\xfe"])
        )
    for each in _read(tmp_path_factory.mktemp("mangled"), bytes(content)):
        assert each.line >= 0


@given(
    name=st.sampled_from(["recording", "litellm_lines", "langfuse_lines", "exchanges_messages", "claude_code"]),
    data=st.data(),
)
def test_any_value_in_any_field_costs_only_its_record(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = {**logs.WITH_REQUESTS, "claude_code": logs.claude_code}[name]
    rows = [orjson.loads(line) for line in writer(logs.talk(3)).splitlines()]
    row = rows[data.draw(st.integers(0, len(rows) - 1))]
    for _ in range(data.draw(st.integers(1, 3))):
        row[data.draw(st.sampled_from(sorted(row)))] = data.draw(_JSON)
    content = b"".join(orjson.dumps(each, option=orjson.OPT_PASSTHROUGH_SUBCLASS) + b"\n" for each in rows)
    assert len(_calls(_read(tmp_path_factory.mktemp("values"), content))) >= 2


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(pipe.write_bytes, logs.recording(logs.talk(3)))
        found = list(read_calls(pipe, lambda read, size: None))
        writing.result()
    assert (len(_calls(found)), _problems(found)) == (3, [])

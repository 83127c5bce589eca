"""Reading recorded sessions, and saying what is wrong with a file."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.lab import Step, TraceError, find_traces, read_trace, trace_name
from tests.unit.lab.replay.sessions import body, growing, lines, say, write

GOOD = b'{"t": 1, "session": "s", "request": {"model": "m", "messages": [{"role": "user", "content": "hello"}]}}'


@pytest.mark.parametrize(
    ("suffix", "packed"), [(".jsonl", bytes), (".jsonl.xz", lzma.compress), (".jsonl.gz", gzip.compress)]
)
def test_plain_and_compressed_files_say_the_same(tmp_path: Path, suffix: str, packed: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"one{suffix}"
    path.write_bytes(packed(b"\n".join(lines(growing(3))) + b"\n"))
    trace = read_trace(path)
    assert trace.name == "one"
    assert [step.at for step in trace.steps] == [1000.0, 1010.0, 1020.0]
    assert trace.steps == growing(3).steps


def test_the_request_keeps_its_own_bytes(tmp_path: Path) -> None:
    request = b'{"model":"m",  "messages":[{"role":"user","content":"caf\\u00e9"}], "temperature": 1.0e0}'
    trace = read_trace(write(tmp_path / "a.jsonl", [b'{"request": ' + request + b', "t": 7}']))
    assert trace.steps == [Step(7.0, "", request)]


def test_requests_come_in_the_order_of_time_and_blank_lines_are_nothing(tmp_path: Path) -> None:
    rows = [GOOD.replace(b'"t": 1', b'"t": 5'), b"", b"  ", GOOD]
    assert [step.at for step in read_trace(write(tmp_path / "a.jsonl", rows)).steps] == [1.0, 5.0]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b"nonsense", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (GOOD.replace(b"hello", b"\\ud800"), "'request' holds text that is not valid Unicode"),
        (GOOD.replace(b"hello", b"\xe9"), "'request' holds text that is not valid Unicode"),
        (b'{"session": "s", "request": {}}', "'t' must be seconds"),
        (GOOD.replace(b'"t": 1', b'"t": "now"'), "'t' must be seconds"),
        (GOOD.replace(b'"t": 1', b'"t": true'), "'t' must be seconds"),
        (b'{"t": 1}', "'request' is missing"),
        (b'{"t": 1, "request": 3}', "'request' is no chat request: the body is not a JSON object"),
        (b'{"t": 1, "request": {"model": "m"}}', "'request' is no chat request: the request has no 'messages'"),
        (b'{"t": 1, "request": {"messages": [{}]}}', "'request' is no chat request: 'model' must be"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, row: bytes, problem: str) -> None:
    path = write(tmp_path / "bad.jsonl", [GOOD, b"", row])
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(f"{path}:3: {problem}")


def test_a_file_without_requests_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no requests"):
        read_trace(write(tmp_path / "a.jsonl", [b""]))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"a\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "a.jsonl")


@pytest.mark.parametrize(("suffix", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_a_file_that_is_cut_within_its_compression_is_named(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(GOOD * 100)[:-20])
    with pytest.raises(TraceError, match="cannot be read: it is damaged, or cut"):
        read_trace(path)
    path.write_bytes(b"not compressed")
    with pytest.raises(TraceError, match=":1: not a JSON object"):
        read_trace(path)


def test_a_folder_stands_for_the_traces_in_it(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.xz", "c.jsonl.gz", "README.md", "d.json"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "e.jsonl").mkdir()
    wanted = [tmp_path / "a.jsonl.xz", tmp_path / "b.jsonl", tmp_path / "c.jsonl.gz"]
    assert find_traces([tmp_path]) == wanted
    assert find_traces([tmp_path / "b.jsonl", tmp_path, tmp_path / "z"]) == [
        wanted[1],
        wanted[0],
        wanted[2],
        tmp_path / "z",
    ]


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no recorded sessions in it"):
        find_traces([tmp_path])


def test_names() -> None:
    assert [trace_name(Path(name)) for name in ("x/a.jsonl", "a.b.jsonl.xz", "a.jsonl.gz")] == ["a", "a.b", "a"]


def test_a_request_may_hold_anything_that_a_client_may_send(tmp_path: Path) -> None:
    request = body(say("user", [{"type": "image_url", "image_url": {"url": "data:"}}]), tools=[], stratiform={"a": 1})
    assert read_trace(write(tmp_path / "a.jsonl", [b'{"t":1,"request":' + request + b"}"])).steps[0].body == request

"""Requests as lines of a file, without their texts."""

import pytest
from msgspec import json, structs

from proxy.planner.diagnose import diagnose
from proxy.planner.record import VERSION, Fingerprint, line_of, read_line, wire_record
from proxy.protocol.providers import OPENAI
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.wire.json_body import Unreadable

KEY = b"k" * 32
TALK = [{"role": "user", "content": "What is secret?"}, {"role": "assistant", "content": "This is. " * 900}]


def fingerprint(day: str, at: float) -> Fingerprint:
    text = "\n".join(["You are an archivist.", f"It is {day}.", *["Name the shelf."] * 40])
    body = {"model": "m", "seed": 7, "messages": [{"role": "system", "content": text}, *TALK]}
    record = wire_record(body, bytes_over_four, at=at)
    return Fingerprint(VERSION, "s1", "m", record, profile="openai", tokens=(2000, 5, 100, 0, 0), cost_usd=0.25)


def test_lines_of_one_key_can_be_compared_and_hold_no_text() -> None:
    lines = [line_of(fingerprint(day, at), KEY) for day, at in (("Monday", 0.0), ("Tuesday", 9.0))]
    first, second = map(read_line, lines)
    found = diagnose([first.record], second.record, second.usage, OPENAI)
    assert (found.culprit, found.line, second.cost_usd) == ("system", 2, 0.25)
    for line in lines:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert not any(text in line for text in (b"secret", b"archivist", b"Monday", b"Tuesday"))


def test_another_key_gives_other_digests() -> None:
    one, other = (read_line(line_of(fingerprint("Monday", 0.0), key)) for key in (KEY, b"other"))
    plain = fingerprint("Monday", 0.0).record
    for part in ("digests", "lines", "parameters"):
        assert len({str(getattr(each, part)) for each in (one.record, other.record, plain)}) == 3


@pytest.mark.parametrize("change", [b"", b"{}", b"[1]", b"\xff", b'{"v":2}'])
def test_what_is_no_line_is_refused(change: bytes) -> None:
    with pytest.raises(Unreadable):
        read_line(change)
    whole = line_of(fingerprint("Monday", 0.0), KEY)
    with pytest.raises(Unreadable):
        read_line(whole[: len(whole) // 2])
    with pytest.raises(Unreadable):
        read_line(whole.replace(b'"v":1', b'"v":9'))


@pytest.mark.parametrize("line", [(-1, 5), (2**32, 5), (1, -1)])
def test_a_record_whose_lines_nobody_could_have_made_is_refused(line: tuple[int, int]) -> None:
    whole = fingerprint("Monday", 0.0)
    damaged = structs.replace(whole, record=structs.replace(whole.record, lines={0: (line, (7, 5))}))
    with pytest.raises(Unreadable):
        read_line(json.encode(damaged))

"""Keys that are told by how they are written."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.kit import secrets as redaction
from proxy.kit.secrets import MOST_BYTES, REDACTED, Redaction, excerpt, without_keys
from proxy.protocol.response.event_format import MAX_EVENT_BYTES, ErrorEvents
from tests.examples import sampled
from tests.growth import assert_linear

_STARTS = (
    "sk-strat-", "sk-", "rk-", "pk-", "xai-", "gsk-", "pplx-", "csk-", "nvapi-", "glpat-", "sk_", "rk_", "pk_", "gsk_",
    "hf_", "r8_", "ghp_", "gho_", "ghs_", "tgp_", "github_pat_", "AIza", "AKIA", "ASIA", "ya29.", "eyJ", "Bearer ",
    "bEARER\t", "basic ", "BASIC ", "api_key=", "API-Key: ", "apikey=", "access_token\": \"", "Access-Token=",
    "http://", "to\u212aen", "ba\u017fic ", "AP\u0130key=",
)  # fmt: skip
_RESTS = (
    "abcdefgh12345678ABCDEFGH",
    ".abcdefgh1",
    "user:pass@host",
    "x" * 40,
    "@",
    " ",
    "",
    "gpt-4o-mini",
    "/v1/",
    '"',
)


@given(st.lists(st.sampled_from((*_STARTS, *_RESTS)), max_size=5))
@example(['access_token": "', "x" * 40])
def test_the_quick_look_misses_no_shape(pieces: list[str]) -> None:
    text = "".join(pieces)
    thorough = text
    for pattern, replacement in redaction._SHAPES:
        thorough = pattern.sub(replacement, thorough)
    assert without_keys(text, keeps_runs=True) == thorough


def test_every_start_of_a_key_is_found() -> None:
    rest = "ABCDEFGH12345678ABCDEFGH.abcdefgh1@"
    for start in filter(str.isascii, _STARTS):
        assert without_keys(f"{start}{rest}", keeps_runs=True) != f"{start}{rest}", start


KEY = "sk-of-the-operator-0123456789"
REDACTION = Redaction([KEY])
SHORT = b'data: {"error":{"message":"the key %s"}}\n\n' % KEY.encode()
PASSING = b'data: {"choices":[]}\n\n'


def error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "code": "invalid_api_key", "param": None}}).encode()


def test_a_short_error_stays_as_it_is() -> None:
    for body in (b"", b"\xff", error("no"), b"<" * MOST_BYTES):
        assert excerpt(body) is body


@given(st.text(alphabet='a\U0001f389\u00e9"\\\n', min_size=1, max_size=40), st.booleans())
def test_a_cut_error_has_its_shape_and_its_short_members(unit: str, is_ascii: bool) -> None:
    message = unit * (MOST_BYTES // len(unit) + 1)
    written = json.dumps({"code": "short", "error": {"message": message, "next": [1, "x"]}}, ensure_ascii=is_ascii)
    short = excerpt(written.encode())
    assert len(short) <= MOST_BYTES
    found = json.loads(short.decode())
    assert (found["code"], found["error"]["next"]) == ("short", [1, "x"])
    told, _, _ = found["error"]["message"].partition(" [cut")
    assert told
    assert message.startswith(told)


BARE = b'"' + b"a" * (1 << 20)


@pytest.mark.parametrize("body", [b"<html>" * 20_000, b'{"error":[' + b'"a",' * 20_000 + b"0]}", BARE])
def test_what_cannot_be_cut_is_not_shown(body: bytes) -> None:
    assert excerpt(body) is None


@pytest.mark.parametrize(
    "unit", sampled(["sk-****", "xxxx-", "%41", "\\u0041", "abcdefgh ", "..", "a", "&#65;", '"'], 3)
)
def test_the_time_for_an_error_grows_with_its_length(unit: str) -> None:
    assert_linear(
        lambda event: ErrorEvents(REDACTION).feed(event),
        lambda size: b"data: " + error(unit * (size // len(unit))) + b"\n\n",
        225_000,
    )


@pytest.mark.parametrize("size", [100, 4096, 1 << 16, 1 << 22])
@pytest.mark.parametrize("length", sampled([MOST_BYTES, MAX_EVENT_BYTES + 10, 2 * MAX_EVENT_BYTES], 3))
def test_nothing_of_an_error_passes_unread(size: int, length: int) -> None:
    # The key stands at the beginning and, behind all that is kept, again and again.
    event = b"data: " + error(KEY + " " + f"{'x' * 5000} {KEY} " * (length // 5000 + 1)) + b"\n\n"
    stream = PASSING + event + PASSING + SHORT + PASSING
    events = ErrorEvents(REDACTION)
    found = b"".join(events.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + events.close()
    assert KEY.encode() not in found
    assert found.startswith(PASSING)
    assert found.endswith(PASSING + SHORT.replace(KEY.encode(), REDACTED.encode()) + PASSING)
    assert all(json.loads(line[6:]) for line in found.split(b"\n\n") if line)


def test_the_rest_of_a_long_error_is_dropped_also_where_the_stream_ends_in_it() -> None:
    events = ErrorEvents(REDACTION)
    found = events.feed(b'data: {"error":"' + b"x" * (MAX_EVENT_BYTES + 1))
    assert b"not shown" in found
    assert events.feed(KEY.encode()) + events.close() == b""


def test_an_error_that_is_named_keeps_its_form() -> None:
    found = ErrorEvents(REDACTION).feed(b"event: error\ndata: " + b"x," * MOST_BYTES + b"\n\n")
    assert found.startswith(b'event: error\ndata: {"type":"error"')


def test_long_events_that_are_no_errors_pass_whole() -> None:
    events = ErrorEvents(REDACTION)
    image = b'data: {"b64":"' + b"x" * (MAX_EVENT_BYTES + 1) + b'"}\n\n'
    assert events.feed(image[:-5]) + events.feed(image[-5:]) + events.close() == image


@pytest.mark.parametrize("more", [3, 5, 7])
def test_an_error_that_shows_late_in_a_long_event_quotes_no_key(more: int) -> None:
    """However its name is cut."""
    image = b'data: {"b64":"' + b"x" * (MAX_EVENT_BYTES + more) + b'",' + error(f"the key {KEY}")[1:] + b"\n\n"
    stream, events = image + PASSING, ErrorEvents(REDACTION)
    found = b"".join(events.feed(stream[at : at + 100]) for at in range(0, len(stream), 100)) + events.close()
    assert found == stream.replace(KEY.encode(), REDACTED.encode())


@pytest.mark.parametrize("size", [100, 1 << 17])
@pytest.mark.parametrize("member", ["tools", "text", "metadata"])
def test_a_long_event_whose_request_has_a_member_called_error_passes_whole(member: str, size: int) -> None:
    schema = [{"parameters": {"properties": {"error": {"type": "string"}}}}]
    response = {"error": None, "instructions": "x" * MOST_BYTES, member: schema}
    stream = b"data: " + json.dumps({"type": "response.completed", "response": response}).encode() + b"\n\n" + PASSING
    events = ErrorEvents(REDACTION)
    assert b"".join(events.feed(stream[at : at + size]) for at in range(0, len(stream), size)) == stream
    assert events.close() == b""


@pytest.mark.parametrize("ending", [b"", b'"', b"\xff"])
def test_a_long_error_that_cannot_be_read_quotes_no_key(ending: bytes) -> None:
    unread = b'data: {"tools":[{"error":{"message":"' + KEY.encode() + b" " + b"x" * MOST_BYTES + ending + b"\n\n"
    events = ErrorEvents(REDACTION)
    assert KEY.encode() not in events.feed(unread) + events.close()


@pytest.mark.parametrize("size", [7, 4096])
def test_a_long_event_that_says_that_there_is_no_error_passes_whole(size: int) -> None:
    events = ErrorEvents(REDACTION)
    stream = b'data: {"b64":"' + b"x" * (MAX_EVENT_BYTES + 1) + b'","error": null,"usage":{}}\n\n' + PASSING
    first, rest = stream[:MAX_EVENT_BYTES], stream[MAX_EVENT_BYTES:]
    found = events.feed(first) + b"".join(events.feed(rest[at : at + size]) for at in range(0, len(rest), size))
    assert found + events.close() == stream


def test_a_long_error_late_in_a_long_event_is_replaced() -> None:
    events = ErrorEvents(REDACTION)
    stream = b'data: {"b64":"' + b"x" * MAX_EVENT_BYTES + b'",' + error(f"{KEY} " * 10_000)[1:] + b"\n\n"
    found = b"".join(events.feed(stream[at : at + 9000]) for at in range(0, len(stream), 9000)) + events.close()
    assert KEY.encode() not in found
    assert found.count(b"not shown") == 1

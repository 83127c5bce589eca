"""One request on the wire is one request to the provider, and its answer goes to whoever sent it.

What two parsers could read differently is refused, or goes out so that only one reading is left. Each row is sent by
team-a; a second request that is hidden in it would ask for ``dear`` with team-b's key.
"""

import json
import socket
import time

import pytest

from tests.examples import sampled
from tests.security.world import KEYS, World, chat, parse

BODY = json.dumps(chat("cheap")).encode()
HIDDEN_BODY = json.dumps(chat("dear", "hidden")).encode()
HIDDEN = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (KEYS["team-b"].encode(), len(HIDDEN_BODY), HIDDEN_BODY)
)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"content-length: %d\r\n" % len(BODY)
TE = b"transfer-encoding: chunked\r\n"
LONGER = b"content-length: %d\r\n" % (5 + len(HIDDEN))
BOTH = LENGTH + TE


def request(
    headers: bytes, body: bytes, *, line: bytes = b"POST /v1/chat/completions HTTP/1.1", end: bytes = b"\r\n"
) -> bytes:
    """A request of team-a's."""
    fixed = [b"host: x", b"content-type: application/json", b"authorization: Bearer " + KEYS["team-a"].encode()]
    return line + end + b"".join(one + end for one in fixed) + headers + end + body


def one_inside(headers: bytes, behind: bytes = HIDDEN) -> bytes:
    """A request with a second one behind what one of two readings takes for its end."""
    return request(headers, b"0\r\n\r\n" + behind)


DOUBTFUL = {
    "length and chunked": request(BOTH, CHUNKED),
    "length and chunked, the other order": request(TE + LENGTH, CHUNKED),
    "length covers a hidden request": one_inside(LONGER + TE),
    "chunked with a blank before the colon": one_inside(b"transfer-encoding : chunked\r\n" + LONGER),
    "chunked behind a tab": request(LENGTH + b"transfer-encoding:\tchunked\r\n", CHUNKED),
    "chunked in capitals": request(LENGTH + b"Transfer-Encoding: CHUNKED\r\n", CHUNKED),
    "chunked, identity": request(LENGTH + b"transfer-encoding: chunked, identity\r\n", CHUNKED),
    "identity, chunked": request(LENGTH + b"transfer-encoding: identity, chunked\r\n", CHUNKED),
    "gzip, chunked": request(LENGTH + b"transfer-encoding: gzip, chunked\r\n", CHUNKED),
    "chunked twice": request(TE + TE, CHUNKED),
    "two hosts": request(b"host: elsewhere\r\n" + LENGTH, BODY),
    "a blank in front of the key's colon": request(LENGTH, BODY).replace(b"authorization:", b"authorization :", 1),
    "a control character": request(b"x-a: 1\x01\r\n" + LENGTH, BODY),
    "xchunked": request(LENGTH + b"transfer-encoding: xchunked\r\n", BODY),
    "chunked in quotes": request(LENGTH + b'transfer-encoding: "chunked"\r\n', BODY),
    "chunked behind a vertical tab": request(LENGTH + b"transfer-encoding: \x0bchunked\r\n", BODY),
    "transfer-encoding twice": request(LENGTH + b"transfer-encoding: x\r\ntransfer-encoding: chunked\r\n", CHUNKED),
    "transfer-encoding in a folded line": request(LENGTH + b"transfer-encoding:\r\n chunked\r\n", CHUNKED),
    "transfer-encoding hidden behind a bare CR": request(LENGTH + b"x-a: b\rtransfer-encoding: chunked\r\n", CHUNKED),
    "transfer-encoding hidden behind a bare LF": request(LENGTH + b"x-a: b\ntransfer-encoding: chunked\r\n", CHUNKED),
    "two lengths, the shorter first": request(b"content-length: 0\r\n" + LENGTH, BODY),
    "two lengths, the longer first": request(b"content-length: %d\r\ncontent-length: 0\r\n" % len(HIDDEN), HIDDEN),
    "two equal lengths": request(LENGTH + LENGTH, BODY),
    "a list of lengths": request(b"content-length: %d, %d\r\n" % (len(BODY), len(BODY)), BODY),
    "a length with a sign": request(b"content-length: +%d\r\n" % len(BODY), BODY),
    "a negative length": request(b"content-length: -1\r\n", HIDDEN),
    "a length in hex": request(b"content-length: 0x10\r\n", BODY),
    "a length with an underscore": request(b"content-length: 1_0\r\n", BODY),
    "a length in other digits": request("content-length: \u0661\u0660\r\n".encode(), BODY),
    "a length that is too large for 64 bits": request(b"content-length: 18446744073709551617\r\n", BODY),
    "an empty length": request(b"content-length:\r\n", HIDDEN),
    "a chunk size that overflows": request(TE, b"ffffffffffffffff0\r\n" + HIDDEN),
    "a negative chunk size": request(TE, b"-1\r\n" + HIDDEN),
    "a chunk size with 0x": request(TE, b"0x0\r\n\r\n" + HIDDEN),
    "a chunk that is longer than it says": request(TE, b"5\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a chunk without its line end": request(TE, b"%x\r\n%s0\r\n\r\n" % (len(BODY), BODY)),
    "a bare LF behind a chunk's size": request(TE, b"%x\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "a bare CR in a chunk's extension": request(TE, b"%x;a\rb\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "a header without a name": request(b": x\r\n" + LENGTH, BODY),
    "a header without a colon": request(b"smuggled\r\n" + LENGTH, BODY),
    "a name with a blank": request(b"x y: z\r\n" + LENGTH, BODY),
    "a NUL in a value": request(b"x-a: b\x00c\r\n" + LENGTH, BODY),
    "a folded line": request(b"x-a: b\r\n content-length: 0\r\n" + LENGTH, BODY),
    "a blank in front of the first header": request(LENGTH, BODY).replace(b"\r\nhost", b"\r\n host", 1),
    "bare LFs throughout": request(LENGTH, BODY, end=b"\n"),
    "a bare CR for a line end": request(LENGTH, BODY, line=b"POST /v1/chat/completions HTTP/1.1\rx: y"),
    "a version that HTTP has not": request(LENGTH, BODY, line=b"POST /v1/chat/completions HTTP/9.9"),
    "no version": request(LENGTH, BODY, line=b"POST /v1/chat/completions"),
    "two blanks in the request line": request(LENGTH, BODY, line=b"POST  /v1/chat/completions  HTTP/1.1"),
    "a line end in the target": request(LENGTH, BODY, line=b"POST /v1/files\r\nx: y HTTP/1.1"),
    "a blank in the target": request(LENGTH, BODY, line=b"POST /v1/files HTTP/1.1 HTTP/1.1"),
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "TLS": bytes.fromhex("160301007c010000780303") + b"\x00" * 100,
    "an unknown method": request(LENGTH, BODY, line=b"SMUGGLE /v1/chat/completions HTTP/1.1"),
    "a method in small letters": request(LENGTH, BODY, line=b"post /v1/chat/completions HTTP/1.1"),
    "CONNECT to a host": request(b"", HIDDEN, line=b"CONNECT 127.0.0.1:9 HTTP/1.1"),
}  # fmt: skip


CLEAR = [DOUBTFUL[name] for name in ("no version", "two blanks in the request line", "a line end in the target")]
"""Those of which only one reading is left when they go out."""


@pytest.mark.parametrize("data", DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_can_be_read_in_two_ways_is_at_most_one_request(world: World, data: bytes) -> None:
    spent = world.spent("team-b")
    answer = world.raw(data, quiet_s=0.15)
    seen = world.sent()
    assert len(seen) <= 1
    if seen:
        # Then it went out with one length, which is that of its body, and without what could mean another.
        assert seen[0].json == {**chat("cheap"), "model": "cheap-1"}, seen[0].body
        assert seen[0].header("transfer-encoding") is None
        assert seen[0].values("content-length") == [str(len(seen[0].body))]
        assert "hidden" not in seen[0].text
        assert parse(answer).status == 200
    else:
        assert (parse(answer).status, answer.count(b"HTTP/1.1 ")) == (400, 1)
    assert bool(seen) is (data in CLEAR)
    assert world.spent("team-b") == spent


def test_requests_in_one_packet_are_each_their_own(world: World) -> None:
    """A pipeline is no attack: every request carries its own key and gets its own answer, in order."""
    teams = ("team-a", "team-b")
    before = {team: world.spent(team) for team in teams}
    listed = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n\r\n" % KEYS["listed"].encode()
    answer = world.raw(request(LENGTH, BODY) + HIDDEN + listed, quiet_s=0.5)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert [one.json["model"] for one in world.sent()] == ["cheap-1", "dear-1"]
    assert all(world.spent(team) > before[team] for team in teams)
    names = json.loads(answer.rpartition(b"\r\n\r\n")[2])["data"]
    assert [one["id"] for one in names] == ["cheap"], "the last answer is that of the key with a list"


def test_a_request_behind_a_refused_one_is_judged_by_its_own_key(world: World) -> None:
    refused = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    answer = world.raw(refused + request(LENGTH, BODY) + refused, quiet_s=0.5)
    statuses = [part.split(b" ")[1] for part in answer.split(b"HTTP/1.1")[1:] for part in [b"x" + part]]
    assert statuses == [b"401", b"200", b"401"]
    assert len(world.sent()) == 1


def test_the_body_of_a_refused_request_is_no_request(world: World) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(HIDDEN)
    answer = world.raw(head + HIDDEN, quiet_s=0.3)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert parse(answer).status == 401
    assert world.sent() == []


HARMLESS = {
    "chunk extensions": request(TE, b"%x;a=b;c\r\n%s\r\n0;d\r\n\r\n" % (len(BODY), BODY)),
    "trailers": request(
        TE, CHUNKED[:-2] + b"x-api-key: sk-trailer\r\nx-smuggled: yes\r\n\r\n"
    ),
    "a length as a trailer": request(TE, CHUNKED[:-2] + b"content-length: 0\r\n\r\n"),
    "HTTP/1.0": request(LENGTH, BODY, line=b"POST /v1/chat/completions HTTP/1.0"),
    "another host": request(LENGTH, BODY).replace(b"host: x", b"host: 169.254.169.254", 1),
    "forwarded headers": request(
        LENGTH + b"x-forwarded-host: evil\r\nx-original-url: /admin/keys\r\nforwarded: for=1\r\n", BODY
    ),
    "a method override": request(LENGTH + b"x-http-method-override: DELETE\r\n", BODY),
    "expect 100": request(LENGTH + b"expect: 100-continue\r\n", BODY),
}  # fmt: skip


@pytest.mark.parametrize("data", sampled(HARMLESS.values(), 2), ids=HARMLESS)
def test_odd_but_clear_requests_go_out_as_one_plain_request(world: World, data: bytes) -> None:
    """Either they are refused, or what belongs to the client's connection stays there."""
    answer = world.raw(data, quiet_s=0.3)
    seen = world.sent()
    if not seen:
        assert parse(answer).status in (400, 401, 426, 501)
        return
    assert len(seen) == 1
    (one,) = seen
    assert (one.method, one.path, one.json["model"]) == ("POST", "/v1/chat/completions", "cheap-1")
    for name in ("transfer-encoding", "upgrade", "connection", "http2-settings", "expect", "te", "trailer"):
        assert one.header(name) is None or (name == "connection" and one.header(name) == "keep-alive"), name
    assert one.header("host") not in ("x", "169.254.169.254", "evil")
    assert "sk-trailer" not in one.text
    assert one.header("x-smuggled") is None


UPGRADES = {
    "as Java's client asks for it": b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n",
    "to a websocket": b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
    "to several, in several lines": b"Upgrade: h2c, x/1\r\nconnection: close, upgrade\r\nUPGRADE: TLS/1.0\r\n",
    "to nothing": b"connection: upgrade\r\nupgrade:\r\n",
}
FRAMED = {"length": (LENGTH, BODY), "chunks": (TE, CHUNKED)}


@pytest.mark.parametrize("framed", FRAMED.values(), ids=FRAMED)
@pytest.mark.parametrize("asked", UPGRADES.values(), ids=UPGRADES)
def test_a_request_that_asks_for_another_protocol_is_read_whole(
    world: World, asked: bytes, framed: tuple[bytes, bytes]
) -> None:
    """It is answered in HTTP/1.1 (RFC 9110 section 7.8), wherever the network cuts it."""
    length, body = framed
    data = request(asked + length, body)
    cuts = [data.index(b"\r\n\r\n") + offset for offset in (0, 2, 4, 5)]
    for cut in (0, data.index(b":"), *cuts, len(data) - 1):
        world.forget()
        with world.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(data[:cut])
            time.sleep(0.02)  # the server reads the pieces one by one; nothing that it sends would show that
            connection.sendall(data[cut:] + request(LENGTH + b"connection: close\r\n", BODY))
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        expected = 1 if b"close" in asked else 2
        assert received.count(b"HTTP/1.1 200") == received.count(b"HTTP/1.1 ") == expected, (cut, received)
        assert [one.json["messages"] for one in world.sent()] == [chat()["messages"]] * expected
        assert all(one.header("upgrade") is None for one in world.sent())


@pytest.mark.parametrize("asked", UPGRADES.values(), ids=UPGRADES)
def test_the_body_of_a_request_that_asks_for_another_protocol_is_no_request(world: World, asked: bytes) -> None:
    spent = world.spent("team-b")
    with world.connect() as connection:
        connection.sendall(request(asked + b"content-length: %d\r\n" % len(HIDDEN), b""))
        time.sleep(0.05)  # the body comes by itself, as above; both readings are refused
        connection.sendall(HIDDEN)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
    assert world.sent() == []
    assert world.spent("team-b") == spent


TARGETS = {
    "absolute form": b"http://evil.example/v1/chat/completions",
    "absolute form with https": b"https://evil.example:8443/v1/chat/completions",
    "absolute form of this server's admin API": b"http://127.0.0.1/admin/keys",
    "authority form": b"evil.example:80",
    "asterisk form": b"*",
    "two slashes in front": b"//evil.example/v1/chat/completions",
    "a backslash in front": b"\\\\evil.example/v1/chat/completions",
    "no slash in front": b"v1/chat/completions",
    "an empty target": b"",
    "a scheme alone": b"file:///etc/passwd",
    "a fragment": b"/v1/chat/completions#/v1/files",
}


@pytest.mark.parametrize("target", sampled(TARGETS.values(), 3), ids=TARGETS)
def test_a_target_in_another_form_reaches_the_configured_provider_or_nobody(world: World, target: bytes) -> None:
    answer = world.raw(request(LENGTH, BODY, line=b"POST " + target + b" HTTP/1.1"), quiet_s=0.3)
    assert len(world.sent()) <= 1
    for seen in world.sent():
        assert seen.path == "/v1/chat/completions"
        assert seen.json["model"] == "cheap-1"
        assert "evil" not in seen.text
    if not world.sent():
        assert answer == b"" or parse(answer).status in (400, 401, 404, 405)


FLOODS = {
    "257 headers": b"".join(b"x-%d: y\r\n" % n for n in range(257)),
    "the same header 300 times": b"x-a: y\r\n" * 300,
    "one header of 70 KiB": b"x-a: " + b"y" * (70 << 10) + b"\r\n",
    "one name of 70 KiB": b"x" * (70 << 10) + b": y\r\n",
    "authorization 300 times": (b"authorization: Bearer %s\r\n" % KEYS["team-b"].encode()) * 300,
}


@pytest.mark.parametrize("headers", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_headers_is_refused_before_a_key_is_asked_for(world: World, headers: bytes) -> None:
    assert parse(world.raw(request(headers + LENGTH, BODY), quiet_s=1.0)).status == 431
    assert world.sent() == []


def test_a_target_without_end_is_refused(world: World) -> None:
    line = b"GET /v1/" + b"a" * (70 << 10) + b" HTTP/1.1"
    assert parse(world.raw(request(b"", b"", line=line), quiet_s=1.0)).status in (400, 414, 431)
    assert world.sent() == []


def test_a_body_that_does_not_arrive_reaches_nobody(world: World) -> None:
    """A slow or broken upload of a request that asks a model is not passed on in pieces."""
    with world.connect() as connection:
        connection.sendall(request(b"content-length: %d\r\n" % (len(BODY) + 10), BODY))
        connection.shutdown(1)
        connection.settimeout(5)
        connection.recv(1000)
    assert world.sent() == []

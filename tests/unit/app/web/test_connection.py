"""The client's side as ASGI: bodies, limits, and leaving."""

import asyncio

import orjson
import pytest
from starlette.types import Message

from proxy.app.web.connection import Connection
from proxy.engine import ClientDisconnected
from proxy.kit.errors import PayloadTooLarge, UnknownModel


class Server:
    """The server's end of an ASGI connection: says what it is given to say, keeps what it is told."""

    def __init__(self, *messages: Message) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self.incoming.put_nowait(message)
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        return await self.incoming.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


LEFT: Message = {"type": "http.disconnect"}


def connect(server: Server, headers: list[tuple[bytes, bytes]] | None = None) -> Connection:
    scope = {"method": "POST", "query_string": b"a=1", "headers": headers or []}
    return Connection(scope, server.receive, server.send, "/chat/completions")


async def test_a_body_in_parts_is_read_whole() -> None:
    connection = connect(Server(part(b"ab", more=True), part(b"", more=True), part(b"c")))
    assert await connection.read(3) == b"abc"


async def test_a_body_is_refused_by_its_length_before_it_is_read_or_while() -> None:
    server = Server(part(b"abcd"))
    with pytest.raises(PayloadTooLarge):
        await connect(server, [(b"content-length", b"4")]).read(3)
    assert server.incoming.qsize() == 1
    with pytest.raises(PayloadTooLarge):
        await connect(Server(part(b"ab", more=True), part(b"cd", more=True))).read(3)


async def test_leaving_in_the_middle_of_the_body() -> None:
    with pytest.raises(ClientDisconnected):
        await connect(Server(part(b"ab", more=True), LEFT)).read(9)


async def test_peek_gives_short_bodies_and_stream_all_of_long_ones() -> None:
    assert await connect(Server(part(b"abc"))).peek(3) == b"abc"
    connection = connect(Server(part(b"ab", more=True), part(b"cd", more=True), part(b"e")))
    assert await connection.peek(3) is None
    assert b"".join([chunk async for chunk in connection.stream(9)]) == b"abcde"
    connection = connect(Server(part(b"abcd")), [(b"content-length", b"4")])
    assert await connection.peek(3) is None
    assert b"".join([chunk async for chunk in connection.stream(9)]) == b"abcd"


@pytest.mark.parametrize(("last", "expected"), [(part(b"cd", more=True), PayloadTooLarge), (LEFT, ClientDisconnected)])
async def test_what_breaks_a_stream_off_is_remembered(last: Message, expected: type[Exception]) -> None:
    connection = connect(Server(part(b"ab", more=True), last))
    with pytest.raises(expected):
        assert [chunk async for chunk in connection.stream(3)] == []
    assert isinstance(connection.failure, expected)


async def test_leaving_cancels_the_work_quietly() -> None:
    server, ended = Server(part(b"{}")), []
    connection = connect(server)

    async def work() -> None:
        await connection.read(9)
        server.incoming.put_nowait(LEFT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    await connection.serve(work())
    assert ended == [True]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_is_not_swallowed() -> None:
    connection = connect(Server(part(b"{}")))

    async def work() -> None:
        await connection.read(9)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(connection.serve(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("sent", [b"", b": \n\n", b"data: half of an event"])
@pytest.mark.parametrize("coding", ["", "identity", "gzip"])
async def test_a_server_that_stops_ends_a_stream_with_an_error_or_cuts_it_off(sent: bytes, coding: str) -> None:
    server = Server(part(b"{}"))
    connection, is_sent = connect(server), asyncio.Event()

    async def work() -> None:
        await connection.read(9)
        await connection.start(200, [("content-type", "text/event-stream"), ("content-encoding", coding)])
        await connection.send(sent)
        is_sent.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(connection.serve(work()))
    await is_sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    _, *bodies = server.sent
    events = b"".join(body["body"] for body in bodies)
    if coding == "gzip":
        assert (events, bodies[-1]["more_body"]) == (sent, True)
    else:
        assert orjson.loads(events.split(b"\n\n")[-2].removeprefix(b"data: "))["error"]["code"] == "shutting_down"
        assert not bodies[-1]["more_body"]


async def test_an_answer_that_is_awaited_is_heard_to_its_end_though_nobody_listens() -> None:
    server = Server(part(b"ab"))
    connection = connect(server)
    heard = []

    async def work() -> None:
        await connection.read(10)
        connection.is_awaited = True
        server.incoming.put_nowait(LEFT)
        while not connection.has_left:
            await asyncio.sleep(0)
        await connection.start(200, [])
        await connection.send(b"x")
        await connection.end()
        heard.append("all")

    await connection.serve(work())
    assert heard == ["all"]
    assert server.sent == []


async def test_the_disconnect_after_a_complete_answer_is_no_news() -> None:
    server = Server(part(b"{}"))
    connection = connect(server)

    async def work() -> None:
        await connection.read(9)
        await connection.start(200, [("content-type", "text/plain")])
        await connection.send(b"x")
        await connection.end()
        server.incoming.put_nowait(LEFT)
        for _ in range(5):
            await asyncio.sleep(0)

    await connection.serve(work())
    assert [m["type"] for m in server.sent] == ["http.response.start", "http.response.body", "http.response.body"]
    assert [m.get("more_body") for m in server.sent] == [None, True, False]


async def test_an_error_is_a_complete_answer() -> None:
    server = Server()
    error = UnknownModel("no", headers={"retry-after": "1", "x-odd": "a\r\nb: c", "x-name": "日"})
    await connect(server).refuse(error, [("x-stratiform-id", "sx-1")])
    start, body = server.sent
    assert start["status"] == 404
    headers = dict(start["headers"])
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    assert (headers[b"retry-after"], headers[b"x-stratiform-id"]) == (b"1", b"sx-1")
    assert headers[b"content-type"] == b"application/json"
    assert (b"x-odd" in headers, headers[b"x-name"]) == (False, b"?")


async def test_a_bug_in_mid_answer_leaves_the_answer_unfinished() -> None:
    server = Server(part(b"{}"))
    connection = connect(server)

    async def work() -> None:
        await connection.read(9)
        await connection.start(200, [])
        raise ValueError

    await connection.serve(work())
    assert [m["type"] for m in server.sent] == ["http.response.start"]


def test_header_values_that_are_no_utf8_are_read_as_latin1() -> None:
    connection = connect(Server(), [(b"x-name", "Zoë".encode()), (b"x-old", b"Zo\xeb")])
    assert connection.headers == [("x-name", "Zoë"), ("x-old", "Zoë")]

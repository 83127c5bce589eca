"""A provider that answers at once: 2 kB of JSON, or 200 SSE chunks a millisecond apart, chosen by "stream".

Chunks are spaced, because a real provider's are: sent in one go they would reach a slow forwarder in fewer, larger
reads than a fast one, and flatter it.
"""

import argparse
import asyncio
import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import httptools
import orjson
import uvloop

CHUNKS = 200
GAP_S = 0.001
MODEL = "bench"
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_WANTS_USAGE = re.compile(rb'"include_usage"\s*:\s*true')
_TEXT = "The cheapest token is the one that was already read; the second cheapest is the one nobody asked for. "


def usage(body: bytes) -> dict[str, object]:
    """Plausible usage for a growing session: nine tenths read from the cache, the rest written."""
    prompt = max(1, len(body) // 4)
    read = prompt * 9 // 10
    return {
        "prompt_tokens": prompt,
        "completion_tokens": CHUNKS,
        "total_tokens": prompt + CHUNKS,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": prompt - read},
    }


def json_answer(body: bytes) -> bytes:
    """A complete HTTP answer with a chat completion of 2 kB."""
    message = {"role": "assistant", "content": (_TEXT * 20)[:1740]}
    payload = orjson.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage(body),
        }
    )
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def _event(payload: dict[str, object] | None) -> bytes:
    data = b"data: " + (b"[DONE]" if payload is None else orjson.dumps(payload)) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def sse_events(body: bytes) -> list[bytes]:
    """The events of a streamed answer, each in its own HTTP chunk; with usage where it was asked for."""
    base: dict[str, object] = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
    }
    events = [
        _event(
            base
            | {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": f" word{i}"},
                        "finish_reason": "stop" if i == CHUNKS - 1 else None,
                    }
                ]
            }
        )
        for i in range(CHUNKS)
    ]
    if _WANTS_USAGE.search(body):
        events.append(_event(base | {"choices": [], "usage": usage(body)}))
    events.append(_event(None) + b"0\r\n\r\n")
    return events


class Connection(asyncio.Protocol, ABC):
    """One connection: requests in, answers out, keep-alive. Subclasses answer."""

    def __init__(self) -> None:
        self._body: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        task = asyncio.get_running_loop().create_task(self.answer(body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @abstractmethod
    async def answer(self, body: bytes) -> None:
        """Answer a request."""


class Provider(Connection):
    """Canned answers."""

    async def answer(self, body: bytes) -> None:
        """JSON or a stream, as is asked."""
        if not _STREAM.search(body):
            self._transport.write(json_answer(body))
            return
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head)
        for event in sse_events(body):
            if self._transport.is_closing():
                return
            self._transport.write(event)
            await asyncio.sleep(GAP_S)


async def serve(port: int, connection: Callable[[], Connection] = Provider) -> None:
    """Answer on ``port`` until terminated."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", port, backlog=1000)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.close()


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()

"""The recording provider: a process of its own, which writes every call that it serves into a file before it answers.

What it does to a call stands in the first line of the last message, as JSON: ``{"id": "c7", "fault": "cut",
"delay_s": 0.1}``. Each line of the record is a call: its id, when it arrived, and its cost in nano-dollars (zero where
the provider bills nothing, null where the answer broke before its usage was told).
"""

import argparse
import asyncio
import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson
import uvloop

from tests.bench.provider import Connection, serve
from tests.bench.servers import running
from tests.e2e.fleet import INPUT, MODEL, OUTPUT
from tests.services import free_port
from tests.unread import is_taken

FAULTS = ("", "reset", "cut", "half-json", "large", "hang", "error")
LARGE_BYTES = 20_000_000
HANG_S = 120.0
_BASE = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Served:
    """A call that reached the provider. ``nanos`` is None where no usage was told."""

    id: str
    at: float
    nanos: int | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The provider as the drills see it."""

    url: str
    file: Path

    def served(self) -> list[Served]:
        """All calls so far, in the order in which they arrived."""
        if not self.file.exists():
            return []
        whole = self.file.read_bytes().rpartition(b"\n")[0]
        return [Served(**orjson.loads(line)) for line in whole.splitlines()]


@contextlib.contextmanager
def upstream(folder: Path) -> Iterator[Upstream]:
    """The provider, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    file, port = folder / "served.jsonl", free_port()
    command = [sys.executable, "-m", "tests.drill.upstream", "--port", str(port), "--record", str(file)]
    with running("upstream", command, port, folder) as server:
        yield Upstream(server.url, file)


class _Connection(Connection):
    """Writes each call down, and does to it what it says."""

    def __init__(self, record: int) -> None:
        super().__init__()
        self._record = record

    async def answer(self, body: bytes) -> None:
        if not body:
            self._transport.write(_whole(b"{}"))
            return
        asked = orjson.loads(body)
        text = asked["messages"][-1]["content"]
        told = orjson.loads(text.partition("\n")[0])
        fault, delay_s = told.get("fault", ""), told.get("delay_s", 0.0)
        prompt, output = len(text) // 4, asked["max_tokens"]
        nanos: int | None = prompt * INPUT + output * OUTPUT
        if fault in ("reset", "error"):
            nanos = 0
        elif fault in ("cut", "half-json"):
            nanos = None
        line = {"id": told["id"], "at": time.time(), "nanos": nanos, "fault": fault}
        os.write(self._record, orjson.dumps(line) + b"\n")
        await asyncio.sleep(delay_s)
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        if fault == "reset":
            self._break()
        elif fault == "error":
            error = {"message": "the server had an error", "type": "server_error", "param": None, "code": None}
            self._transport.write(_whole(orjson.dumps({"error": error}), b"500 Internal Server Error"))
        elif asked.get("stream"):
            await self._stream(usage, fault, delay_s)
        else:
            self._json(usage, fault)

    def _json(self, usage: dict[str, int], fault: str) -> None:
        text = "x" * LARGE_BYTES if fault == "large" else "Yes."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        whole = _whole(orjson.dumps({**_BASE, "object": "chat.completion", "choices": [choice], "usage": usage}))
        if fault in ("half-json", "cut"):
            self._transport.write(whole[:-40])
            self._transport.close()
            return
        self._transport.write(whole)

    async def _stream(self, usage: dict[str, int], fault: str, delay_s: float) -> None:
        text = "x" * LARGE_BYTES if fault == "large" else "Yes."
        events = [
            {**_BASE, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]},
            {**_BASE, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**_BASE, "choices": [], "usage": usage},
        ]
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for event in events[:1] if fault in ("cut", "half-json") else events:
            self._transport.write(_chunk(b"data: %b\n\n" % orjson.dumps(event)))
        await asyncio.sleep(delay_s)
        if fault in ("cut", "half-json"):
            connection = self._transport.get_extra_info("socket")
            while self._transport.get_write_buffer_size() or not is_taken(connection):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)  # whoever has read it looks at it before the reset
            self._break()
            return
        self._transport.write(_chunk(b"data: [DONE]\n\n"))
        if fault == "hang":
            await asyncio.sleep(HANG_S)
        if not self._transport.is_closing():
            self._transport.write(b"0\r\n\r\n")

    def _break(self) -> None:
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()


def _whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    return head + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True)
    given = parser.parse_args()
    record = os.open(given.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    uvloop.run(serve(given.port, partial(_Connection, record)))


if __name__ == "__main__":
    main()

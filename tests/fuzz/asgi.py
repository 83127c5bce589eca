"""One case through an ASGI app, with a server that is as strict as uvicorn is."""

import asyncio
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from tests.fuzz.cases import Case
from tests.fuzz.upstream import SEED_HEADER

HANGS_S = 120.0
_NAME = re.compile(b'[\x00-\x1f\x7f()<>@,;:\\[\\]={} \t\\\\"]')
_VALUE = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")


class Broken(Exception):
    """The app did what a server would not let it do, or nothing at all."""


@dataclass
class Result:
    """What the client saw."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    is_complete: bool = False


class _Server:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._parts = list(case.parts)
        self._sent = 0
        self._left = asyncio.Event()
        self.result = Result()

    async def receive(self) -> Message:
        if self._case.is_cut and len(self._parts) <= 1:
            return {"type": "http.disconnect"}
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        result = self.result
        if self._left.is_set() and not result.is_complete:
            return
        if message["type"] == "http.response.start":
            self._start(message)
            return
        if not result.status or result.is_complete:
            raise Broken("a body without a start, or behind the end")
        result.body += message.get("body", b"")
        if not message.get("more_body"):
            self._end()
        self._sent += 1
        if self._case.leaves_after is not None and self._sent > self._case.leaves_after:
            self._left.set()
        await asyncio.sleep(0)

    def _start(self, message: Message) -> None:
        result = self.result
        if result.status:
            raise Broken("started twice")
        result.status = message["status"]
        if not 100 <= result.status <= 599:
            raise Broken(f"status {result.status}")
        for name, value in message["headers"]:
            if not name or _NAME.search(name) or _VALUE.search(value):
                raise Broken(f"header {name!r}: {value!r}")
            result.headers[name.lower()] = value
        int(result.headers.get(b"content-length", b"0"))

    def _end(self) -> None:
        self.result.is_complete = True
        length = self.result.headers.get(b"content-length")
        if length is not None and self._case.method != "HEAD" and int(length) != len(self.result.body):
            raise Broken(f"{len(self.result.body)} bytes instead of {length!r}")
        self._left.set()


async def exchange(app: ASGIApp, case: Case) -> Result:
    """Send one case. Raises Broken, TimeoutError where it hangs, and what the app lets out."""
    server = _Server(case)
    raw = case.path.encode("latin-1")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": case.method,
        "scheme": "http",
        "path": unquote(case.path),
        "raw_path": raw,
        "query_string": case.query,
        "root_path": "",
        "headers": [*case.headers, (SEED_HEADER.encode(), b"%d" % case.seed)],
        "server": ("127.0.0.1", 4000),
        "client": ("127.0.0.1", 1),
        "state": {},
    }
    await asyncio.wait_for(app(scope, server.receive, server.send), HANGS_S)
    left = case.is_cut or case.leaves_after is not None
    if not server.result.status and not left:
        raise Broken("returned without an answer")
    return server.result

"""Clients that send one call behind the other while a drill goes on, and write down what each of them was told."""

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

import aiohttp

from tests.e2e.fleet import MODEL

_PATIENCE_S = 180.0
# A client that is refused asks again after a while, as an SDK does.
_PAUSE_S = 0.05
_numbers = itertools.count(1)


def key_of(team: str) -> str:
    """The key of a team."""
    return f"sk-drill-{team}"


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was told about one call. A status of 0: nothing, or not all of it."""

    id: str
    team: str
    began: float
    ended: float
    status: int
    is_complete: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """The calls that clients send: what the provider does to them, for how long, and how they are asked for."""

    fault: str = ""
    delay_s: float = 0.0
    output: int = 20
    model: str = MODEL
    is_stream: bool | None = None
    """None: every other call."""


class Clients:
    """So many clients a team, from ``with`` to its end. Calls that are under way at the end are waited for."""

    def __init__(
        self, url: str, teams: Mapping[str, int], kind: Kind = Kind(), *, calls: int = 1_000_000, pause_s: float = 0.0
    ) -> None:
        self.told: list[Told] = []
        self._url = url
        self._people = [team for team, count in teams.items() for _ in range(count)]
        self._kind = kind
        self._calls = calls
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="clients")

    def __enter__(self) -> "Clients":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for the calls that are under way."""
        self._stop.set()
        self._thread.join(_PATIENCE_S + 10)
        assert not self._thread.is_alive(), "the clients do not come to an end"

    def wait(self) -> None:
        """Until every client has made its calls."""
        self._thread.join()

    def of(self, team: str) -> list[Told]:
        """What the clients of a team were told."""
        return [one for one in list(self.told) if one.team == team]

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            for number, team in enumerate(self._people):
                group.create_task(self._client(session, number, team))

    async def _client(self, session: aiohttp.ClientSession, number: int, team: str) -> None:
        for call in range(self._calls):
            if self._stop.is_set():
                return
            told = await self._call(session, number + call, team)
            self.told.append(told)
            pause_s = self._pause_s if told.is_complete else max(self._pause_s, _PAUSE_S)
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _call(self, session: aiohttp.ClientSession, turn: int, team: str) -> Told:
        name, kind = f"c{next(_numbers)}", self._kind
        is_stream = turn % 2 == 0 if kind.is_stream is None else kind.is_stream
        steering = {"id": name, "fault": kind.fault, "delay_s": kind.delay_s}
        content = json.dumps(steering) + "\n" + "word " * (50 + turn * 7 % 100)
        body = {
            "model": kind.model, "max_tokens": kind.output, "user": name,
            "messages": [{"role": "user", "content": content}],
        }  # fmt: skip
        if is_stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"authorization": f"Bearer {key_of(team)}"}
        began, status, text, is_whole = time.time(), 0, b"", False
        try:
            async with session.post(
                f"{self._url}/v1/chat/completions", data=json.dumps(body), headers=headers
            ) as answer:
                status = answer.status
                text = await answer.read()
                is_whole = status == 200 and (not is_stream or text.endswith(b"data: [DONE]\n\n"))
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            return Told(name, team, began, time.time(), 0, False, f"{status} {type(error).__name__}")
        return Told(name, team, began, time.time(), status, is_whole, "" if is_whole else text[-300:].decode("latin-1"))


def statuses(told: Iterable[Told]) -> str:
    """How often each status was told, as text."""
    counted = Counter(one.status for one in told)
    return ", ".join(f"{count} x {status or 'cut off'}" for status, count in sorted(counted.items()))

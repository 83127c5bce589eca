"""Errors whose beginning is read before they are passed on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.core.response.refusal import NO_WORDS
from proxy.engine.answers import read_ahead
from proxy.engine.answers.read_ahead import ReadAhead, with_refusal_read
from proxy.errors import ProxyError, UpstreamUnavailable
from proxy.ports import Headers


class Slow:
    """An answer that goes on when it is told to."""

    def __init__(self, *steps: bytes | ProxyError | None, status: int = 400, headers: Headers = ()) -> None:
        self.status, self.headers, self.steps = status, headers, steps
        self.go_on = asyncio.Event()
        self.is_closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for step in self.steps:
            if isinstance(step, ProxyError):
                raise step
            if step is None:
                await self.go_on.wait()
            else:
                yield step

    async def aclose(self) -> None:
        self.is_closed = True


async def rest_of(answer: ReadAhead) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


def test_what_comes_late_is_passed_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_MOST_S", 0.01)

    async def main() -> None:
        slow = Slow(b"one ", None, b"two ", b"three")
        ahead = ReadAhead(slow)
        assert await ahead.read() == b"one "
        slow.go_on.set()
        assert await rest_of(ahead) == b"one two three"
        await ahead.aclose()
        assert slow.is_closed

    asyncio.run(main())


def test_a_chunk_that_came_meanwhile_is_passed_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_MOST_S", 0.01)

    async def main() -> None:
        slow = Slow(b"one ", None, b"two ", b"three")
        ahead = ReadAhead(slow)
        await ahead.read()
        slow.go_on.set()
        await asyncio.sleep(0.02)
        assert await rest_of(ahead) == b"one two three"

    asyncio.run(main())


def test_nothing_waits_any_more_where_reading_ahead_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_MOST_S", 0.01)

    async def main() -> None:
        ahead = ReadAhead(Slow(b"one", None))
        await ahead.read()
        await ahead.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_break_is_passed_on_behind_what_came() -> None:
    async def main() -> None:
        ahead = ReadAhead(Slow(b"one", UpstreamUnavailable("broken")))
        assert await ahead.read() == b"one"
        chunks = ahead.chunks()
        assert await anext(chunks) == b"one"
        with pytest.raises(UpstreamUnavailable):
            await anext(chunks)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "headers"), [(200, ()), (404, ()), (500, ()), (400, [("content-encoding", "gzip")])]
)
def test_other_answers_are_not_read(status: int, headers: Headers) -> None:
    async def main() -> None:
        answer = Slow(None, status=status, headers=headers)
        found, said = await with_refusal_read(answer)
        assert (found is answer, said) == (True, NO_WORDS)

    asyncio.run(main())

"""The beginning of an error, which is read before it is decided whether the error is passed on."""

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

from proxy.core.response.refusal import NO_WORDS, Refusal, refusal_in
from proxy.engine.headers import get
from proxy.errors import ProxyError
from proxy.ports import Answer
from proxy.tasks import Tasks, drain, spawn

_MOST_BYTES = 1 << 16
_MOST_S = 2.0
# The statuses of errors whose words decide what becomes of the request: an account without money, a member that the
# upstream does not know.
_TELLING = frozenset({400, 402, 403, 422, 429})
# Those by which an upstream may say besides that a request is too large.
_ON_SIZE = frozenset({413, 500})


class ReadAhead:
    """An answer of which the beginning has been read; all of it is still passed on, also how it breaks off."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._chunks: list[bytes] = []
        self._failure: ProxyError | None = None
        self._is_over = False
        self._rest = answer.chunks()
        self._next: Tasks = set()
        """What waits for the next chunk, if anything does."""

    async def read(self) -> bytes:
        """The body, as far as it comes soon and is short enough to be an error object."""
        until_s = perf_counter() + _MOST_S
        while not self._next and not self._is_over and sum(map(len, self._chunks)) <= _MOST_BYTES:
            task = spawn(self._one(), self._next)
            # The chunk is not given up where it comes late: it is passed on.
            await asyncio.wait({task}, timeout=max(0.0, until_s - perf_counter()))
        return b"".join(self._chunks)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning. Raises what interrupted it."""
        position = 0
        while position < len(self._chunks) or self._next:
            await drain(self._next if position == len(self._chunks) else set())
            for chunk in self._chunks[position:]:
                position += 1
                yield chunk
        if self._failure is not None:
            raise self._failure
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        """Close the answer."""
        for task in self._next:
            task.cancel()
        await drain(self._next)
        await self._answer.aclose()

    async def _one(self) -> None:
        """Read the next chunk, or note that the body has ended."""
        try:
            self._chunks.append(await anext(self._rest))
        except StopAsyncIteration:
            self._is_over = True
        except ProxyError as error:
            self._is_over, self._failure = True, error


async def with_refusal_read(answer: Answer, *, reads_size: bool = False) -> tuple[Answer, Refusal]:
    """The answer, and what it says where that decides about the request. Compressed bytes are not looked into.
    ``reads_size``: it matters whether the request is too large."""
    is_telling = answer.status in _TELLING or (reads_size and answer.status in _ON_SIZE)
    if not is_telling or get(answer.headers, "content-encoding") not in (None, "", "identity"):
        return answer, NO_WORDS
    ahead = ReadAhead(answer)
    return ahead, refusal_in(await ahead.read())

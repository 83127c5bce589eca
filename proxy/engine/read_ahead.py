"""The beginning of an error, which is read before it is decided whether the error is passed on."""

from collections.abc import AsyncIterator

import orjson

from proxy.core.retry import is_quota, may_be_quota
from proxy.errors import ProxyError
from proxy.headers import get
from proxy.ports import Answer

_MOST_BYTES = 1 << 16


class ReadAhead:
    """An answer of which the beginning has been read; all of it is still passed on, also how it breaks off."""

    __slots__ = ("_answer", "_chunks", "_failure", "_rest", "headers", "status")

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._chunks: list[bytes] = []
        self._failure: ProxyError | None = None
        self._rest = answer.chunks()

    async def read(self) -> bytes:
        """The body, as far as it is short enough to be an error object."""
        size = 0
        try:
            async for chunk in self._rest:
                self._chunks.append(chunk)
                size += len(chunk)
                if size > _MOST_BYTES:
                    break
        except ProxyError as error:
            self._failure = error
        return b"".join(self._chunks)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning. Raises what interrupted it."""
        for chunk in self._chunks:
            yield chunk
        if self._failure is not None:
            raise self._failure
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        """Close the answer."""
        await self._answer.aclose()


async def with_quota_read(answer: Answer) -> tuple[Answer, bool]:
    """The answer, and whether it says that the deployment's account has no money left."""
    if not may_be_quota(answer.status):
        return answer, False
    if get(answer.headers, "content-encoding") not in (None, "", "identity"):
        return answer, is_quota(answer.status)
    ahead = ReadAhead(answer)
    return ahead, is_quota(answer.status, *_names(await ahead.read()))


def _names(body: bytes) -> tuple[object, ...]:
    """The code and the type of an error object."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ()
    error = found.get("error") if isinstance(found, dict) else None
    return (error.get("code"), error.get("type")) if isinstance(error, dict) else ()

"""An answer that is there already: a body that nobody waits for any more."""

from collections.abc import AsyncIterator

from proxy.ports import Headers


class WholeAnswer:
    """A complete answer, in the place of one that an upstream sends piece by piece."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, at once."""
        if self._body:
            yield self._body

    async def aclose(self) -> None:
        """Nothing is held open."""

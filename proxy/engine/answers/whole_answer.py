"""An answer that is there already: a body that nobody waits for any more."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from proxy.ports import Headers


@dataclass(slots=True, repr=False)
class WholeAnswer:
    """A complete answer, in the place of one that an upstream sends piece by piece."""

    status: int
    headers: Headers
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, at once."""
        if self.body:
            yield self.body

    async def aclose(self) -> None:
        """Nothing is held open."""

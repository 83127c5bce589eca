"""An answer of the embedded provider: produced chunk by chunk, and stopped at once when it is given up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.errors import UpstreamUnavailable
from proxy.ports import Headers


class AnswerEnd(StrEnum):
    """How a production ended."""

    COMPLETE = "complete"
    BROKEN = "broken"
    CANCELLED = "cancelled"


@dataclass(slots=True, repr=False)
class EmbeddedAnswer:
    """``proxy.ports.Answer``, and the iterator over its own body: what is sent, and when. ``began`` is called at the
    first chunk; ``ended`` once, with the chunks sent so far. ``breaks`` cuts the line behind the last chunk."""

    status: int
    headers: Headers
    body: Sequence[bytes]
    first_byte_s: float = 0.0
    pace_s: float = 0.0
    breaks: bool = False
    began: Callable[[], object] = lambda: None
    ended: Callable[[AnswerEnd, int], object] = lambda ending, produced: None
    _produced: int = 0
    _is_over: bool = False
    _given_up: asyncio.Event = field(default_factory=asyncio.Event)

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it is produced."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._produced == len(self.body) and not self._given_up.is_set():
            self._end(AnswerEnd.BROKEN if self.breaks else AnswerEnd.COMPLETE)
            if self.breaks:
                raise UpstreamUnavailable("the connection to the upstream broke in mid-answer")
            raise StopAsyncIteration
        if not self._given_up.is_set():
            await self._pause(self.pace_s if self._produced else self.first_byte_s)
        if self._given_up.is_set():
            raise UpstreamUnavailable("the call was given up")
        if self._produced == 0:
            self.began()
        self._produced += 1
        return self.body[self._produced - 1]

    async def aclose(self) -> None:
        """Stop producing; a reader that waits is woken."""
        self._given_up.set()
        is_whole = self._produced == len(self.body) and not self.breaks
        self._end(AnswerEnd.COMPLETE if is_whole else AnswerEnd.CANCELLED)

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)  # as any socket would, let the others run
            return
        try:
            await asyncio.wait_for(self._given_up.wait(), seconds)
        except TimeoutError:
            return

    def _end(self, ending: AnswerEnd) -> None:
        if not self._is_over:
            self._is_over = True
            self.ended(ending, self._produced)

"""The usage of a request, returned in its answer if the client asks for it (``stratiform: {return_usage: true}``).

A stream gets one more chunk, without choices, before the event that ends it. A JSON body gets one more member. A
compressed answer, an error, and a stream that ends within an event pass unchanged.
"""

import orjson

from proxy.core.response.outcome import Outcome
from proxy.core.response.stream import BodyFold, Fold, StreamFold
from proxy.core.structured.context import SECTION
from proxy.engine.exchange import Exchange
from proxy.engine.ports import UsageReports
from proxy.engine.suppress import suppress_and_log

TOKEN_USAGE = "token_usage"
"""The name of the member in the answer's section."""
_MOST_KEPT = 1 << 16


class BodyAddition:
    """Adds a member to a JSON object as the object passes, after its other members. No other byte changes. The last
    closing brace is held back until ``end``, with the white space after it. So the object may have any length and
    arrive in any pieces."""

    def __init__(self) -> None:
        self._kept = b""
        self._before = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take a piece of the body. Returns the bytes that may pass now."""
        text = self._kept + chunk
        place = text.rfind(b"}")
        if place < 0 or text[place + 1 :].strip() or len(text) - place > _MOST_KEPT:
            place = len(text)
        passed, self._kept = text[:place], text[place:]
        self._before = passed.rstrip()[-1:] or self._before
        return passed

    def end(self, chunk: bytes, member: bytes) -> bytes:
        """Take the last piece of the body. Returns the rest with the ``member``, which is a name and a value. Nothing
        is added if the body does not end as an object does, or if the member is empty."""
        passed = self.feed(chunk)
        if not self._kept or not member:
            return passed + self._kept
        return passed + (b"" if self._before == b"{" else b",") + member + self._kept


class ReturnedUsage:
    """Adds the usage of the exchange to the end of one answer."""

    def __init__(self, exchange: Exchange, fold: StreamFold | BodyFold, reports: UsageReports) -> None:
        self._exchange = exchange
        self._reports = reports
        self._body = BodyAddition() if isinstance(fold, BodyFold) else None

    def feed(self, out: bytes) -> bytes:
        """The part of these bytes that may pass now."""
        return out if self._body is None else self._body.feed(out)

    async def end(self, end: bytes, outcome: Outcome, *, is_between: bool) -> bytes:
        """The last bytes of the answer, with the usage of the exchange, which has been booked. ``is_between``: no event
        of a stream is open before these bytes."""
        is_read = self._body is None or outcome.usage is not None or outcome.finish_reason != ""
        section = await self._section() if is_read and outcome.error is None else b""
        if self._body is not None:
            return self._body.end(end, b'"%b":%b' % (SECTION.encode(), section) if section else b"")
        return self._event(section) + end if section and is_between else end

    async def _section(self) -> bytes:
        with suppress_and_log("usage_reports"):
            return orjson.dumps({TOKEN_USAGE: await self._reports(self._exchange)})
        return b""

    def _event(self, section: bytes) -> bytes:
        arrival, said = self._exchange.arrival, self._exchange.answer.outcome.said
        chunk = {
            "id": (said.id if said is not None else "") or arrival.id,
            "object": "chat.completion.chunk",
            "created": int(arrival.now),
            "model": self._exchange.requested.model,
            "choices": [],
            SECTION: orjson.Fragment(section),
        }
        return b"data: " + orjson.dumps(chunk) + b"\n\n"


def returned_usage(exchange: Exchange, fold: Fold, reports: UsageReports | None) -> ReturnedUsage | None:
    """The object that adds the usage to an answer. None if the client does not ask for it, or if the answer is not
    read."""
    if not exchange.returns_usage or reports is None or not isinstance(fold, StreamFold | BodyFold):
        return None
    return ReturnedUsage(exchange, fold, reports)

"""Lists of the provider account's objects. A team sees only its own objects.

The provider lists the objects of all teams. Its pages are read one after the other, up to a bound, until they contain
as many of the team's own objects as the client asked for. The client gets these objects in the form of one page of the
provider. A list that cannot be read in this way is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

import orjson

from proxy.engine.answers.relay import own_headers
from proxy.engine.answers.upstream_answer import check_status
from proxy.engine.attempts.retry import Attempts
from proxy.engine.conclusion import Conclusion
from proxy.engine.custody import Custody
from proxy.engine.exchange import Exchange, ExchangeOutcome
from proxy.engine.headers import for_client
from proxy.engine.ports import Client
from proxy.errors import Forbidden, UpstreamUnavailable
from proxy.ports import Answer, Call, Upstream

_MOST_PAGES = 20
_MOST_BYTES = 8 << 20
_USUAL = 20
_LARGEST = 10_000
_BACKWARDS = ("before", "before_id")
_JSON = ("content-type", "application/json")

Page = Mapping[str, object]


@dataclass(slots=True)
class Listing:
    """One request for a list."""

    exchange: Exchange
    client: Client
    custody: Custody
    conclusion: Conclusion

    async def serve(self, upstream: Upstream, call: Call, attempts: Attempts) -> None:
        """Request the pages and send the answer. Raises ProxyError."""
        if not attempts.began():
            raise attempts.shut()
        self.exchange.attempts += 1
        try:
            await self._serve(upstream, call, attempts)
        finally:
            attempts.abandoned()

    async def _serve(self, upstream: Upstream, call: Call, attempts: Attempts) -> None:
        wanted, rows, is_more = _wanted(call.query), list[Page](), True
        first: Page = {}
        for number in range(_MOST_PAGES):
            answer = await upstream.open(call)
            try:
                check_status(answer)
                body = await _read(answer)
            finally:
                await answer.aclose()
            attempts.answered()
            if answer.status != 200 and number == 0:
                await self._send(answer.status, answer, body)
                return
            if answer.status != 200:
                break
            page = _page(body)
            found = _rows(page)
            first = first or page
            rows += await self._own(found)
            is_more = page.get("has_more") is True and bool(found)
            if not is_more or len(rows) >= wanted or any(name in _BACKWARDS for name, _ in parse_qsl(call.query)):
                break
            call = replace(call, query=_after(call.query, str(found[-1]["id"]), page))
        shown = rows[:wanted]
        ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
        changed = {**ends, "has_more": bool(shown) and (is_more or len(rows) > wanted)}
        content = {**first, "data": shown, **{name: value for name, value in changed.items() if name in first}}
        await self._send(200, None, orjson.dumps(content))

    async def _own(self, rows: Sequence[Page]) -> list[Page]:
        records = await self.custody.owned(self.exchange.admitted.team, [str(row["id"]) for row in rows])
        return [row for row, record in zip(rows, records, strict=True) if record is not None]

    async def _send(self, status: int, answer: Answer | None, body: bytes) -> None:
        exchange = self.exchange
        exchange.answer.status, exchange.answer.first_byte_s = status, exchange.elapsed_s()
        exchange.ending = ExchangeOutcome.COMPLETED if status < 400 else ExchangeOutcome.REJECTED
        await self.conclusion.book(exchange)
        theirs = [_JSON] if answer is None else for_client(answer.headers, keep_length=False, hides_account=True)
        told = own_headers(exchange, theirs)
        await self.client.start(status, [*theirs, ("content-length", str(len(body))), *told])
        exchange.answer.sent_bytes += len(body)
        await self.client.end(body)


async def _read(answer: Answer) -> bytes:
    chunks, size = list[bytes](), 0
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > _MOST_BYTES:
            raise UpstreamUnavailable("the upstream's list is too long to be read here: ask for fewer with `limit`")
        chunks.append(chunk)
    return b"".join(chunks)


def _page(body: bytes) -> Page:
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _unknown() from error
    if not isinstance(page, dict):
        raise _unknown()
    return page


def _rows(page: Page) -> list[Page]:
    rows = page.get("data")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise _unknown()
    return rows


def _unknown() -> Forbidden:
    return Forbidden(
        "The upstream's list is of a form that this proxy does not know, so that it cannot show your part of it.",
        code="path_not_allowed",
    )


def _wanted(query: str) -> int:
    given = dict(parse_qsl(query)).get("limit", "")
    return max(1, min(int(given), _LARGEST)) if given.isdecimal() and len(given) < 9 else _USUAL


def _after(query: str, cursor: str, page: Page) -> str:
    """The query of the next page. In Anthropic's lists, the parameter is ``after_id``."""
    pairs = parse_qsl(query, keep_blank_values=True)
    is_other = any(name == "after_id" for name, _ in pairs) or "object" not in page
    name = "after_id" if is_other else "after"
    return urlencode([*((key, value) for key, value in pairs if key != name), (name, cursor)])

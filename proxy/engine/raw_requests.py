"""Requests on all other paths. They are read as far as needed to know which deployment's model they ask for, and passed
through.

A list of the provider account's objects is not passed through for a team, because the provider lists the objects of all
teams. Its pages are read one after the other, up to a bound, until they contain as many of the team's own objects as
the client asked for. The client gets these objects in the form of one page of the provider. A list that cannot be read
in this way is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qsl, urlencode

import orjson

from proxy.context import SECTION, section_of
from proxy.engine.attempts import MOST_ASKED_BYTES, Attempts, OurEdit
from proxy.engine.bodies import (
    Raw,
    Upload,
    addressed,
    checked_form,
    has_body,
    is_any_form,
    is_compressed,
    is_form,
    is_json,
    is_sound,
    peeked_head,
    raw_call,
    read_form,
    refuse_compressed,
)
from proxy.engine.conclusion import Conclusion, own_headers
from proxy.engine.custody import Custody, FileWatch, refers
from proxy.engine.exchange import Call, Exchange, ExchangeOutcome, Principal
from proxy.engine.headers import PROFILE_HEADER, for_client, form_of, get
from proxy.engine.intake import Intake, path_for, refused_fields
from proxy.engine.ports import Answer, Client, Ports
from proxy.engine.relay import Accepted, AnswerRelay
from proxy.engine.upstream_answer import check_status
from proxy.kit.errors import Forbidden, InvalidRequest, UpstreamError, UpstreamUnavailable
from proxy.kit.value import dataclass
from proxy.protocol.access import Reach, unambiguous
from proxy.protocol.account import is_body_path, takes_prompt
from proxy.protocol.request import RequestFields, parse_body
from proxy.protocol.request.demand import asks_for_text
from proxy.storage import ObjectRecord

_MOST_PAGES = 20
_MOST_BYTES = 8 << 20
_USUAL = 20
_LARGEST = 10_000
_BACKWARDS = ("before", "before_id")
_JSON = ("content-type", "application/json")

Page = Mapping[str, object]


async def _read(answer: Answer) -> bytes:
    chunks, size = list[bytes](), 0
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > _MOST_BYTES:
            raise UpstreamUnavailable("the upstream's list is too long to be read here: ask for fewer with `limit`")
        chunks.append(chunk)
    return b"".join(chunks)


def _page(body: bytes) -> tuple[Page, list[Page]]:
    """A page of a list, and its rows."""
    try:
        page = orjson.loads(body)
        rows = page["data"]
        is_known = isinstance(rows, list) and all(isinstance(row["id"], str) for row in rows)
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise _unknown() from error
    if not is_known:
        raise _unknown()
    return page, rows


def _own_rows(rows: Sequence[Page], records: Sequence[ObjectRecord | None]) -> list[Page]:
    """The rows of the team's own objects."""
    return [row for row, record in zip(rows, records, strict=True) if record is not None]


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


@dataclass(frozen=True, slots=True, repr=False)
class RawRequests:
    """Serves requests that are passed through in both directions."""

    ports: Ports
    intake: Intake
    conclusion: Conclusion
    custody: Custody | None

    async def serve(self, exchange: Exchange, client: Client) -> None:
        """Serve one request. Raises ProxyError."""
        principal = await self.intake.enter(exchange, client)
        raw = await self._read(exchange, client, principal)
        # The length of a JSON body that is too long to be read counts. Other uploads are no prompts.
        declared = form_of(client.headers).length or 0 if is_json(client) else 0
        self.intake.arrived(exchange, client, raw.size or declared)
        attempts, reach = await self.intake.route(exchange, client, raw, may_repeat=raw.may_repeat(exchange))
        self._obey_operator(exchange, client, raw, reach)
        fitted = await self._fitted(exchange, raw)
        parsed = fitted.head.parsed if fitted.head is not None else None
        if self.ports.inquiries is not None and parsed is not None:
            # The question to the provider for the cause of a cache miss counts with the request.
            exchange.inquiry = await self.ports.inquiries.open(exchange, parsed)
            exchange.sent = ((parsed, MOST_ASKED_BYTES),) if exchange.inquiry is not None else ()
        form, sound_s = raw.body, None
        if isinstance(form, Upload):
            sound_s = await self.ports.aside.run_large(len(form.held), form.sound_s)
        await self.intake.reserve(exchange, client, attempts, reach, raw, sound_s)
        exchange.overhead_s = exchange.elapsed_s()
        if exchange.objects.is_filtered and self.custody is not None:
            call = raw_call(exchange, client, attempts.deployment, raw, client.path)
            await self._serve_list(exchange, client, self.custody, call, attempts)
            return
        try:
            await self._forward(exchange, client, raw, fitted, attempts, reach)
        except UpstreamError as error:
            # If the client or the proxy breaks off an upload, the upstream connection fails too. That is no failure of
            # the upstream, so the original error is raised.
            if client.failure is not None:
                raise client.failure from error
            raise

    async def _serve_list(
        self, exchange: Exchange, client: Client, custody: Custody, call: Call, attempts: Attempts
    ) -> None:
        """Request the pages of a list, and answer with the team's own objects. Raises ProxyError."""
        if not attempts.began():
            raise attempts.shut()
        exchange.attempts += 1
        try:
            answer, body = await self._own_page(exchange, custody, call, attempts)
        finally:
            attempts.abandoned()
        status = 200 if answer is None else answer.status
        exchange.answer.status, exchange.answer.first_byte_s = status, exchange.elapsed_s()
        exchange.ending = ExchangeOutcome.COMPLETED if status < 400 else ExchangeOutcome.REJECTED
        await self.conclusion.book(exchange)
        theirs = [_JSON] if answer is None else for_client(answer.headers, keep_length=False, hides_account=True)
        told = own_headers(exchange, theirs)
        await client.start(status, [*theirs, ("content-length", str(len(body))), *told])
        exchange.answer.sent_bytes += len(body)
        await client.end(body)

    async def _own_page(
        self, exchange: Exchange, custody: Custody, call: Call, attempts: Attempts
    ) -> tuple[Answer | None, bytes]:
        """The team's own objects as one page. If the provider refuses the first page, its answer comes with the
        body."""
        wanted, rows, is_more = _wanted(call.query), list[Page](), True
        first: Page = {}
        for number in range(_MOST_PAGES):
            answer = await self.ports.upstreams[call.deployment.transport].open(call)
            try:
                check_status(answer)
                body = await _read(answer)
            finally:
                await answer.aclose()
            attempts.answered()
            if answer.status != 200 and number == 0:
                return answer, body
            if answer.status != 200:
                break
            page, found = _page(body)
            first = first or page
            records = await custody.owned(exchange.principal.team, [str(row["id"]) for row in found])
            rows += _own_rows(found, records)
            is_more = page.get("has_more") is True and bool(found)
            if not is_more or len(rows) >= wanted or any(name in _BACKWARDS for name, _ in parse_qsl(call.query)):
                break
            call = replace(call, query=_after(call.query, str(found[-1]["id"]), page))
        shown = rows[:wanted]
        ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
        changed = {**ends, "has_more": bool(shown) and (is_more or len(rows) > wanted)}
        content = {**first, "data": shown, **{name: value for name, value in changed.items() if name in first}}
        return None, orjson.dumps(content)

    def _obey_operator(self, exchange: Exchange, client: Client, raw: Raw, reach: Reach) -> None:
        """Ensure that a client cannot avoid the operator's prompts and windows by another path. Raises InvalidRequest,
        Forbidden."""
        composer, path = self.ports.composer, exchange.parsed.text
        if composer is None or not asks_for_text(exchange.arrival.method, path):
            return
        models = (exchange.requested.model, *reach.models)
        if any(composer.requires(model, exchange.principal) for model in models):
            raise InvalidRequest(
                "the operator's prompts belong into this request, and are composed in chat completions only",
                code="prompts_unavailable",
            )
        wished = get(client.headers, PROFILE_HEADER) or ""
        windows = [window for model in models if (window := composer.window(model, exchange.principal, wished))]
        if windows and not (takes_prompt(exchange.parsed) and raw.head is not None and raw.head.parsed is not None):
            raise InvalidRequest(
                "this request has a budget for its context window, which is kept in chat completions and in completions"
                " only",
                code="window_unavailable",
            )
        exchange.window = windows[0] if windows else None

    async def _fitted(self, exchange: Exchange, raw: Raw, scale: float = 1.0) -> Raw:
        """The request within the budget of its context window. Raises ContextTooLong, InvalidRequest."""
        windows, profile, parsed = self.ports.windows, exchange.window, raw.head.parsed if raw.head else None
        if windows is None or profile is None or parsed is None or exchange.deployment is None:
            return raw
        deployment, scope = exchange.deployment, exchange.principal.scope
        fitted = await windows.fitted_completion(parsed, profile, deployment, scale=scale, scope=scope)
        exchange.fitted = fitted
        return raw if fitted.body is parsed.body else Raw(fitted.body, peeked_head(fitted.body))

    async def _forward(
        self, exchange: Exchange, client: Client, raw: Raw, fitted: Raw, attempts: Attempts, reach: Reach
    ) -> None:
        """Send the fitted request, or the one that replaces it, until an answer is passed on. Raises ProxyError."""
        inquiries, inquiry = self.ports.inquiries, exchange.inquiry

        async def call_of(sent: Raw) -> tuple[Call, OurEdit]:
            deployment = attempts.deployment
            asked = inquiries.changes(inquiry, deployment) if inquiries is not None else {}
            path = path_for(client.path, reach.place, exchange.requested.model, deployment.model)
            call = await self.ports.aside.run_large(
                sent.size, raw_call, exchange, client, deployment, sent, path, asked
            )
            return call, OurEdit.CAUSE if asked else OurEdit.NONE

        def without(sent: Raw, refused: OurEdit, names_usage: bool) -> Accepted:
            assert inquiries is not None
            assert inquiry is not None
            inquiry.is_refused = True
            return partial(inquiries.refused, attempts.deployment)

        relay = AnswerRelay(exchange, client, self.ports, self.conclusion)
        await relay.send(fitted, attempts, call_of, without, partial(self._fitted, exchange, raw))

    async def _read(self, exchange: Exchange, client: Client, principal: Principal) -> Raw:
        """The request, read as far as needed to know which deployment's model it asks for. Raises ProxyError."""
        body: bytes | None = None
        asks, path, limits = exchange.asks_model, exchange.parsed, self.intake.rules.limits
        if is_compressed(client) and (asks or is_form(client, path) or principal.is_confined):
            # A request need not be understood if it can go to only one place and no rights are checked.
            if principal.models or principal.is_confined or self.ports.models.sole() is None:
                refuse_compressed()
            return Raw(await client.read(limits.body_bytes), is_unread=True)
        if asks:
            # The body is read whatever its content type says, because a body that is not read is neither priced nor
            # checked against the key's models.
            body = await client.read(limits.body_bytes)
        elif is_form(client, path):
            return await self._form(client, principal, is_whole=is_sound(path))
        elif is_any_form(client) and principal.is_confined:
            return Raw(checked_form(client, limits.upload_bytes, refers, FileWatch(exchange)), is_form=True)
        elif principal.is_confined or is_json(client) or (client.method == "POST" and is_body_path(path.text)):
            body = await client.peek(limits.peek_bytes)
        elif not has_body(client):
            body = await client.read(limits.peek_bytes)
        if body is None:
            return Raw(client.stream(limits.upload_bytes))
        return await self.ports.aside.run_large(len(body), _peeked, body, exchange.arrival.addressed)

    async def _form(self, client: Client, principal: Principal, *, is_whole: bool) -> Raw:
        limits, refuses = self.intake.rules.limits, refused_fields(principal)
        limit = limits.body_bytes
        upload = await read_form(client, limit, limits.upload_bytes, refuses, is_whole=is_whole)
        if upload.model is None and (principal.models or self.ports.models.sole() is None):
            what = f"its first {limit} bytes do not name the model: send the field 'model' in front of the file"
            raise InvalidRequest(f"the form is too long: {what}", param="model", code="missing_model")
        return Raw(upload, RequestFields(upload.model) if upload.model else None)


def _peeked(body: bytes, model: str) -> Raw:
    head = peeked_head(body)
    if head is None:
        return Raw(body)
    head = unambiguous(head)
    if model:
        head = addressed(head, model, parse_body)
    if section_of(head.members) is not None:
        raise InvalidRequest(
            f"'{SECTION}' is read in chat completions only: send the request to /v1/chat/completions, or leave it out",
            param=SECTION,
            code="structured_form_unavailable",
        )
    return Raw(head.body, head)

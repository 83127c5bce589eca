"""The engine: one method for chat requests, one for every other path, and one ending for both."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace

import orjson

from proxy.clock import request_time
from proxy.core.head import Head, head_of, untouched
from proxy.core.modes import Mode
from proxy.core.reasons import Reason
from proxy.core.wire import splice
from proxy.engine.answer import Passage, own_headers
from proxy.engine.client import Client, HungUp, Limits
from proxy.engine.contained import Contained
from proxy.engine.line import exchange_line
from proxy.errors import InternalError, InvalidRequest, ProxyError, UpstreamError, UpstreamRejected
from proxy.exchange import Ending, Exchange, Meter
from proxy.headers import for_upstream, get
from proxy.ports import Admission, Call, Clock, Deployment, Models, Plan, Planner, Subject, Transport, Upstream
from proxy.tasks import Tasks, drain, spawn

MODE_HEADER = "x-stratiform-mode"
_BYTES_PER_TOKEN = 4

_log = logging.getLogger("stratiform")


class Engine:
    """Runs exchanges. ``trust_time_header``: requests may bring their own time (replays)."""

    def __init__(
        self,
        *,
        models: Models,
        upstreams: Mapping[Transport, Upstream],
        planner: Planner,
        admission: Admission,
        meter: Meter,
        clock: Clock,
        limits: Limits | None = None,
        trust_time_header: bool = False,
    ) -> None:
        self._models = models
        self._upstreams = dict(upstreams)
        self._planner = planner
        self._admission = admission
        self._meter = meter
        self._clock = clock
        self._limits = limits or Limits()
        self._trust_time_header = trust_time_header
        self._settling: Tasks = set()

    async def chat(self, client: Client) -> None:
        """Serve a chat request: planned, forwarded, streamed back."""
        await self._run(client, self._chat, is_chat=True)

    async def relay(self, client: Client) -> None:
        """Serve any other path: passed through in both directions."""
        await self._run(client, self._relay, is_chat=False)

    def subject(self, client: Client) -> Subject:
        """Who the client is, for answers that are the proxy's own. Raises Unauthorized."""
        return self._admission.admit(client.headers, self._clock.now())

    async def aclose(self) -> None:
        """Finish what is being settled and close the upstreams."""
        await drain(self._settling)
        for upstream in self._upstreams.values():
            await upstream.aclose()

    async def _run(self, client: Client, work: Callable[[Exchange, Client], Awaitable[None]], *, is_chat: bool) -> None:
        exchange = Exchange(client.method, client.path, self._clock.now(), is_chat=is_chat)
        self._meter.began(exchange)
        try:
            await work(exchange, client)
        except ProxyError as error:
            _note_refusal(exchange, error)
            await client.refuse(error, own_headers(exchange))
        except HungUp:
            exchange.ending = Ending.HUNG_UP
        except asyncio.CancelledError:
            exchange.ending = exchange.ending or Ending.HUNG_UP
            raise
        finally:
            exchange.total_s = exchange.elapsed_s()
            if exchange.ending is None:
                exchange.ending = Ending.FAILED
                exchange.status = exchange.status if client.is_started else InternalError.status
            await asyncio.shield(spawn(self._settle(exchange), self._settling))

    async def _chat(self, exchange: Exchange, client: Client) -> None:
        subject = self._admit(exchange, client)
        if get(client.headers, "content-encoding") not in (None, "", "identity"):
            raise InvalidRequest("compressed request bodies are not read here", code="unsupported_encoding")
        body = await client.read(self._limits.body_bytes)
        self._arrived(exchange, client, len(body))
        head = head_of(body, self._planner.cut)
        if not head.model:
            raise InvalidRequest("'model' must be a non-empty string", param="model", code="missing_model")
        exchange.wants_usage = head.wants_usage
        deployment = self._resolve(exchange, head)
        exchange.mode = _mode(client, deployment, subject)
        plan = await self._plan(exchange, body, head, deployment, subject)
        await self._reserve(exchange, subject, deployment, _prompt_tokens(plan, body), head.max_output_tokens)
        call = Call(
            deployment=deployment,
            method="POST",
            path=client.path,
            query=client.query,
            headers=for_upstream(client.headers, deployment, is_virtual=subject.virtual),
            body=plan.body,
            stream=head.stream,
            now=exchange.now,
        )
        await self._send(exchange, client, call, plan)

    async def _plan(
        self, exchange: Exchange, body: bytes, head: Head, deployment: Deployment, subject: Subject
    ) -> Plan:
        """The planner's plan. In passthrough there is nothing to plan, and what the messages are is the upstream's to
        judge: they are not even read."""
        if exchange.mode is Mode.PASSTHROUGH:
            sent = untouched(body, head, deployment.model)
            plan = Plan(sent, sent, exchange.mode, Reason.PASSTHROUGH_MODE)
        else:
            await self._planner.prepare(head.cut, exchange.mode)
            plan = self._planner.plan(body, deployment, subject, exchange.mode, exchange.now, head.cut)
        exchange.plan, exchange.mode, exchange.reason = plan, plan.mode, plan.reason
        return plan

    async def _send(self, exchange: Exchange, client: Client, call: Call, plan: Plan) -> None:
        """Send the plan's body; where the upstream refuses a rewritten one, the client's own."""
        upstream = self._upstreams[call.deployment.transport]
        passage = Passage(exchange, client, self._planner)
        exchange.overhead_s = exchange.elapsed_s()
        if await passage.attempt(upstream, call, may_refuse=plan.rewritten):
            return
        with Contained("planner.refused"):
            self._planner.refused(plan)
        exchange.was_retried, exchange.reason = True, Reason.BARRED
        await passage.attempt(upstream, replace(call, body=plan.original), may_refuse=False)

    async def _relay(self, exchange: Exchange, client: Client) -> None:
        subject = self._admit(exchange, client)
        body = await self._raw_body(client)
        self._arrived(exchange, client, len(body) if isinstance(body, bytes) else 0)
        head = _peeked_head(body)
        deployment = self._resolve(exchange, head)
        if head is not None and head.model != deployment.model and head.members is not None and head.model:
            assert isinstance(body, bytes)
            body = splice(body, head.members, {"model": orjson.dumps(deployment.model)})
        tokens = exchange.request_bytes // _BYTES_PER_TOKEN
        await self._reserve(exchange, subject, deployment, tokens, head.max_output_tokens if head else None)
        # An answer to JSON may carry usage, which cannot be read from compressed bytes.
        accept = "identity" if head is not None else get(client.headers, "accept-encoding")
        headers = for_upstream(client.headers, deployment, is_virtual=subject.virtual, accept_encoding=accept)
        if not isinstance(body, bytes) and (length := get(client.headers, "content-length")) is not None:
            headers.append(("content-length", length))
        call = Call(
            deployment=deployment,
            method=client.method,
            path=client.path,
            query=client.query,
            headers=headers,
            body=body,
            stream=exchange.stream,
            now=exchange.now,
        )
        exchange.overhead_s = exchange.elapsed_s()
        passage = Passage(exchange, client, self._planner)
        try:
            await passage.attempt(self._upstreams[deployment.transport], call, may_refuse=False)
        except UpstreamError as error:
            # Seen from the upstream's side an upload that we or the client broke off is a broken connection.
            if client.failure is not None:
                raise client.failure from error
            raise

    def _admit(self, exchange: Exchange, client: Client) -> Subject:
        exchange.now = self._now(client)
        exchange.subject = self._admission.admit(client.headers, exchange.now)
        return exchange.subject

    def _arrived(self, exchange: Exchange, client: Client, size: int) -> None:
        exchange.arrived(size)
        exchange.now = self._now(client)

    def _now(self, client: Client) -> float:
        return request_time(client.headers, self._clock, trust_header=self._trust_time_header)

    def _resolve(self, exchange: Exchange, head: Head | None) -> Deployment:
        if head is not None:
            exchange.model, exchange.stream = head.model, head.stream
        exchange.deployment = self._models.resolve(exchange.model) if exchange.model else self._models.fallback()
        return exchange.deployment

    async def _reserve(
        self, exchange: Exchange, subject: Subject, deployment: Deployment, prompt_tokens: int, max_output: int | None
    ) -> None:
        exchange.reservation = await self._admission.reserve(
            exchange.id, subject, deployment, prompt_tokens, max_output, exchange.now
        )

    async def _raw_body(self, client: Client) -> bytes | AsyncIterator[bytes]:
        if "json" in (get(client.headers, "content-type") or "").lower():
            body = await client.peek(self._limits.peek_bytes)
            if body is not None:
                return body
        elif not _has_body(client):
            return await client.read(self._limits.peek_bytes)
        return client.stream(self._limits.upload_bytes)

    async def _settle(self, exchange: Exchange) -> None:
        """The one ending. No part of it can keep another from happening."""
        plan = exchange.plan
        if plan is not None and exchange.is_accepted:
            with Contained("planner.settled"):
                self._planner.settled(plan, exchange.usage, exchange.time())
        with Contained("meter.settle"):
            self._meter.settle(exchange)
        if _log.isEnabledFor(logging.INFO):
            with Contained("log"):
                _log.info("%s", exchange_line(exchange))
        if exchange.reservation is not None:
            with Contained("admission.settle"):
                await self._admission.settle(exchange.reservation, exchange.cost_usd, exchange.time())


def _note_refusal(exchange: Exchange, error: ProxyError) -> None:
    exchange.status = error.status
    exchange.error_code = error.code or ""
    match error:
        case UpstreamRejected():
            exchange.ending = Ending.REJECTED
        case UpstreamError():
            exchange.ending = Ending.BROKEN
        case InternalError():
            exchange.ending = Ending.FAILED
        case _:
            exchange.ending = Ending.REFUSED


def _mode(client: Client, deployment: Deployment, subject: Subject) -> Mode:
    """The highest mode that everyone allows: the deployment, the key, and the request itself."""
    allowed = min(deployment.mode, subject.mode)
    asked = get(client.headers, MODE_HEADER)
    if asked is None:
        return allowed
    try:
        return min(allowed, Mode.parse(asked))
    except ValueError as error:
        raise InvalidRequest(f"{MODE_HEADER}: {error}", param=MODE_HEADER, code="invalid_mode") from error


def _prompt_tokens(plan: Plan, body: bytes) -> int:
    return plan.own.total if plan.own is not None else len(body) // _BYTES_PER_TOKEN


def _peeked_head(body: bytes | AsyncIterator[bytes]) -> Head | None:
    """The head of a JSON body; None for every other. What is no JSON after all is the upstream's to refuse."""
    if not isinstance(body, bytes) or not body:
        return None
    try:
        return head_of(body)
    except InvalidRequest:
        return None


def _has_body(client: Client) -> bool:
    return get(client.headers, "transfer-encoding") is not None or get(client.headers, "content-length") not in (
        None,
        "0",
    )

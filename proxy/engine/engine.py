"""The engine: one method for chat requests, one for every other path, and one ending for both."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from proxy.access.validation import one_line
from proxy.aside import Aside
from proxy.clock import request_time
from proxy.core.access.reach import Reach, is_body_path
from proxy.core.access.unambiguous import CheckedBody, unambiguous
from proxy.core.modes import Mode
from proxy.core.reasons import Reason
from proxy.core.request.body_cache import ParsedBody, cut_anew
from proxy.core.request.demand import Asked, demand_of
from proxy.core.request.routing_fields import RequestFields, head_of, untouched
from proxy.core.request.structured import check_structured
from proxy.core.resilience.retry import RetryPolicy
from proxy.engine.access_log import exchange_line
from proxy.engine.addressed import addressed, check_addressed
from proxy.engine.affinity import session_key
from proxy.engine.breaker import Breakers
from proxy.engine.client import Client, ClientDisconnected, Limits
from proxy.engine.conclusion import Conclusion
from proxy.engine.credentials import without_credentials
from proxy.engine.custody import Custody, FileWatch, pinned, refers
from proxy.engine.exchange import Admission, Exchange, ExchangeOutcome, Meter, PrefixRefresher
from proxy.engine.headers import for_upstream, get
from proxy.engine.listing import Listing
from proxy.engine.passthrough import (
    Raw,
    declared_length,
    has_body,
    is_compressed,
    is_json,
    json_length,
    peeked_head,
    raw_call,
    refuse_compressed,
)
from proxy.engine.relay import AnswerRelay, AttemptResult, own_headers
from proxy.engine.retry import ONE_TRY, Attempts, policy_for
from proxy.engine.retry_body import OurEdit, Outgoing
from proxy.engine.rights import (
    further_of,
    path_for,
    permitted,
    reach_of_chat,
    reach_of_raw,
    refuse_unpriced,
    refused_fields,
)
from proxy.engine.suppress import suppress_and_log
from proxy.engine.target import keys_of, refuse_key_in_path, sent_query, without_keys_of
from proxy.engine.unnamed import levels_of
from proxy.engine.upload import checked_form, is_any_form, is_form, read_form
from proxy.engine.usage_optout import UsageOptOut
from proxy.errors import InternalError, InvalidRequest, ProxyError, UpstreamError, UpstreamRejected
from proxy.ports import Call, Clock, Deployment, Models, Plan, Planner, Principal, Transport, Upstream
from proxy.tasks import Tasks, drain, spawn

MODE_HEADER = "x-stratiform-mode"

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
        retries: RetryPolicy = ONE_TRY,
        breakers: Breakers | None = None,
        refresher: PrefixRefresher | None = None,
        custody: Custody | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._models = models
        self._upstreams = dict(upstreams)
        self._planner = planner
        self._admission = admission
        self._meter = meter
        self._clock = clock
        self._limits = limits or Limits()
        self._trust_time_header = trust_time_header
        self._retries = retries
        self._breakers = breakers or Breakers()
        self._refresher = refresher
        self._custody = custody
        self._conclusion = Conclusion(admission, meter, models, custody)
        self._unasked = UsageOptOut()
        self._aside = aside or Aside()
        self._settling: Tasks = set()

    @property
    def limits(self) -> Limits:
        """What a request may be."""
        return self._limits

    async def chat(self, client: Client, model: str = "") -> None:
        """Serve a chat request: planned, forwarded, streamed back. ``model`` is the one that the address names."""
        await self._run(client, self._chat, model, is_chat=True)

    async def relay(self, client: Client, model: str = "") -> None:
        """Serve any other path: passed through in both directions."""
        await self._run(client, self._relay, model, is_chat=False)

    def principal(self, client: Client) -> Principal:
        """Who the client is, for answers that are the proxy's own. Raises Unauthorized."""
        return self._admission.admit(client.headers, self._clock.now())

    def first_refusal(self, client: Client, error: ProxyError) -> ProxyError:
        """What a request is answered that will be refused anyway: who has no key learns no more than that."""
        try:
            self.principal(client)
        except ProxyError as first:
            return first
        return error

    async def aclose(self) -> None:
        """Finish what is being settled and close the upstreams."""
        if self._refresher is not None:
            await self._refresher.aclose()
        await drain(self._settling)
        for upstream in self._upstreams.values():
            await upstream.aclose()
        self._aside.close()

    async def _run(
        self, client: Client, work: Callable[[Exchange, Client], Awaitable[None]], model: str, *, is_chat: bool
    ) -> None:
        exchange = Exchange(client.method, client.path, self._clock.now(), is_chat=is_chat, keys=keys_of(client))
        exchange.addressed = model
        self._meter.began(exchange)
        try:
            await work(exchange, client)
        except ProxyError as error:
            _note_refusal(exchange, error)
            await self._book(exchange)
            await client.refuse(error, own_headers(exchange))
        except ClientDisconnected:
            exchange.ending = ExchangeOutcome.HUNG_UP
        except asyncio.CancelledError:
            exchange.ending = exchange.ending or ExchangeOutcome.HUNG_UP
            raise
        finally:
            exchange.total_s = exchange.elapsed_s()
            if exchange.ending is None:
                exchange.ending = ExchangeOutcome.FAILED
                exchange.status = exchange.status if client.is_started else InternalError.status
            try:
                await self._book(exchange)
            finally:
                self._settle(exchange)

    async def _chat(self, exchange: Exchange, client: Client) -> None:
        if is_compressed(client):
            # What is not unpacked is not planned, and reads like any other path's request.
            exchange.is_chat, exchange.reason = False, Reason.UNREADABLE
            await self._relay(exchange, client)
            return
        principal = await self._enter(exchange, client)
        body = await client.read(self._limits.body_bytes)
        self._arrived(exchange, client, len(body))
        reading = await self._aside.run_large(len(body), partial(_read, body, exchange.addressed, self._planner.cut))
        body, head = reading.body, reading.head
        if not head.model:
            raise InvalidRequest("'model' must be a non-empty string", param="model", code="missing_model")
        exchange.wants_usage = head.wants_usage
        if self._custody is not None:
            await self._custody.read(exchange, Raw(body, head))
        reach = await self._aside.run_large(len(body), partial(reach_of_chat, exchange.parsed, client, reading))
        policy = policy_for(self._retries, client.headers)
        attempts = await self._attempts(exchange, head, principal, reach, policy, len(body))
        check_structured(reading.members)
        plan = await self._plan(exchange, client, body, head, principal)
        await self._reserve(exchange, attempts, reach, head.asked)
        passage = self._passage(exchange, client)
        outgoing = self._outgoing(plan, body, head, attempts.deployment)
        exchange.overhead_s = exchange.elapsed_s()
        while True:
            deployment = attempts.deployment
            call = Call(
                deployment=deployment,
                method="POST",
                path=client.path,
                query=sent_query(client, deployment, principal),
                headers=[
                    *for_upstream(
                        client.headers, deployment, is_virtual=principal.virtual, forwards_key=principal.forwards_key
                    ),
                    *(_added(plan, client) if not outgoing.is_original else ()),
                ],
                body=outgoing.body,
                stream=head.stream,
                now=exchange.now,
                forwards_key=principal.forwards_key,
            )
            exchange.call = call
            upstream = self._upstreams[deployment.transport]
            match await passage.attempt(upstream, call, attempts, outgoing.suspects):
                case AttemptResult.DONE:
                    return
                case AttemptResult.REFUSED:
                    # The upstream refuses a request that we edited: the client's own follows.
                    outgoing.retreat(passage.refused, names_usage=passage.names_usage)
                    passage.on_accepted = partial(self._blame, outgoing.blamed, plan, deployment)
                    if OurEdit.LAYOUT in passage.refused:
                        self._give_up_layout(exchange, plan, outgoing.blamed)
                case AttemptResult.FAILED if await attempts.pause():
                    # Another deployment has another cache, and perhaps another model.
                    passage.on_accepted = None
                    exchange.deployment = attempts.deployment
                    plan = await self._plan(exchange, client, body, head, principal)
                    outgoing = self._outgoing(plan, body, head, attempts.deployment)

    def _passage(self, exchange: Exchange, client: Client) -> AnswerRelay:
        book, lose = partial(self._book, exchange), partial(self._meter.lose, exchange)
        return AnswerRelay(exchange, client, self._planner, book, lose)

    def _outgoing(self, plan: Plan, body: bytes, head: RequestFields, deployment: Deployment) -> Outgoing:
        return Outgoing(plan, body, head, deployment.model, asks_usage=deployment not in self._unasked)

    def _give_up_layout(self, exchange: Exchange, plan: Plan, blamed: OurEdit) -> None:
        """The request goes out as the client laid it out."""
        exchange.was_retried, exchange.reason = True, Reason.BARRED
        if OurEdit.LAYOUT in blamed:
            with suppress_and_log("planner.refused"):
                self._planner.refused(plan)
        else:
            # What the planner expects of its own layout is not what comes now, nor does it bear on the next request.
            exchange.plan = Plan(plan.original, plan.original, plan.mode, Reason.BARRED)

    def _blame(self, edit: OurEdit, plan: Plan, deployment: Deployment) -> None:
        """An upstream takes a request without this edit of ours, after it refused the request with it. Where it refuses
        both, the request itself is to blame, and nothing is learnt."""
        if OurEdit.USAGE in edit:
            self._unasked.add(deployment)
        if OurEdit.LAYOUT in edit:
            with suppress_and_log("planner.barred"):
                self._planner.barred(plan)

    async def _plan(
        self, exchange: Exchange, client: Client, body: bytes, head: RequestFields, principal: Principal
    ) -> Plan:
        """The planner's plan for the deployment whose turn it is. In passthrough there is nothing to plan, and what the
        messages are is the upstream's to judge: they are not even read."""
        deployment = exchange.deployment
        assert deployment is not None
        exchange.mode = _mode(client, deployment, principal)
        if exchange.mode is Mode.PASSTHROUGH:
            sent = await self._untouched(body, head, deployment)
            plan = Plan(sent, sent, exchange.mode, Reason.PASSTHROUGH_MODE)
        elif head.cut is None:
            plan = Plan(body, body, exchange.mode, Reason.UNREADABLE)
        else:
            with suppress_and_log("planner.prepare"):
                await self._planner.prepare(body, deployment, principal, exchange.mode, exchange.now, head.cut)
            plan = self._planner.plan(body, deployment, principal, exchange.mode, exchange.now, head.cut)
            plan = await self._planner.written(plan)
        if plan.reason is Reason.UNREADABLE and plan.body is body:
            # Not taken apart, but still to go by the deployment's name for the model.
            plan.body = plan.original = await self._untouched(body, head, deployment)
        exchange.plan, exchange.mode, exchange.reason = plan, plan.mode, plan.reason
        if self._refresher is not None:
            with suppress_and_log("keeper.returned"):
                self._refresher.returned(plan.session)
        return plan

    async def _untouched(self, body: bytes, head: RequestFields, deployment: Deployment) -> bytes:
        return await self._aside.run_large(len(body), partial(untouched, body, head, deployment.model))

    async def _relay(self, exchange: Exchange, client: Client) -> None:
        principal = await self._enter(exchange, client)
        raw = await self._raw(exchange, client, principal)
        if self._custody is not None:
            await self._custody.read(exchange, raw)
        self._arrived(exchange, client, raw.size or json_length(client))
        reach = await self._aside.run_large(raw.size, partial(reach_of_raw, exchange.parsed, client, raw))
        policy = policy_for(self._retries, client.headers) if raw.may_repeat(exchange) else None
        attempts = await self._attempts(exchange, raw.head, principal, reach, policy, raw.size)
        # Of compressed bytes nothing is known: under a limit they are refused in any case.
        asked = raw.head.asked if raw.head is not None else {} if raw.is_unread else None
        size = raw.size or declared_length(client)
        await self._reserve(exchange, attempts, reach, asked, size, is_unread=raw.is_unread)
        exchange.overhead_s = exchange.elapsed_s()
        if exchange.is_filtered and self._custody is not None:
            call = raw_call(exchange, client, attempts.deployment, raw, principal, client.path)
            listing = Listing(exchange, client, self._custody, partial(self._book, exchange))
            await listing.serve(self._upstreams[attempts.deployment.transport], call, attempts)
            return
        passage = self._passage(exchange, client)
        try:
            while True:
                upstream = self._upstreams[attempts.deployment.transport]
                path = path_for(client.path, reach.place, exchange.model, attempts.deployment.model)
                work = partial(raw_call, exchange, client, attempts.deployment, raw, principal, path)
                call = await self._aside.run_large(raw.size, work)
                if await passage.attempt(upstream, call, attempts, OurEdit.NONE) is AttemptResult.DONE:
                    return
                await attempts.pause()
                exchange.deployment = attempts.deployment
        except UpstreamError as error:
            # Seen from the upstream's side an upload that we or the client broke off is a broken connection.
            if client.failure is not None:
                raise client.failure from error
            raise

    async def _enter(self, exchange: Exchange, client: Client) -> Principal:
        """Who sends the request, and whether its path may be used. Raises ProxyError."""
        principal = self._admit(exchange, client)
        if self._custody is not None:
            await self._custody.enter(exchange, client)
        return principal

    def _admit(self, exchange: Exchange, client: Client) -> Principal:
        exchange.now = self._now(client)
        exchange.principal = self._admission.admit(client.headers, exchange.now)
        refuse_key_in_path(client, exchange.principal)
        return exchange.principal

    def _arrived(self, exchange: Exchange, client: Client, size: int) -> None:
        exchange.arrived(size)
        exchange.now = self._now(client)

    def _now(self, client: Client) -> float:
        return request_time(client.headers, self._clock, trust_header=self._trust_time_header)

    async def _attempts(
        self,
        exchange: Exchange,
        head: RequestFields | None,
        principal: Principal,
        reach: Reach,
        policy: RetryPolicy | None,
        size: int,
    ) -> Attempts:
        """Who may serve the exchange, in the order in which its session asks them; without a policy only the first of
        them, once. ``size`` is how many bytes its body has. Raises UnknownModel, Forbidden, CircuitOpen."""
        if head is not None:
            exchange.model, exchange.stream = head.model, head.stream
            if head.user and not principal.user:
                exchange.principal = replace(principal, user=one_line(without_keys_of(exchange, head.user)))
        check_addressed(exchange)
        levels = levels_of(self._models, exchange, reach)
        exchange.deployment = levels[0][0]
        further = further_of(self._models, reach, exchange.model, levels[0][0])
        levels = permitted(levels, principal, exchange, reach, further)
        if principal.forwards_key:
            levels = [[without_credentials(deployment) for deployment in level] for level in levels]
        levels = pinned(levels, exchange)
        is_spread = any(len(level) > 1 for level in levels)
        key = await self._aside.run_large(size, partial(session_key, principal, head)) if is_spread else b""
        attempts = Attempts(
            levels,
            key,
            self._breakers,
            policy or ONE_TRY,
            exchange.elapsed_s,
            partial(self._meter.failed, exchange),
            may_move=policy is not None,
        )
        exchange.deployment = attempts.deployment
        return attempts

    async def _reserve(
        self,
        exchange: Exchange,
        attempts: Attempts,
        reach: Reach,
        asked: Asked | None,
        upload_bytes: int | None = None,
        *,
        is_unread: bool = False,
    ) -> None:
        deployment = attempts.deployment
        further = further_of(self._models, reach, exchange.model, deployment)
        others = (*attempts.others, *further.deployments)
        if others:
            deployment = replace(deployment, others=others)
        work = partial(demand_of, exchange.method, exchange.parsed.text, asked, upload_bytes)
        exchange.demand = await self._aside.run_large(sum(map(len, (asked or {}).values())), work)
        exchange.reservation = await self._admission.reserve(exchange, deployment, exchange.demand)
        if is_unread and exchange.reservation.is_limited:
            refuse_compressed()
        refuse_unpriced(exchange, reach, further)

    async def _raw(self, exchange: Exchange, client: Client, principal: Principal) -> Raw:
        """The request, read as far as is needed to know whose model it asks for."""
        body: bytes | None = None
        asks, path = exchange.asks_model, exchange.parsed
        if is_compressed(client) and (asks or is_form(client, path) or principal.is_confined):
            # Where it can go to one place only, and nothing is held against it, it need not be understood.
            if principal.models or principal.is_confined or self._models.sole() is None:
                refuse_compressed()
            return Raw(await client.read(self._limits.body_bytes), is_unread=True)
        if asks:
            # Whatever it calls itself: what is not read is neither priced nor held to the key's models.
            body = await client.read(self._limits.body_bytes)
        elif is_form(client, path):
            return await self._form(client, principal)
        elif is_any_form(client) and principal.is_confined:
            form = checked_form(client, self._limits.upload_bytes, refers, FileWatch(exchange))
            return Raw(form, is_form=True)
        elif principal.is_confined or is_json(client) or (client.method == "POST" and is_body_path(path.text)):
            body = await client.peek(self._limits.peek_bytes)
        elif not has_body(client):
            body = await client.read(self._limits.peek_bytes)
        if body is None:
            return Raw(client.stream(self._limits.upload_bytes))
        return await self._aside.run_large(len(body), partial(_peeked, body, exchange.addressed))

    async def _form(self, client: Client, principal: Principal) -> Raw:
        limit = self._limits.body_bytes
        upload = await read_form(client, limit, self._limits.upload_bytes, refused_fields(principal))
        if upload.model is None and (principal.models or self._models.sole() is None):
            what = f"its first {limit} bytes do not name the model: send the field 'model' in front of the file"
            raise InvalidRequest(f"the form is too long: {what}", param="model", code="missing_model")
        return Raw(upload, upload.head)

    async def _book(self, exchange: Exchange) -> None:
        """Price the exchange and write it into the ledger: before its last bytes go out, so that no client has an
        answer that a crash could make free. Once; it goes on where the client leaves meanwhile."""
        if exchange.is_booked:
            return
        exchange.is_booked = True
        # Before the client can send its next request, which another worker may get.
        self._learn(exchange)
        self._conclusion.price(exchange)
        if exchange.reservation is None:
            return
        if self._admission.is_immediate:
            # What never waits cannot be cut short either: a task would cost more than the work.
            await self._conclusion.conclude(exchange)
        else:
            await asyncio.shield(spawn(self._conclusion.conclude(exchange), self._settling))

    def _learn(self, exchange: Exchange) -> None:
        """Let the planner count an exchange that the upstream took, once."""
        plan = exchange.plan
        if plan is None or exchange.is_learnt or not exchange.is_accepted:
            return
        exchange.is_learnt = True
        with suppress_and_log("planner.settled"):
            self._planner.settled(plan, exchange.usage, exchange.time())

    def _settle(self, exchange: Exchange) -> None:
        """The one ending. No part of it can keep another from happening."""
        self._learn(exchange)
        with suppress_and_log("meter.settle"):
            self._meter.settle(exchange)
        if self._refresher is not None:
            with suppress_and_log("keeper.ended"):
                self._refresher.ended(exchange)
        if _log.isEnabledFor(logging.INFO):
            with suppress_and_log("log"):
                _log.info("%s", exchange_line(exchange))


def _added(plan: Plan, client: Client) -> list[tuple[str, str]]:
    """The plan's own headers: never one that the client sends."""
    return [(name, value) for name, value in plan.headers if get(client.headers, name) is None]


def _note_refusal(exchange: Exchange, error: ProxyError) -> None:
    exchange.status = error.status
    exchange.error_code = error.code or ""
    match error:
        case UpstreamRejected():
            exchange.ending = ExchangeOutcome.REJECTED
        case UpstreamError():
            exchange.ending = ExchangeOutcome.BROKEN
        case InternalError():
            exchange.ending = ExchangeOutcome.FAILED
        case _:
            exchange.ending = ExchangeOutcome.REFUSED


def _mode(client: Client, deployment: Deployment, principal: Principal) -> Mode:
    """The highest mode that everyone allows: the deployment, the key, and the request itself. A request does not get
    rid of the operator's reminder that way: only a mode that the operator sets leaves it out."""
    allowed = min(deployment.mode, principal.mode)
    asked = get(client.headers, MODE_HEADER)
    if asked is None:
        return allowed
    try:
        mode = min(allowed, Mode.parse(asked))
    except ValueError as error:
        raise InvalidRequest(f"{MODE_HEADER}: {error}", param=MODE_HEADER, code="invalid_mode") from error
    return Mode.OBSERVE if deployment.reminder and mode < Mode.OBSERVE <= allowed else mode


def _read(body: bytes, model: str, cut_by: Callable[[bytes], ParsedBody]) -> CheckedBody:
    return addressed(unambiguous(body, head_of(body, cut_by)), model, cut_by)


def _peeked(body: bytes, model: str) -> Raw:
    head = peeked_head(body)
    if head is None:
        return Raw(body)
    reading = addressed(unambiguous(body, head), model, cut_anew)
    return Raw(reading.body, reading.head, reading.members)

"""Chat requests: planned, forwarded, and sent again as the client wrote them where the upstream refuses the plan."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import orjson

from proxy.aside import Aside
from proxy.core.access.unambiguous import CheckedBody, unambiguous
from proxy.core.modes import Mode
from proxy.core.reasons import Reason
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.routing_fields import RequestFields, head_of, untouched
from proxy.core.structured.chat import SECTION, AssembledChat, section_of
from proxy.engine.addressed import addressed
from proxy.engine.client import Client
from proxy.engine.conclusion import Conclusion
from proxy.engine.exchange import Exchange, ExchangeOutcome, Planned
from proxy.engine.further_calls import PanelService
from proxy.engine.headers import for_upstream, get
from proxy.engine.intake import Intake
from proxy.engine.panel_answers import PanelCalls
from proxy.engine.passthrough import Raw
from proxy.engine.ports import Follower, Ports
from proxy.engine.relay import AnswerRelay, AttemptResult, own_headers
from proxy.engine.retry import Attempts
from proxy.engine.retry_body import OurEdit, Outgoing
from proxy.engine.suppress import suppress_and_log
from proxy.engine.target import sent_query
from proxy.engine.usage_optout import UsageOptOut
from proxy.errors import InvalidRequest, PayloadTooLarge
from proxy.ports import Call, Deployment, Headers, Plan, PlanRequest, Principal

MODE_HEADER = "x-stratiform-mode"


class ChatRequests:
    """Serves chat requests."""

    def __init__(
        self, ports: Ports, intake: Intake, conclusion: Conclusion, aside: Aside, follower: Follower | None
    ) -> None:
        self._ports = ports
        self._intake = intake
        self._conclusion = conclusion
        self._aside = aside
        self._follower = follower
        self._unasked = UsageOptOut()

    async def serve(self, exchange: Exchange, client: Client) -> None:
        """Serve one request. Raises ProxyError."""
        chat, raw = await self._received(exchange, client)
        route = await self._intake.route(exchange, client, raw, may_repeat=True)
        plan = await self._plan(exchange, chat)
        await self._intake.reserve(exchange, route, raw)
        exchange.overhead_s = exchange.elapsed_s()
        await self._forward(exchange, chat, plan, route.attempts)

    async def breakdown(self, exchange: Exchange, client: Client) -> None:
        """Answer what a request with structured context would consist of. Nothing is sent or counted. Raises
        ProxyError."""
        chat, raw = await self._received(exchange, client, keeps_state=False)
        await self._intake.route(exchange, client, raw, may_repeat=True)
        if chat.assembled is None:
            message = f"only structured context has a breakdown: the request has no member '{SECTION}'"
            raise InvalidRequest(message, param=SECTION, code="missing_field")
        deployment = exchange.deployment
        assert deployment is not None
        mode = _mode(client, deployment, chat.principal)
        found = await self._ports.planner.breakdown(chat.assembled, deployment, mode)
        exchange.ending, exchange.answer.status = ExchangeOutcome.COMPLETED, 200
        await client.start(200, [("content-type", "application/json"), *own_headers(exchange)])
        await client.send(orjson.dumps(found))
        await client.end()

    async def _received(self, exchange: Exchange, client: Client, *, keeps_state: bool = True) -> tuple["_Chat", Raw]:
        """The request, complete, with its structured context as messages. Raises ProxyError."""
        principal = await self._intake.enter(exchange, client)
        body = await client.read(self._intake.rules.limits.body_bytes)
        self._intake.arrived(exchange, client, len(body))
        read = partial(_read, body, exchange.arrival.addressed, self._ports.planner.parse)
        found = await self._aside.run_large(len(body), read)
        assembled = None
        if _has_section(found):
            assembled = await self._assembled(exchange, found, keeps_state=keeps_state)
            principal, found = exchange.principal or principal, await self._reread(assembled)
        raw = Raw(found.body, found.head, found.members)
        await self._intake.check_objects(exchange, raw)
        return _Chat(client, principal, found.body, found.head, assembled), raw

    async def _assembled(self, exchange: Exchange, found: CheckedBody, *, keeps_state: bool) -> AssembledChat:
        """The request with its structured context as messages: that is what rights and budgets are held against. Raises
        InvalidRequest, PayloadTooLarge, MissingContent."""
        sent, principal = found.head.parsed, exchange.principal
        assert principal is not None
        if sent is None:
            message = f"a request with '{SECTION}' must be JSON that every reader understands alike"
            raise InvalidRequest(message, param=SECTION, code="invalid_json")
        assembled = await self._ports.planner.assemble(sent, principal, exchange.arrival.now, keeps_state=keeps_state)
        size, most = len(assembled.body), self._intake.rules.limits.body_bytes
        if size > most:
            message = f"the request has {size} bytes with its context; at most {most} are sent"
            raise PayloadTooLarge(message, param=SECTION)
        exchange.stands_for(size)
        if assembled.context.session:
            exchange.principal = replace(principal, session_hint=assembled.context.session)
        return assembled

    async def _reread(self, assembled: AssembledChat) -> CheckedBody:
        body, parse = assembled.body, self._ports.planner.parse
        return await self._aside.run_large(len(body), lambda: unambiguous(body, head_of(body, parse)))

    async def _forward(self, exchange: Exchange, chat: "_Chat", plan: Plan, attempts: Attempts) -> None:
        """Send the plan, or what takes its place, until an answer is passed on. Raises ProxyError."""
        relay = AnswerRelay(exchange, chat.client, self._ports.planner, self._conclusion, self._panels(exchange, chat))
        outgoing = self._outgoing(chat, plan, attempts.deployment)
        while True:
            deployment = attempts.deployment
            call = chat.call(exchange, deployment, outgoing, () if outgoing.is_original else plan.headers)
            upstream = self._ports.upstreams[deployment.transport]
            match await relay.attempt(upstream, call, attempts, outgoing.suspects):
                case AttemptResult.DONE:
                    return
                case AttemptResult.REFUSED:
                    # The upstream refuses a request that the proxy edited: the client's own request follows.
                    outgoing.retreat(relay.refused, names_usage=relay.names_usage)
                    relay.on_accepted = partial(self._blame, outgoing.blamed, plan, deployment)
                    if OurEdit.LAYOUT in relay.refused:
                        self._give_up_layout(exchange, plan, outgoing.blamed)
                case AttemptResult.FAILED if await attempts.pause():
                    # Another deployment has another cache, and perhaps another model.
                    relay.on_accepted = None
                    exchange.deployment = attempts.deployment
                    plan = await self._plan(exchange, chat)
                    outgoing = self._outgoing(chat, plan, attempts.deployment)

    def _panels(self, exchange: Exchange, chat: "_Chat") -> PanelCalls | None:
        """What answers calls of panels; None where the request has none."""
        answers = chat.assembled.answers if chat.assembled is not None else None
        if answers is None:
            return None
        return PanelCalls(exchange, chat.client, PanelService(answers, self._ports.meter, self._aside))

    async def _plan(self, exchange: Exchange, chat: "_Chat") -> Plan:
        """The planner's plan for the deployment whose turn it is. In passthrough there is nothing to plan, and the
        upstream judges the messages: they are not even read."""
        deployment = exchange.deployment
        assert deployment is not None
        mode = _mode(chat.client, deployment, chat.principal)
        before = exchange.planned
        exchange.planned = Planned(mode, before.reason, before.plan, before.was_retried)
        body, parsed = chat.body, chat.head.parsed
        if mode is Mode.PASSTHROUGH and not chat.has_panels:
            sent = await self._untouched(chat, deployment)
            plan = Plan(sent, sent, mode, Reason.PASSTHROUGH_MODE)
        elif parsed is None:
            plan = Plan(body, body, mode, Reason.UNREADABLE)
        else:
            plan = await self._ports.planner.plan(
                PlanRequest(parsed, deployment, chat.principal, mode, exchange.arrival.now, chat.assembled)
            )
        if plan.reason is Reason.UNREADABLE and plan.body is body:
            # The body cannot be taken apart, but the model in it still goes by the deployment's name.
            sent = await self._untouched(chat, deployment)
            plan = replace(plan, body=sent, original=sent)
        exchange.planned = Planned(plan.mode, plan.reason, plan, before.was_retried)
        if self._follower is not None:
            with suppress_and_log("follower.returned"):
                self._follower.returned(plan.session)
        return plan

    async def _untouched(self, chat: "_Chat", deployment: Deployment) -> bytes:
        return await self._aside.run_large(len(chat.body), partial(untouched, chat.body, chat.head, deployment.model))

    def _outgoing(self, chat: "_Chat", plan: Plan, deployment: Deployment) -> Outgoing:
        return Outgoing(plan, chat.body, chat.head, deployment.model, asks_usage=deployment not in self._unasked)

    def _give_up_layout(self, exchange: Exchange, plan: Plan, blamed: OurEdit) -> None:
        """The request goes out as the client laid it out."""
        if OurEdit.LAYOUT in blamed:
            with suppress_and_log("planner.refused"):
                self._ports.planner.refused(plan)
        else:
            # The planner's expectations of its own layout do not hold for what is sent now, and say nothing about the
            # session's next request.
            plan = Plan(plan.original, plan.original, plan.mode, Reason.BARRED)
        exchange.planned = replace(exchange.planned, reason=Reason.BARRED, plan=plan, was_retried=True)

    def _blame(self, edit: OurEdit, plan: Plan, deployment: Deployment) -> None:
        """An upstream takes a request without this edit of the proxy, after it refused the request with it. Where it
        refuses both, the request itself is to blame, and nothing is learnt."""
        if OurEdit.USAGE in edit:
            self._unasked.add(deployment)
        if OurEdit.LAYOUT in edit:
            with suppress_and_log("planner.barred"):
                self._ports.planner.barred(plan)


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat request as it was read, and ``assembled`` from structured context where it has some."""

    client: Client
    principal: Principal
    body: bytes
    head: RequestFields
    assembled: AssembledChat | None = None

    @property
    def has_panels(self) -> bool:
        """Whether live panels are shown: some upstreams take them only with a declared tool."""
        return self.assembled is not None and self.assembled.dialogue.has_panels

    def call(self, exchange: Exchange, deployment: Deployment, outgoing: Outgoing, added: Headers) -> Call:
        """The call to a deployment. Of the ``added`` headers those are left out that the client sends."""
        client, principal = self.client, self.principal
        headers = for_upstream(
            client.headers, deployment, is_virtual=principal.virtual, forwards_key=principal.forwards_key
        )
        return Call(
            deployment=deployment,
            method="POST",
            path=client.path,
            query=sent_query(client, deployment, principal),
            headers=[*headers, *((name, value) for name, value in added if get(client.headers, name) is None)],
            body=outgoing.body,
            stream=self.head.stream,
            now=exchange.arrival.now,
            forwards_key=principal.forwards_key,
        )


def _mode(client: Client, deployment: Deployment, principal: Principal) -> Mode:
    """The highest mode that everyone allows: the deployment, the key, and the request itself. A request cannot get rid
    of the operator's reminder that way: only a mode that the operator sets leaves the reminder out."""
    allowed = min(deployment.mode, principal.mode)
    asked = get(client.headers, MODE_HEADER)
    if asked is None:
        return allowed
    try:
        mode = min(allowed, Mode.parse(asked))
    except ValueError as error:
        raise InvalidRequest(f"{MODE_HEADER}: {error}", param=MODE_HEADER, code="invalid_mode") from error
    return Mode.OBSERVE if deployment.reminder and mode < Mode.OBSERVE <= allowed else mode


def _has_section(found: CheckedBody) -> bool:
    """Whether the request may have structured context. A body whose members are not known, and that has the section's
    name anywhere, counts as one that has: no section is sent on unseen."""
    if found.members is None:
        return SECTION.encode() in found.body.lower()
    return section_of(found.members) is not None


def _read(body: bytes, model: str, parse: Callable[[bytes], ParsedBody]) -> CheckedBody:
    """The request, with the model in it that its address names. Raises InvalidRequest."""
    found = addressed(unambiguous(body, head_of(body, parse)), model, parse)
    if not found.head.model:
        raise InvalidRequest("'model' must be a non-empty string", param="model", code="missing_model")
    return found

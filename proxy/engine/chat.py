"""Chat requests. They are planned and forwarded. If the upstream refuses the plan, the client's own request is sent
instead."""

from collections.abc import Callable, Mapping
from functools import partial

import orjson

from proxy.context import SECTION, WINDOW, Section, section_of, split
from proxy.context.session import AssembledChat
from proxy.engine.attempts import Attempts, OurEdit, Outgoing, QuestionOptOut
from proxy.engine.bodies import Raw, addressed, call_to
from proxy.engine.conclusion import Conclusion, own_headers
from proxy.engine.exchange import Call, Exchange, ExchangeOutcome, Planned, Principal
from proxy.engine.headers import PROFILE_HEADER, get
from proxy.engine.intake import Intake
from proxy.engine.ports import Client, ComposedRequest, ComposeRequest, PlanRequest, Ports
from proxy.engine.relay import Accepted, AnswerRelay
from proxy.kit.errors import InvalidRequest, PayloadTooLarge
from proxy.kit.modes import Edit, Mode, Reason
from proxy.kit.tasks import suppress_and_log
from proxy.kit.value import dataclass, replace
from proxy.models import Deployment
from proxy.planner.plan import Plan
from proxy.protocol.access import unambiguous
from proxy.protocol.request import ParsedBody, RequestFields, head_of, inset_body, untouched
from proxy.protocol.request.message import may_be_signed
from proxy.protocol.wire.json_body import Unreadable

MODE_HEADER = "x-stratiform-mode"
PERSONA_HEADER = "x-stratiform-persona"
BREAK_HEADER = "x-stratiform-break"
_OFF = frozenset({"0", "off", "false", "no"})
_REDUCED = frozenset({Edit.WINDOW_TRIMMED, Edit.WINDOW_SHORTENED})
# These edits do the same in the next request, or concern only calls.
_STEADY = frozenset({Edit.PROMPTS_COMPOSED, Edit.HISTORY_REPAIRED, Edit.CALLS_MERGED})


class ChatRequests:
    """Serves chat requests."""

    def __init__(
        self, ports: Ports, intake: Intake, conclusion: Conclusion, on_return: Callable[[str], None] | None
    ) -> None:
        self._ports = ports
        self._intake = intake
        self._conclusion = conclusion
        self._on_return = on_return
        self._unasked = QuestionOptOut()

    async def serve(self, exchange: Exchange, client: Client) -> None:
        """Serve one request. Raises ProxyError."""
        chat, raw = await self._received(exchange, client)
        attempts, reach = await self._intake.route(exchange, client, raw, may_repeat=True)
        outgoing = await self._outgoing(exchange, chat)
        if not outgoing.plan.edits.keys().isdisjoint(_REDUCED) and attempts.others:
            # Another deployment, whose window may be wider, may be called. So budgets are also checked against the
            # parts for which this deployment's window has no room.
            inset = chat.composed.inset
            further = len(inset.before.encode("utf-8", "replace")) + len(inset.after.encode("utf-8", "replace"))
            exchange.sent = (*exchange.sent, (chat.head.parsed or chat.head.body, further + chat.window_bytes))
        await self._intake.reserve(exchange, client, attempts, reach, raw)
        if chat.assembled is not None:
            chat.assembled.kept()
        exchange.overhead_s = exchange.elapsed_s()
        await self._forward(exchange, chat, outgoing, attempts)

    async def breakdown(self, exchange: Exchange, client: Client) -> None:
        """Answer with the parts of which a request with structured context would consist. Nothing is sent or counted.
        Raises ProxyError."""
        chat, raw = await self._received(exchange, client, keeps_state=False)
        await self._intake.route(exchange, client, raw, may_repeat=True)
        if chat.assembled is None:
            raise InvalidRequest(
                f"only structured context has a breakdown: the request has no member '{SECTION}'",
                param=SECTION,
                code="missing_field",
            )
        deployment = exchange.deployment
        assert deployment is not None
        mode = _mode(client, deployment, exchange.principal)
        found = await self._ports.planner.breakdown(chat.assembled, deployment, mode)
        exchange.ending, exchange.answer.status = ExchangeOutcome.COMPLETED, 200
        await client.start(200, [("content-type", "application/json"), *own_headers(exchange)])
        await client.end(orjson.dumps(found))

    async def _received(self, exchange: Exchange, client: Client, *, keeps_state: bool = True) -> tuple["_Chat", Raw]:
        """The complete request, with the operator's prompts, and with its structured context as messages. Raises
        ProxyError."""
        exchange.planned = Planned(reason=Reason.NOT_PLANNED)
        exchange.asks_break = (get(client.headers, BREAK_HEADER) or "0").lower() not in _OFF
        await self._intake.enter(exchange, client)
        body = await client.read(self._intake.rules.limits.body_bytes)
        self._intake.arrived(exchange, client, len(body))
        read = partial(_read, body, exchange.arrival.addressed, self._ports.planner.parse)
        found, section = await self._ports.aside.run_large(len(body), read)
        exchange.returns_usage = section.returns_usage
        exchange.asks_break = exchange.asks_break or section.returns_break
        composed = await self._composed(exchange, client, found, section, keeps_state=keeps_state)
        changed, edited = composed.body, found.parsed
        if edited is not None and section.is_split:
            if changed is not None:
                edited = await self._ports.aside.run_large(len(changed), self._ports.planner.parse, changed)
            changed = await self._ports.aside.run_large(len(body), edited.edited, {SECTION: section.rest})
        own = found.parsed if composed.body is not None else None
        if changed is not None:
            found = await self._reread(exchange, changed, len(section.window or b""))
        assembled = None
        if section.rest is not None:
            assembled = await self._assembled(exchange, found, own)
            found = await self._reread(exchange, assembled.body)
        chat = _Chat(client, found, assembled, composed, len(section.window or b""))
        return chat, Raw(found.body, found)

    async def _composed(
        self, exchange: Exchange, client: Client, found: RequestFields, section: Section, *, keeps_state: bool
    ) -> ComposedRequest:
        """The request with the operator's prompts. Raises ProxyError."""
        headers, composer = client.headers, self._ports.composer
        wishes = (
            section.prompts,
            section.window,
            get(headers, PERSONA_HEADER) or "",
            get(headers, PROFILE_HEADER) or "",
        )
        if composer is None or not (composer.has_rules or any(wishes)):
            return ComposedRequest()
        request = ComposeRequest(found.parsed, exchange.principal, found.model, *wishes, keeps_state)
        composed = await composer.compose(request)
        exchange.prompts = composed.version
        exchange.window = composed.profile
        return composed

    async def _assembled(self, exchange: Exchange, found: RequestFields, own: ParsedBody | None) -> AssembledChat:
        """The request with its structured context as messages. Rights and budgets are checked against this request.
        Raises InvalidRequest, PayloadTooLarge, MissingContent."""
        sent, principal = found.parsed, exchange.principal
        if sent is None:
            raise InvalidRequest(
                f"a request with '{SECTION}' must be JSON that every reader understands alike",
                param=SECTION,
                code="invalid_json",
            )
        assembled = await self._ports.planner.assemble(sent, principal, exchange.arrival.now, own)
        if assembled.context.session:
            exchange.principal = replace(principal, session_hint=assembled.context.session)
        return assembled

    async def _reread(self, exchange: Exchange, body: bytes, further: int = 0) -> RequestFields:
        """The request with more in it than the client sent. ``further`` is the number of bytes that are put into it
        later. Raises PayloadTooLarge."""
        size, most, parse = len(body) + further, self._intake.rules.limits.body_bytes, self._ports.planner.parse
        if size > most:
            raise PayloadTooLarge(
                f"the request has {size} bytes with its context; at most {most} are sent", param=SECTION
            )
        exchange.stands_for(size)
        return await self._ports.aside.run_large(len(body), lambda: unambiguous(head_of(body, parse)))

    async def _forward(self, exchange: Exchange, chat: "_Chat", outgoing: Outgoing, attempts: Attempts) -> None:
        """Send the plan, or the request that replaces it, until an answer is passed on. Raises ProxyError."""
        client, panels = chat.client, chat.assembled.answers if chat.assembled is not None else None

        async def call_of(sent: Outgoing) -> tuple[Call, OurEdit]:
            # Headers of the plan are left out if the client sends them itself.
            planned = () if sent.is_original else sent.plan.headers
            added = [(name, value) for name, value in planned if get(client.headers, name) is None]
            return call_to(attempts.deployment, exchange, client, client.path, sent.body, added), sent.suspects

        def without(sent: Outgoing, refused: OurEdit, names_usage: bool) -> Accepted:
            """The upstream refuses a request that the proxy edited: the client's own request follows."""
            sent.retreat(refused, names_usage=names_usage)
            if OurEdit.LAYOUT in refused:
                plan = self._without_layout(sent.plan, sent.blamed)
                exchange.planned = replace(exchange.planned, reason=Reason.BARRED, plan=plan, was_retried=True)
            return partial(self._blame, sent.blamed, sent.plan, attempts.deployment)

        relay = AnswerRelay(exchange, client, self._ports, self._conclusion, panels)
        await relay.send(outgoing, attempts, call_of, without, partial(self._outgoing, exchange, chat))

    async def _outgoing(self, exchange: Exchange, chat: "_Chat", scale: float = 1.0) -> Outgoing:
        """The request for the deployment that is called next, fitted to its context window and planned. ``scale`` makes
        the window smaller. Raises InvalidRequest."""
        deployment = exchange.deployment
        assert deployment is not None
        composed, exchange.fitted = chat.composed, None
        edits = {Edit.PROMPTS_COMPOSED: 1} if composed.body is not None or composed.inset else {}
        if composed.profile is not None:
            chat, left_out = await self._fitted(exchange, chat, deployment, scale)
            edits = {**edits, **left_out}
        plan = await self._plan(exchange, chat, deployment, edits)
        if self._on_return is not None:
            with suppress_and_log("on_return"):
                self._on_return(plan.session)
        if edits:
            # Budgets are checked against what is sent, and at least against what arrived, because a wider window takes
            # more of it.
            exchange.stands_for(max(exchange.arrival.size, len(plan.original)))
        return Outgoing(
            plan, chat.head, deployment.model, asks_usage=chat.head.stream and deployment not in self._unasked
        )

    async def _fitted(
        self, exchange: Exchange, chat: "_Chat", deployment: Deployment, scale: float
    ) -> tuple["_Chat", Mapping[Edit, int]]:
        """The request as far as it fits the context window of the deployment's model, and what was left out for that.
        Described context is sent whole, because it is shortened by its own rules. Raises InvalidRequest."""
        composed, windows, parsed = chat.composed, self._ports.windows, chat.head.parsed
        if windows is None or parsed is None:
            return chat, {}
        if chat.assembled is not None:
            if composed.parts is not None and composed.parts.has_any:
                raise InvalidRequest(
                    f"'{SECTION}' describes structured context, or the parts of a context window: not both",
                    param=f"{SECTION}.{WINDOW}",
                    code="conflicting_fields",
                )
            return chat, {}
        scope = exchange.principal.scope
        fitted = exchange.fitted = await windows.fitted(parsed, composed, deployment, scale=scale, scope=scope)
        if fitted.body is not parsed.body:
            head = await self._ports.aside.run_large(len(fitted.body), head_of, fitted.body, self._ports.planner.parse)
            chat = replace(chat, head=head)
        return chat, fitted.edits

    async def _plan(self, exchange: Exchange, chat: "_Chat", deployment: Deployment, edits: Mapping[Edit, int]) -> Plan:
        """The planner's plan. In passthrough mode there is nothing to plan, and the upstream judges the messages, so
        they are not even read."""
        mode = _mode(chat.client, deployment, exchange.principal)
        exchange.planned.mode = mode
        body, parsed = chat.head.body, chat.head.parsed
        assembled = None
        # Some upstreams accept live panels only with a declared tool.
        has_panels = chat.assembled is not None and chat.assembled.dialogue.has_panels
        is_free = mode is Mode.PASSTHROUGH and not has_panels and not chat.composed.inset
        if is_free and not await self._may_be_signed(body):
            sent = await self._untouched(chat, deployment)
            plan = Plan(sent, sent, mode, Reason.PASSTHROUGH_MODE)
        elif parsed is None:
            plan = Plan(body, body, mode, Reason.UNREADABLE)
        else:
            assembled = chat.assembled
            plan = await self._ports.planner.plan(
                PlanRequest(
                    parsed,
                    deployment,
                    exchange.principal,
                    mode,
                    exchange.arrival.now,
                    assembled,
                    inset=chat.composed.inset,
                    # A request that was fitted to a window has no room for anything that was not counted.
                    repeats_texts=chat.composed.profile is None,
                )
            )
        if plan.reason is Reason.UNREADABLE and plan.body is body:
            # The body cannot be parsed, but the model in it is still replaced by the deployment's name for it.
            sent = _with_texts(await self._untouched(chat, deployment), chat.composed)
            plan = replace(plan, body=sent, original=sent)
        edits = {**edits, **plan.edits}
        is_plain = not edits and chat.assembled is None and chat.composed.profile is None
        if not is_plain and _may_edit_front(chat, plan, edits) and await self._may_be_signed(body):
            edits[Edit.SIGNED_FRONT] = 1
        plan = replace(plan, edits=edits) if edits else plan
        exchange.planned = Planned(plan.mode, plan.reason, plan, exchange.planned.was_retried, assembled=assembled)
        # Budgets are checked against the request as it was read, and the bytes that the plan adds to it.
        read = parsed if assembled is None and not chat.composed.inset else None
        size, most = len(plan.original if read is None else read.body), max(len(plan.body), len(plan.original))
        exchange.sent = ((plan.original if read is None else read, max(0, most - size)),)
        return plan

    async def _may_be_signed(self, body: bytes) -> bool:
        return await self._ports.aside.run_large(len(body), may_be_signed, body)

    async def _untouched(self, chat: "_Chat", deployment: Deployment) -> bytes:
        return await self._ports.aside.run_large(len(chat.head.body), untouched, chat.head, deployment.model)

    def _without_layout(self, plan: Plan, blamed: OurEdit) -> Plan:
        """The plan that stands for a request which is sent in the client's own layout after all."""
        if OurEdit.LAYOUT not in blamed:
            # The planner's expectations of its own layout do not hold for what is sent now, and say nothing about the
            # session's next request.
            return Plan(plan.original, plan.original, plan.mode, Reason.BARRED, edits=plan.edits, texts=plan.texts)
        with suppress_and_log("planner.refused"):
            self._ports.planner.refused(plan)
        return plan

    def _blame(self, edit: OurEdit, plan: Plan, deployment: Deployment) -> None:
        """Record that an upstream accepts a request without this edit of the proxy, after it refused the request with
        the edit. If it refuses both, the request itself is to blame, and nothing is learnt."""
        if OurEdit.USAGE in edit:
            self._unasked.add(deployment)
        if OurEdit.LAYOUT in edit:
            with suppress_and_log("planner.barred"):
                self._ports.planner.barred(plan)


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat request as it was read, ``assembled`` from structured context if it has some. ``composed`` says which of
    the operator's texts are added to it."""

    client: Client
    head: RequestFields
    assembled: AssembledChat | None = None
    composed: ComposedRequest = ComposedRequest()
    window_bytes: int = 0
    """How many bytes the request says about its context window, including the texts of its parts."""


def _may_edit_front(chat: _Chat, plan: Plan, edits: Mapping[Edit, int]) -> bool:
    """Whether messages that the client keeps may be sent in another form than in the request before. This is so if
    described context comes before them, or if a window leaves no room for texts that were around earlier prompts."""
    composed, assembled = chat.composed, chat.assembled
    is_described = assembled is not None and assembled.context.has_any
    has_parts = bool(composed.inset) or (composed.parts is not None and composed.parts.has_any)
    is_narrow = composed.profile is not None and has_parts
    return plan.reason is Reason.ASSEMBLED_TIERS or is_described or is_narrow or not edits.keys() <= _STEADY


def _mode(client: Client, deployment: Deployment, principal: Principal) -> Mode:
    """The highest mode that the deployment, the key and the request itself all allow. A request cannot remove the
    operator's reminder in this way: only a mode that the operator sets leaves the reminder out."""
    allowed = min(deployment.mode, principal.mode)
    asked = get(client.headers, MODE_HEADER)
    if asked is None:
        return allowed
    try:
        mode = min(allowed, Mode.parse(asked))
    except ValueError as error:
        raise InvalidRequest(f"{MODE_HEADER}: {error}", param=MODE_HEADER, code="invalid_mode") from error
    return Mode.OBSERVE if deployment.reminder and mode < Mode.OBSERVE <= allowed else mode


def _with_texts(body: bytes, composed: ComposedRequest) -> bytes:
    """A body without a plan, with the operator's texts around its newest user message. Raises InvalidRequest if there
    is no place for them and they must not be missing."""
    try:
        return inset_body(body, composed.inset)
    except Unreadable as error:
        if not composed.is_required:
            return body
        raise InvalidRequest(
            "the operator's prompts belong into this request, and its messages cannot be taken apart",
            param="messages",
            code="prompt_invalid",
        ) from error


def _section(found: RequestFields) -> Section:
    """The content of the request's section. If the members of a body are not known, and it contains the section's name
    anywhere, it counts as a body with a section, so that no section is sent on unread."""
    if found.members is None:
        return Section(rest=b"null") if SECTION.encode() in found.body.lower() else Section()
    if (raw := section_of(found.members)) is None:
        return Section()
    try:
        return split(raw)
    except Unreadable:
        return Section(rest=bytes(raw))  # the reader of structured context refuses it


def _read(body: bytes, model: str, parse: Callable[[bytes], ParsedBody]) -> tuple[RequestFields, Section]:
    """The request, with the model that its address names, and the content of its section. Raises InvalidRequest."""
    found = unambiguous(head_of(body, parse))
    if model:
        found = addressed(found, model, parse)
    if not found.model:
        raise InvalidRequest("'model' must be a non-empty string", param="model", code="missing_model")
    has_section = found.members is None or SECTION in found.members
    return found, _section(found) if has_section else Section()

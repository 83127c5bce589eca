"""The planner: from a client's bytes to the bytes that are sent, with a reason. Implements ``proxy.ports.Planner``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Raw

from proxy.core.digest import digest
from proxy.core.forecast.forecast import Forecast, forecast
from proxy.core.forecast.pauses import outlook
from proxy.core.layout.breakpoints import honoured
from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.layout.orders import material
from proxy.core.layout.prefix_seed import seed_of, slots_of
from proxy.core.layout.relocation import moved_material
from proxy.core.layout.split import split_layout
from proxy.core.layout.tiers import with_target
from proxy.core.lru import Bounded
from proxy.core.modes import Mode
from proxy.core.planner.analysis import (
    Draft,
    advance_tiers,
    is_sibling,
    named,
    passthrough_reason,
    put_elsewhere,
    remember,
    segment_tokens,
    tier_tokens,
)
from proxy.core.planner.body import as_read, as_written, has_foreign_marks, own_count, planned_body
from proxy.core.planner.candidates import CandidateInputs, Choice, Pricing, choose
from proxy.core.planner.keep_alive import RefreshPlan, Sent, refresh_plan
from proxy.core.planner.options import PlannerOptions
from proxy.core.planner.plan import CONTROL, TREATED, Plan
from proxy.core.providers import ASSUMED, CacheProfile, Family
from proxy.core.providers.affinity_key import (
    RoutingKey,
    may_add,
    may_tell_explicit,
    routing_key,
    written,
)
from proxy.core.reasons import Reason
from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.ahead import Ahead
from proxy.core.request.body_cache import BodyCache, ParsedBody
from proxy.core.request.element import Element
from proxy.core.request.message import MessageReader
from proxy.core.request.route import Route
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.request.tool_order import ToolOrders
from proxy.core.request.tools import ToolReader
from proxy.core.request.transcript import Transcript
from proxy.core.request.view import RecognisedRequest, recognise_request
from proxy.core.response.usage import Usage
from proxy.core.sessions.observation import commit_preamble, commit_reading, read_request
from proxy.core.sessions.session import Session, SessionTable
from proxy.core.sessions.sharing import OWN, SENT, SharedState, StateLookup, costs_name
from proxy.core.shadow.deviations import Deviation, ProviderObservations
from proxy.core.shadow.shadow_caches import ShadowCaches, cost_of, unpredicted_cost
from proxy.core.stability.file_words import FileWords
from proxy.core.wire.edits import original_body, transport_edits, with_reminder
from proxy.core.wire.json_body import ChatRequest, Unreadable, parse_chat

_MAX_CACHES = 1024
# Sessions whose last positions are kept, so that a request that appends is not numbered from its beginning.
_MAX_NATURAL = 256
_MOST_COUNTS = 200_000
_PROMOTION: Final[Mapping[str, Literal["ripple", "count"]]] = MappingProxyType(
    {"classic": "ripple", "economic": "count"}
)
# P(the session goes on in time) below which a system text is rather split than made still.
_SPLIT_BODY = 0.5


@dataclass(slots=True)
class TierPlanner:
    """Plans requests. State is in memory: sessions, the shadow caches, token counts; all bounded."""

    encode: Encode
    recognisers: Sequence[Recogniser]
    policy: str = "economic"
    options: PlannerOptions = field(default_factory=PlannerOptions)
    memory_bytes: int = 512 * 2**20
    """What all of its state may take, but for the token counts: an eighth more, 50 MB at most."""
    prefix: str = "s"
    """What ids of sessions begin with; processes that share what they know have one each."""
    _counter: TokenCounter = field(init=False)
    _reader: MessageReader = field(init=False)
    _body_cache: BodyCache = field(init=False)
    _tools: ToolReader = field(init=False)
    _orders: ToolOrders = field(init=False)
    _words: FileWords = field(init=False)
    _sessions: SessionTable = field(init=False)
    _shared_state: SharedState = field(init=False)
    _caches: Bounded[bytes, ShadowCaches] = field(init=False)
    _natural: Bounded[str, Layout] = field(init=False)

    def __post_init__(self) -> None:
        self._counter = TokenCounter(self.encode, capacity=min(_MOST_COUNTS, self.memory_bytes // 2_000))
        room = self.memory_bytes
        self._reader = MessageReader(self._counter, self.recognisers, capacity_bytes=room // 4)
        self._body_cache = BodyCache(capacity_bytes=room // 4)
        self._sessions = SessionTable(capacity_bytes=room // 4, prefix=self.prefix)
        self._shared_state = SharedState(self._sessions)
        self._caches = Bounded(room // 8, lambda worlds: worlds.bytes)
        self._natural = Bounded(room // 16, _layout_bytes)
        self._tools = ToolReader(self._counter, capacity_bytes=room // 16)
        self._orders = ToolOrders(capacity_bytes=room // 32)
        self._words = FileWords(capacity_bytes=room // 64)

    def plan(
        self,
        body: bytes,
        route: Route,
        mode: Mode,
        now: float,
        cut: ParsedBody | None = None,
    ) -> Plan:
        """The plan for one chat request; ``cut`` is the body's, where it was cut already. Raises InvalidRequest where
        the body is no chat request.

        Any surprise of ours is contained here and in ``written`` alone: the client's request goes out as it came.
        """
        return self.written(self.decide(body, route, mode, now, cut))

    def written(self, plan: Plan) -> Plan:
        """A plan with its body written. It touches nothing but the plan: another thread may do it."""
        if plan.writing is None:
            return plan
        original, mode = plan.original, plan.mode
        try:
            plan.body, plan.writing = plan.writing(), None
            plan.rewritten = plan.body != original
            return plan
        except Unreadable:
            return Plan(body=original, original=original, mode=mode, reason=Reason.UNREADABLE)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            return Plan(body=original, original=original, mode=mode, reason=Reason.INTERNAL_ERROR, surprise=error)

    def decide(
        self,
        body: bytes,
        route: Route,
        mode: Mode,
        now: float,
        cut: ParsedBody | None = None,
    ) -> Plan:
        """The same as ``plan``, but that the body may be still to be written (``Plan.writing``)."""
        try:
            cut = cut or self.cut(body)
            if cut.failure is not None:
                raise cut.failure
            request = parse_chat(body, cut.members, cut.rest if cut.rest or cut.known else None, cut.span)
        except Unreadable:
            return Plan(body=body, original=body, mode=mode, reason=Reason.UNREADABLE)
        original = original_body(request, route.model)
        if mode is Mode.PASSTHROUGH:
            return Plan(body=original, original=original, mode=mode, reason=Reason.PASSTHROUGH_MODE)
        try:
            original = self._with_reminder(request, cut, original, route)
            if route.profile.family is Family.NONE:
                return self._ordered(request, cut, original, route, mode, now)
            return self._planned(request, cut, original, route, mode, now)
        except Unreadable:
            return Plan(body=original, original=original, mode=mode, reason=Reason.UNREADABLE)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            return Plan(body=original, original=original, mode=mode, reason=Reason.INTERNAL_ERROR, surprise=error)

    def cut(self, body: bytes) -> ParsedBody:
        """The body, cut with the help of what was cut before. Raises InvalidRequest, Unreadable."""
        return self._body_cache.cut(body)

    def unread(self, messages: Sequence[Raw]) -> list[Raw]:
        """Those messages that were never read, which planning would tokenise."""
        return self._reader.unread(messages)

    def ahead(self, cut: ParsedBody) -> Ahead:
        """What is to be read in another thread; ``bring_back`` makes it known here."""
        return Ahead(cut, self._reader.beside(), self._tools.beside())

    def bring_back(self, ahead: Ahead) -> None:
        """Take over what was read elsewhere."""
        self._reader.adopt(ahead.messages)
        self._tools.adopt(ahead.tools)

    def state_lookup(self, body: bytes, route: Route, cut: ParsedBody) -> StateLookup:
        """For what other processes may have left about a request, before it is planned. Raises InvalidRequest,
        Unreadable."""
        request = parse_chat(body, cut.members, cut.rest if cut.rest or cut.known else None, cut.span)
        tools = self._tools.read(request.members.get("tools"))
        caches = self._cache(_scope(route), route.profile)
        return StateLookup(
            self._shared_state,
            self._sessions,
            route,
            self.read(request.body, cut),
            tools[0].digest if tools else b"",
            {SENT: caches.sent, OWN: caches.own},
            _scope(route),
            caches.others,
        )

    def export_state(self, plan: Plan) -> tuple[str, Mapping[str, bytes]]:
        """What to leave for others about an exchange that was settled, and in whose scope."""
        draft = plan.ticket
        if not isinstance(draft, Draft) or draft.sent_prompt is None:
            return "", {}
        caches = self._cache(*draft.scope)
        both = {SENT: caches.sent, OWN: caches.own}
        blobs = self._shared_state.snapshot(draft.session, both, draft.sent_prompt, draft.own_prompt)
        costs = caches.others.packed(self.prefix, caches.sent_cost, caches.own_cost)
        return draft.client, {**blobs, costs_name(draft.scope[0]): costs}

    def began(self, plan: Plan, now: float) -> None:
        """Commit the shadow caches: the provider has accepted the prompt. Called again where an empty answer made the
        client's own request follow: the provider has then seen both."""
        draft = plan.ticket
        if not isinstance(draft, Draft):
            return
        scope, profile = draft.scope
        caches = self._cache(scope, profile)
        choice = draft.choice
        sent = draft.own_prompt if draft.use_own else choice.layout.prompt(choice.marks)
        # What could be read was decided when the request came: what others wrote since then is no part of it.
        draft.sent_prompt, draft.sent = sent, caches.sent.bill(sent, draft.at)
        draft.last_use = caches.sent.last_use(sent, draft.sent.hit, draft.at) if draft.sent.hit >= 0 else None
        caches.sent_cost += cost_of(profile, draft.sent)
        stores = [(caches.sent, sent)]
        if not draft.is_begun:
            caches.own_cost += cost_of(profile, caches.own.bill(draft.own_prompt, now))
            stores.append((caches.own, draft.own_prompt))
        stores += put_elsewhere(draft, caches)
        draft.is_begun = True
        if profile.after_answer:
            draft.waiting += stores
        else:
            for cache, prompt in stores:
                cache.store(prompt, draft.at, now)
        self._caches.used(scope)  # they have grown
        if not draft.use_own:
            remember(draft.session, choice.layout)
            if draft.key.is_set:
                caches.observations.key_was(accepted=True)

    def refresh_plan(self, plan: Plan, now: float) -> RefreshPlan | None:
        """How to keep alive what a request that was sent at ``now`` has cached; None where nothing would pay."""
        draft = plan.ticket
        if not isinstance(draft, Draft) or draft.use_own or not draft.is_begun or plan.mode <= Mode.OBSERVE:
            return None
        scope, profile = draft.scope
        layout = draft.choice.layout
        sent = Sent(plan.body, layout, layout.prompt(draft.choice.marks), scope, profile, now)
        return refresh_plan(draft.session, draft.forecast, sent, self._cache(scope, profile).sent)

    def kept(self, work: RefreshPlan, now: float) -> None:
        """The upstream accepted a refresh: what it cost counts as ours, what it read lives on."""
        caches = self._cache(work.scope, work.profile)
        caches.sent_cost += cost_of(work.profile, caches.sent.bill(work.prompt, now))
        caches.sent.store(work.prompt, now, now)

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten request, and the client's own is sent in its place."""
        draft = plan.ticket
        if isinstance(draft, Draft):
            draft.use_own = True

    def barred(self, plan: Plan) -> None:
        """The upstream took the client's own request after it had refused the rewritten one: this session is left alone
        from now on."""
        draft = plan.ticket
        if not isinstance(draft, Draft):
            return
        self.refused(plan)
        draft.session.is_barred = True
        if draft.key.is_set:
            self._cache(*draft.scope).observations.key_was(accepted=False)

    def settled(self, plan: Plan, usage: Usage | None, now: float) -> None:
        """Count the exchange once: what the client changed, and each piece's stability."""
        draft = plan.ticket
        if not isinstance(draft, Draft):
            return
        for cache, prompt in draft.waiting:
            cache.store(prompt, draft.at, now)
        draft.waiting.clear()
        if usage is not None and (plan.mode > Mode.OBSERVE or draft.is_control):
            scope, profile = draft.scope
            caches = self._cache(scope, profile)
            caches.sent_cost += unpredicted_cost(profile, draft.sent, usage)
            if plan.predicted is not None and not usage.estimated:
                seen, bill = draft.sent_prompt, draft.sent
                if seen is not None and bill is not None:
                    other = draft.elsewhere[0] if draft.elsewhere is not None else None
                    plan.deviation = caches.compared(seen, bill, usage, draft.last_use, profile, now, other)
                    if plan.deviation == Deviation.MOVED_SYSTEM and draft.elsewhere is not None:
                        # The client's own request would have met the same.
                        caches.own_cost += cost_of(profile, draft.elsewhere[1]) - cost_of(profile, draft.own)
        retry = draft.observation.is_retry or draft.observation.turns == draft.session.turns
        observation = (
            draft.observation if retry == draft.observation.is_retry else replace(draft.observation, is_retry=retry)
        )
        is_new = not retry and not is_sibling(draft)
        commit_reading(draft.session, observation, now)
        if not retry:
            commit_preamble(draft.session, draft.recognised, draft.forecast.pieces.documents)
        if is_new:
            plan.moves = advance_tiers(draft)

    def _ordered(
        self, request: ChatRequest, cut: ParsedBody, original: bytes, route: Route, mode: Mode, now: float
    ) -> Plan:
        """Nothing is known of this upstream's cache: order only, as for a prefix cache that reads at half the price, no
        marker fields, no figures. A client that marks knows its upstream better: its request is left alone, for what
        stands in front of a marker may be stored as it is, and behind the last one there is mostly nothing to move."""
        transcript = self.read(request.body, cut)
        is_marked = own_count(request, transcript) > 0
        if mode < Mode.TIER or is_marked:
            reason = Reason.MARKS_WITHOUT_PROFILE if is_marked else Reason.NO_PROFILE
            return Plan(body=original, original=original, mode=mode, reason=reason)
        plan = self._planned(request, cut, original, replace(route, profile=ASSUMED), mode, now)
        plan.predicted = plan.own = None
        if plan.reason in (Reason.CLIENT_OPTIMAL, Reason.NATURAL_ORDER):
            plan.reason = Reason.NO_PROFILE
        return plan

    def read(self, body: bytes, cut: ParsedBody) -> Transcript:
        """All messages of a body: those that an earlier request had, too, are not looked at again. ``plan`` does it
        where it was not done before. Raises Unreadable."""
        transcript = cut.read(self._reader.read)
        if not cut.is_kept:
            self._body_cache.keep(body, cut)
        return transcript

    def _planned(
        self, request: ChatRequest, cut: ParsedBody, original: bytes, route: Route, mode: Mode, now: float
    ) -> Plan:
        transcript = self.read(request.body, cut)
        if request.span != cut.span:
            request = replace(request, span=cut.span)
        tools = own_tools = self._tools.read(request.members.get("tools"))
        steady = self._steady(request, tools, route, mode)
        if steady is not None:
            tools = self._tools.read(Raw(steady))
        caches = self._cache(_scope(route), route.profile)
        believed = caches.believed(route.profile, now)
        if believed is not route.profile:
            route = replace(route, profile=believed)
        draft = self._draft(request, transcript, tools, route, mode, now, own_tools)
        draft.steady = steady
        choice = draft.choice
        profile = route.profile
        plan = Plan(
            body=original,
            original=original,
            mode=mode,
            reason=named(draft, profile),
            predicted=choice.bill,
            own=draft.own,
            tier_tokens=tier_tokens(draft),
            segment_tokens=segment_tokens(choice),
            session=draft.session.id,
            ticket=draft,
        )
        reason = passthrough_reason(draft, profile, ignores_markers=caches.observations.ignores_markers(now))
        if (
            reason is Reason.BELOW_MINIMUM
            and mode is Mode.TIER
            and has_foreign_marks(request, transcript, profile.dialect)
        ):
            natural = Layout(choice.layout.seed, draft.material.natural)
            draft.choice = replace(choice, layout=natural, marks={}, reason=reason)
            plan.reason = reason
        elif reason is not None:
            plan.reason, draft.use_own = reason, True
        elif mode is Mode.OBSERVE:
            plan.reason = Reason.OBSERVE_MODE
        if mode > Mode.OBSERVE and self.options.holdout:
            plan.arm = CONTROL if draft.is_control else TREATED
        if draft.is_control:
            draft.use_own = True
            plan.mode, plan.reason, plan.tier_tokens, plan.segment_tokens = Mode.OBSERVE, Reason.HOLD_OUT, {}, {}
            plan.predicted = caches.sent.bill(draft.own_prompt, now)
        elif mode > Mode.OBSERVE:
            if not draft.use_own:
                draft.key = self._routing(request, draft.session, route, caches.observations)
                plan.headers = (draft.key.header,) if draft.key.header is not None else ()
                plan.writing = partial(planned_body, request, cut, draft, route, mode)
                plan.reason = as_written(plan.reason, request, draft, route, mode)
            else:
                plan.predicted = caches.sent.bill(draft.own_prompt, now)
            plan.rewritten = plan.body != original
        return plan

    def _draft(
        self,
        request: ChatRequest,
        transcript: Transcript,
        tools: tuple[Element, ...],
        route: Route,
        mode: Mode,
        now: float,
        own_tools: tuple[Element, ...],
    ) -> Draft:
        tools_key = tools[0].digest if tools else b""
        model = f"{route.name}/{route.model}"
        transcript = self._sessions.with_evidence(route.scope, model, transcript, tools_key)
        session = self._sessions.find(route.scope, model, route.hint, transcript, tools_key)
        session.notice(transcript)
        if not session.requests:
            session.tracker.policy = with_target(session.tracker.policy, route.profile.min_tokens)
        # Under a policy that orders by price tiers are what a person sees.
        session.tracker.policy = replace(session.tracker.policy, promotion=_PROMOTION[self.policy])
        is_control = mode > Mode.OBSERVE and self.options.is_control(route.scope, session.opening)
        if route.reminder:
            transcript = self._reminded(transcript, route.reminder)
        recognised = recognise_request(request, transcript, session.is_movable)
        observation = read_request(session, recognised, tools_key, now)
        request_elements = material(
            recognised,
            tools,
            self._counter,
            has_spans=_looks_inside(route.profile),
            hoists_system=route.profile.hoists_system,
        )
        expected = forecast(session, observation, recognised, request_elements, route.profile, self._words)
        seed = _seed(request, transcript, route)
        natural = Layout(seed, request_elements.natural, self._natural.get(session.id))
        self._natural[session.id] = natural
        self._natural.used(session.id)
        if len(self._natural) > _MAX_NATURAL:
            self._natural.drop_oldest()
        written_marks = own_count(request, transcript)
        is_foreign = written_marks > 0 and has_foreign_marks(request, transcript, route.profile.dialect)
        is_marked = written_marks > 0 and not is_foreign and route.profile.family is Family.MARKER
        own_marks = honoured(natural, route.profile) if is_marked else {}
        caches = self._cache(seed.scope, route.profile)
        # What the client's own request would have cost has its tools as it sent them.
        came = natural if own_tools is tools else Layout(seed, (*own_tools, *request_elements.natural[len(tools) :]))
        own_prompt = came.prompt(own_marks)
        own = caches.own.bill(own_prompt, now)
        paused = outlook(session, observation.gap, expected, route.profile)
        returns = expected.body + (paused.pause if paused is not None else 0.0)
        pricing = Pricing(
            profile=route.profile,
            cache=caches.sent,
            own_now=cost_of(route.profile, own),
            regret_budget=caches.regret_budget(cost_of(route.profile, own), self.policy, returns),
            forecast=expected,
            now=now,
            slots=slots_of(request.members, route.profile),
            long_until=max((natural.ends[p] for p, life in own_marks.items() if life == "1h"), default=0),
            outlook=paused,
        )
        if natural.total < route.profile.min_tokens and not request_elements.is_movable:
            # Whatever is chosen, the provider stores nothing of it.
            choice = Choice(natural, own_marks, Reason.CLIENT_OPTIMAL, caches.sent.bill(own_prompt, now), 0.0)
        else:
            offer = CandidateInputs(
                request_elements,
                moved_material(recognised, request_elements, self._counter),
                session,
                seed,
                natural,
                own_marks,
                written_marks,
                self._split(recognised, natural, expected, mode),
                may_tell_explicit(route.profile, request.members, route.server),
            )
            may_order = mode >= Mode.TIER or mode is Mode.OBSERVE
            choice = choose(offer, pricing, may_order=may_order, policy=self.policy)
        scope = (seed.scope, route.profile)
        return Draft(
            session,
            observation,
            recognised,
            request_elements,
            expected,
            choice,
            natural,
            own_prompt,
            scope,
            own,
            is_control,
            client=route.scope,
            at=now,
            came=came,
            after=session.turns,
        )

    def _steady(self, request: ChatRequest, tools: tuple[Element, ...], route: Route, mode: Mode) -> bytes | None:
        """The tools as this client first sent them, where they are the same in another order or form."""
        if not tools or not self.options.steady_tools or mode not in (Mode.TIER, Mode.OBSERVE):
            return None
        return self._orders.steady(_scope(route), tools[0].digest, bytes(request.members["tools"]))

    def _split(self, recognised: RecognisedRequest, natural: Layout, expected: Forecast, mode: Mode) -> Layout | None:
        """Where nothing may move, or nothing is likely to follow that would be read behind a relocated line: else the
        split saves a few tokens now, and every request behind it reads less."""
        is_likely = expected.body < _SPLIT_BODY
        may_pay = mode is Mode.MARK or (self.policy == "economic" and is_likely)
        return split_layout(recognised, natural, self._counter) if recognised.system and may_pay else None

    def _routing(
        self, request: ChatRequest, session: Session, route: Route, observations: ProviderObservations
    ) -> RoutingKey:
        """The key that keeps this conversation, or all that begin like it, together at the provider."""
        profile = route.profile
        is_wanted = self.options.routing_keys and observations.takes_keys
        if not is_wanted or not may_add(profile, request.members, route.server, is_hinted=bool(route.hint)):
            return RoutingKey()
        by_prefix = profile.routing is not None and profile.routing.by_prefix
        name = session.cohort.key if by_prefix and not session.cohort.is_busy() else session.opening
        session.routing = session.routing or routing_key(route.scope, name)
        return written(profile.routing, session.routing)

    def _with_reminder(self, request: ChatRequest, cut: ParsedBody, original: bytes, route: Route) -> bytes:
        """The client's request with the operator's text in it, whatever else is made of it: observed sessions, both
        arms of a hold-out and a retry with what the client sent differ in their layout and never in their words."""
        if not route.reminder:
            return original
        messages = self._reminded(self.read(request.body, cut), route.reminder).messages
        request = replace(request, span=cut.span)
        return as_read(request, cut, messages, transport_edits(request, route.model))

    def _reminded(self, transcript: Transcript, reminder: str) -> Transcript:
        """With the operator's text behind the last user message, read as it is sent: the next request's copy of that
        turn is without it, so the prefix ends there."""
        messages = transcript.messages
        last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), None)
        if last is None:
            return transcript
        return transcript.replaced({last: self._reader.read(Raw(with_reminder(messages[last].raw, reminder)))})

    def _cache(self, scope: bytes, profile: CacheProfile) -> ShadowCaches:
        caches = self._caches.get(scope)
        if caches is None:
            caches = self._caches[scope] = ShadowCaches.of(profile)
            self._caches.used(scope)
            if len(self._caches) > _MAX_CACHES:
                self._caches.drop_oldest()
        else:
            self._caches.move_to_end(scope)
        return caches


def _layout_bytes(layout: Layout) -> int:
    return 2_000 + 300 * len(layout.parts)


def _seed(request: ChatRequest, transcript: Transcript, route: Route) -> PrefixSettings:
    return seed_of(request.members, route.profile, _scope(route), has_media=transcript.has_media)


def _scope(route: Route) -> bytes:
    """What a provider keeps apart: accounts, models, and the servers of one name."""
    return digest(route.scope.encode(), route.name.encode(), route.model.encode(), route.upstream.encode())


def _looks_inside(profile: CacheProfile) -> bool:
    """Whether a prefix may end within a text."""
    return profile.family in (Family.GRID, Family.UNIT)

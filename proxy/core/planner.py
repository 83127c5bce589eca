"""The planner: from a client's bytes to the bytes that are sent, with a reason. Implements ``proxy.ports.Planner``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import orjson
from msgspec import Raw

from proxy.core.assemble import Material, material
from proxy.core.bounded import Bounded
from proxy.core.cache_models import Cache, make_cache
from proxy.core.choose import Choice, Offer, Pricing, choose
from proxy.core.cut import Cut, Trunks
from proxy.core.deviation import LOST, Beliefs, missing, observed
from proxy.core.digest import digest
from proxy.core.edits import original_body, transport_edits, with_reminder
from proxy.core.forecast import Forecast, forecast
from proxy.core.handover import OWN, SENT, Costs, Handover, Lookout, costs_name
from proxy.core.keep_alive import Sent, Upkeep, upkeep
from proxy.core.layout import Element, Layout, Seed
from proxy.core.life import outlook
from proxy.core.marks import honoured
from proxy.core.message import MARK_KEYS, MessageReader
from proxy.core.modes import Mode
from proxy.core.moved import moved_material
from proxy.core.options import Options
from proxy.core.plan import CONTROL, TREATED, Moved, Plan, Route
from proxy.core.profiles import ASSUMED, CacheProfile, Dialect, Family
from proxy.core.prompt import Bill, Prompt
from proxy.core.reasons import Reason
from proxy.core.recognition import Recogniser
from proxy.core.render import patches, render_messages, render_tools
from proxy.core.routing import (
    NO_BOUNDARIES,
    RoutingKey,
    may_add,
    may_tell_explicit,
    routing_key,
    written,
)
from proxy.core.seed import seed_of, slots_of
from proxy.core.session import Reading, Session, SessionTable, commit_head, commit_reading, read_request
from proxy.core.split import split_layout
from proxy.core.stability import Tier, Tracked, with_target
from proxy.core.tokens import Encode, TokenCounter
from proxy.core.tool_order import ToolOrders
from proxy.core.tools import ToolReader
from proxy.core.transcript import Transcript
from proxy.core.usage import Usage
from proxy.core.view import View, build_view
from proxy.core.wire import ChatRequest, Patch, Unreadable, parse_chat

_REMEMBERED_LAYOUTS = 3
_MAX_CACHES = 1024
# Sessions whose last positions are kept, so that a request that appends is not numbered from its beginning.
_MAX_NATURAL = 256
_MOST_COUNTS = 200_000
# P(the session goes on in time) below which a system text is rather split than made still.
_SPLIT_BODY = 0.5
_REGRET_SHARE = 0.005
# How much of one request a policy may lose to learning, and how many times more where the client is sure to come back
# in time (nothing more up to P = 0.6). Classic orders by age alone and wins back less.
_REGRET_REQUESTS = MappingProxyType({"economic": 0.3, "classic": 0.27})
_RETURN_BONUS = MappingProxyType({"economic": 4.8, "classic": 0.0})


@dataclass(slots=True)
class Draft:
    """Everything that was thought about one request; ``explain`` shows it."""

    session: Session
    reading: Reading
    view: View
    material: Material
    forecast: Forecast
    choice: Choice
    natural: Layout
    own_prompt: Prompt
    scope: tuple[bytes, CacheProfile]
    own: Bill
    is_control: bool = False
    client: str = ""
    key: RoutingKey = field(default_factory=RoutingKey)
    steady: bytes | None = None
    at: float = 0.0
    sent: Bill | None = None
    use_own: bool = False
    is_begun: bool = False
    waiting: list[tuple[Cache, Prompt]] = field(default_factory=list)
    sent_prompt: Prompt | None = None
    last_use: tuple[float, float] | None = None


@dataclass(slots=True)
class _Caches:
    """What we believe the provider holds (``sent``), and what it would hold had the client's requests been sent
    (``own``); and the input cost of either so far, in tokens at the plain price."""

    sent: Cache
    own: Cache
    profile: CacheProfile
    beliefs: Beliefs = field(default_factory=Beliefs)
    sent_cost: float = 0.0
    own_cost: float = 0.0
    others: Costs = field(default_factory=Costs)

    def believed(self, base: CacheProfile, now: float) -> CacheProfile:
        """The provider's rules with what its reports have taught; both worlds go by them."""
        profile = self.beliefs.profile(base, now)
        if profile is not self.profile:
            self.profile = profile
            self.sent.follow(profile)
            self.own.follow(profile)
        return profile

    def allowance(self, own_now: float, policy: str, returns: float) -> float:
        """How much more than the client's own the next request may cost: realised regret is bounded by a share of the
        cost and a part of one request, which is what learning a new session costs."""
        bound = (
            _REGRET_SHARE * (self.own_cost + self.others.own)
            + _REGRET_REQUESTS[policy] * (1 + _RETURN_BONUS[policy] * max(0.0, returns - 0.6) / 0.4) * own_now
        )
        return bound - (self.sent_cost + self.others.sent - self.own_cost - self.others.own)


@dataclass(slots=True)
class TierPlanner:
    """Plans requests. State is in memory: sessions, the shadow caches, token counts; all bounded."""

    encode: Encode
    recognisers: Sequence[Recogniser]
    policy: str = "economic"
    options: Options = field(default_factory=Options)
    memory_bytes: int = 512 * 2**20
    """What all of its state may take, but for the token counts: an eighth more, 50 MB at most."""
    prefix: str = "s"
    """What ids of sessions begin with; processes that share what they know have one each."""
    _counter: TokenCounter = field(init=False)
    _reader: MessageReader = field(init=False)
    _trunks: Trunks = field(init=False)
    _tools: ToolReader = field(init=False)
    _orders: ToolOrders = field(init=False)
    _sessions: SessionTable = field(init=False)
    _handover: Handover = field(init=False)
    _caches: Bounded[bytes, _Caches] = field(init=False)
    _natural: Bounded[str, Layout] = field(init=False)

    def __post_init__(self) -> None:
        self._counter = TokenCounter(self.encode, capacity=min(_MOST_COUNTS, self.memory_bytes // 2_000))
        room = self.memory_bytes
        self._reader = MessageReader(self._counter, self.recognisers, capacity_bytes=room // 4)
        self._trunks = Trunks(capacity_bytes=room // 4)
        self._sessions = SessionTable(capacity_bytes=room // 4, prefix=self.prefix)
        self._handover = Handover(self._sessions)
        self._caches = Bounded(room // 8, _caches_bytes)
        self._natural = Bounded(room // 16, _layout_bytes)
        self._tools = ToolReader(self._counter, capacity_bytes=room // 16)
        self._orders = ToolOrders(capacity_bytes=room // 32)

    def plan(
        self,
        body: bytes,
        route: Route,
        mode: Mode,
        now: float,
        cut: Cut | None = None,
    ) -> Plan:
        """The plan for one chat request; ``cut`` is the body's, where it was cut already. Raises InvalidRequest where
        the body is no chat request.

        Any surprise of ours is contained here and nowhere else: the client's request goes out as it came.
        """
        try:
            cut = cut or self.cut(body)
            request = parse_chat(body, cut.members, cut.rest if cut.rest or cut.known else None, cut.span)
        except Unreadable:
            return Plan(body=body, original=body, mode=mode, reason=Reason.UNREADABLE)
        original = original_body(request, route.model)
        if mode is Mode.PASSTHROUGH:
            return Plan(body=original, original=original, mode=mode, reason=Reason.PASSTHROUGH_MODE)
        try:
            if route.profile.family is Family.NONE:
                return self._ordered(request, cut, original, route, mode, now)
            return self._planned(request, cut, original, route, mode, now)
        except Unreadable:
            return Plan(body=original, original=original, mode=mode, reason=Reason.UNREADABLE)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            return Plan(body=original, original=original, mode=mode, reason=Reason.INTERNAL_ERROR, surprise=error)

    def cut(self, body: bytes) -> Cut:
        """The body, cut with the help of what was cut before. Raises InvalidRequest, Unreadable."""
        return self._trunks.cut(body)

    def unread(self, messages: Sequence[Raw]) -> list[Raw]:
        """Those messages that were never read, which planning would tokenise."""
        return self._reader.unread(messages)

    def reading_room(self) -> MessageReader:
        """A reader for another thread; ``bring_back`` makes what it read known here."""
        return self._reader.beside()

    def bring_back(self, reader: MessageReader) -> None:
        """Take over what was read elsewhere."""
        self._reader.adopt(reader)

    def lookout(self, body: bytes, route: Route, cut: Cut) -> Lookout:
        """For what other processes may have left about a request, before it is planned. Raises InvalidRequest,
        Unreadable."""
        request = parse_chat(body, cut.members, cut.rest if cut.rest or cut.known else None, cut.span)
        tools = self._tools.read(request.members.get("tools"))
        caches = self._cache(_scope(route), route.profile)
        return Lookout(
            self._handover,
            self._sessions,
            route,
            self.read(request.body, cut),
            tools[0].digest if tools else b"",
            {SENT: caches.sent, OWN: caches.own},
            _scope(route),
            caches.others,
        )

    def handed(self, plan: Plan) -> tuple[str, Mapping[str, bytes]]:
        """What to leave for others about an exchange that was settled, and in whose scope."""
        draft = plan.ticket
        if not isinstance(draft, Draft) or draft.sent_prompt is None:
            return "", {}
        caches = self._cache(*draft.scope)
        both = {SENT: caches.sent, OWN: caches.own}
        blobs = self._handover.snapshot(draft.session, both, draft.sent_prompt, draft.own_prompt)
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
        caches.sent_cost += _cost(profile, draft.sent)
        stores = [(caches.sent, sent)]
        if not draft.is_begun:
            caches.own_cost += _cost(profile, caches.own.bill(draft.own_prompt, now))
            stores.append((caches.own, draft.own_prompt))
        draft.is_begun = True
        if profile.after_answer:
            draft.waiting += stores
        else:
            for cache, prompt in stores:
                cache.store(prompt, draft.at, now)
        self._caches.used(scope)  # they have grown
        if not draft.use_own:
            _remember(draft.session, choice.layout)
            if draft.key.is_set:
                caches.beliefs.key_was(accepted=True)

    def upkeep(self, plan: Plan, now: float) -> Upkeep | None:
        """How to keep alive what a request that was sent at ``now`` has cached; None where nothing would pay."""
        draft = plan.ticket
        if not isinstance(draft, Draft) or draft.use_own or not draft.is_begun or plan.mode <= Mode.OBSERVE:
            return None
        scope, profile = draft.scope
        layout = draft.choice.layout
        sent = Sent(plan.body, layout, layout.prompt(draft.choice.marks), scope, profile, now)
        return upkeep(draft.session, draft.forecast, sent, self._cache(scope, profile).sent)

    def kept(self, work: Upkeep, now: float) -> None:
        """The upstream accepted a refresh: what it cost counts as ours, what it read lives on."""
        caches = self._cache(work.scope, work.profile)
        caches.sent_cost += _cost(work.profile, caches.sent.bill(work.prompt, now))
        caches.sent.store(work.prompt, now, now)

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten request: this session is left alone from now on."""
        draft = plan.ticket
        if not isinstance(draft, Draft):
            return
        draft.session.is_barred = True
        draft.use_own = True
        if draft.key.is_set:
            self._cache(*draft.scope).beliefs.key_was(accepted=False)

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
            caches.sent_cost += _surprise_cost(profile, draft.sent, usage)
            if plan.predicted is not None and not usage.estimated:
                plan.deviation = _compared(caches, draft, usage, now)
        retry = draft.reading.is_retry or draft.reading.turns == draft.session.turns
        reading = draft.reading if retry == draft.reading.is_retry else replace(draft.reading, is_retry=retry)
        commit_reading(draft.session, reading, now)
        if not retry:
            commit_head(draft.session, draft.view)
            plan.moves = _age(draft)

    def _ordered(self, request: ChatRequest, cut: Cut, original: bytes, route: Route, mode: Mode, now: float) -> Plan:
        """Nothing is known of this upstream's cache: order only, as for a prefix cache that reads at half the price, no
        marker fields, no figures. A client that marks knows its upstream better: its request is left alone."""
        transcript = self.read(request.body, cut)
        if mode < Mode.TIER or _own_count(request, transcript):
            return Plan(body=original, original=original, mode=mode, reason=Reason.NO_PROFILE)
        plan = self._planned(request, cut, original, replace(route, profile=ASSUMED), mode, now)
        plan.predicted = plan.own = None
        if plan.reason in (Reason.CLIENT_OPTIMAL, Reason.NATURAL_ORDER):
            plan.reason = Reason.NO_PROFILE
        return plan

    def read(self, body: bytes, cut: Cut) -> Transcript:
        """All messages of a body: those that an earlier request had, too, are not looked at again. ``plan`` does it
        where it was not done before. Raises Unreadable."""
        if cut.transcript is None:
            cut.read(self._reader.read)
            self._trunks.keep(body, cut)
        return cut.read(self._reader.read)

    def _planned(self, request: ChatRequest, cut: Cut, original: bytes, route: Route, mode: Mode, now: float) -> Plan:
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
            reason=_named(draft, profile),
            predicted=choice.bill,
            own=draft.own,
            tier_tokens=_tier_tokens(choice),
            session=draft.session.id,
            ticket=draft,
        )
        reason = _stand_down(draft, profile, ignores_markers=caches.beliefs.ignores_markers(now))
        if (
            reason is Reason.BELOW_MINIMUM
            and mode is Mode.TIER
            and _has_foreign_marks(request, transcript, profile.dialect)
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
            plan.mode, plan.reason, plan.tier_tokens = Mode.OBSERVE, Reason.HOLD_OUT, {}
            plan.predicted = caches.sent.bill(draft.own_prompt, now)
        elif mode > Mode.OBSERVE:
            if not draft.use_own:
                draft.key = self._routing(request, draft.session, route, caches.beliefs)
                plan.headers = (draft.key.header,) if draft.key.header is not None else ()
                plan.body = self._rendered(request, cut, draft, route, mode)
            else:
                plan.predicted = caches.sent.bill(draft.own_prompt, now)
                if plan.reason is Reason.BELOW_MINIMUM and route.reminder:
                    plan.body = _as_read(request, draft, route, transport_edits(request, route.model))
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
        session.notice_candidates(transcript)
        if not session.requests:
            session.tracker.policy = with_target(session.tracker.policy, route.profile.min_tokens)
        is_control = mode > Mode.OBSERVE and self.options.is_control(route.scope, session.opening)
        if mode > Mode.OBSERVE and route.reminder and not is_control:
            transcript = self._reminded(transcript, route.reminder)
        view = build_view(request, transcript, session.is_movable)
        reading = read_request(session, view, tools_key)
        stuff = material(view, tools, self._counter)
        expected = forecast(session, reading, view, stuff, route.profile)
        seed = _seed(request, transcript, route)
        natural = Layout(seed, stuff.natural, self._natural.get(session.id))
        self._natural[session.id] = natural
        self._natural.used(session.id)
        if len(self._natural) > _MAX_NATURAL:
            self._natural.drop_oldest()
        own_count = _own_count(request, transcript)
        is_foreign = own_count > 0 and _has_foreign_marks(request, transcript, route.profile.dialect)
        is_marked = own_count > 0 and not is_foreign and route.profile.family is Family.MARKER
        own_marks = honoured(natural, route.profile) if is_marked else {}
        caches = self._cache(seed.scope, route.profile)
        # What the client's own request would have cost has its tools as it sent them.
        came = natural if own_tools is tools else Layout(seed, (*own_tools, *stuff.natural[len(tools) :]))
        own_prompt = came.prompt(own_marks)
        own = caches.own.bill(own_prompt, now)
        paused = outlook(session, expected, route.profile)
        returns = expected.body + (paused.pause if paused is not None else 0.0)
        pricing = Pricing(
            profile=route.profile,
            cache=caches.sent,
            own_now=_cost(route.profile, own),
            allowance=caches.allowance(_cost(route.profile, own), self.policy, returns),
            forecast=expected,
            now=now,
            slots=slots_of(request.members, route.profile),
            long_until=max((natural.ends[p] for p, life in own_marks.items() if life == "1h"), default=0),
            outlook=paused,
        )
        if natural.total < route.profile.min_tokens and not stuff.is_movable:
            # Whatever is chosen, the provider stores nothing of it.
            choice = Choice(natural, own_marks, Reason.CLIENT_OPTIMAL, caches.sent.bill(own_prompt, now), 0.0)
        else:
            offer = Offer(
                stuff,
                moved_material(view, stuff, self._counter),
                session,
                seed,
                natural,
                own_marks,
                own_count,
                self._split(view, natural, expected, mode),
                may_tell_explicit(route.profile, request.members, route.server),
            )
            may_order = mode >= Mode.TIER or mode is Mode.OBSERVE
            choice = choose(offer, pricing, may_order=may_order, policy=self.policy)
        scope = (seed.scope, route.profile)
        return Draft(
            session,
            reading,
            view,
            stuff,
            expected,
            choice,
            natural,
            own_prompt,
            scope,
            own,
            is_control,
            client=route.scope,
            at=now,
        )

    def _rendered(self, request: ChatRequest, cut: Cut, draft: Draft, route: Route, mode: Mode) -> bytes:
        choice, dialect = draft.choice, route.profile.dialect
        changes = dict(transport_edits(request, route.model))
        if draft.key.member is not None:
            name, key = draft.key.member
            changes[name] = orjson.dumps(key)
        if draft.steady is not None:
            changes["tools"] = draft.steady
        transcript = draft.view.transcript
        messages = transcript.messages
        own = choice.reason in (Reason.CLIENT_OPTIMAL, Reason.REGRET_BOUND)
        # In mode mark the client's markers stay, whatever the provider makes of them.
        if own and (mode is Mode.MARK or not _has_foreign_marks(request, transcript, dialect)):
            return _as_read(request, draft, route, changes)
        if choice.layout.seed.is_implicit is not draft.natural.seed.is_implicit:
            changes["prompt_cache_options"] = NO_BOUNDARIES
        keep = mode is Mode.MARK and choice.reason is not Reason.SPLIT
        marks = {p: life for p, life in choice.marks.items() if not keep or choice.layout.parts[p].own_mark is None}
        within: list[Patch] = []
        if choice.layout is draft.natural and cut.span is not None and not route.reminder:
            changed = patches(choice.layout, messages, marks, dialect, transcript.marked, keep_own=keep)
            places = ((cut.starts[index], index) for index in changed)
            within = [(place, place + len(messages[index].raw), changed[index]) for place, index in places]
        else:
            changes["messages"] = render_messages(choice.layout, messages, marks, dialect, keep_own=keep)
        if draft.material.tools:
            last = len(draft.material.tools[0].parts) - 1
            raw_tools = draft.steady or bytes(request.members["tools"])
            changes["tools"] = render_tools(raw_tools, marks.get(last), dialect, keep_own=keep)
        return request.edited(changes, within)

    def _steady(self, request: ChatRequest, tools: tuple[Element, ...], route: Route, mode: Mode) -> bytes | None:
        """The tools as this client first sent them, where they are the same in another order or form."""
        if not tools or not self.options.steady_tools or mode not in (Mode.TIER, Mode.OBSERVE):
            return None
        return self._orders.steady(_scope(route), tools[0].digest, bytes(request.members["tools"]))

    def _split(self, view: View, natural: Layout, expected: Forecast, mode: Mode) -> Layout | None:
        """Where nothing may move, or nothing is likely to follow that would be read behind a relocated line: else the
        split saves a few tokens now, and every request behind it reads less."""
        may_pay = mode is Mode.MARK or (self.policy == "economic" and expected.body < _SPLIT_BODY)
        return split_layout(view, natural, self._counter) if view.system and may_pay else None

    def _routing(self, request: ChatRequest, session: Session, route: Route, beliefs: Beliefs) -> RoutingKey:
        """The key that keeps this conversation, or all that begin like it, together at the provider."""
        profile = route.profile
        is_wanted = self.options.routing_keys and beliefs.takes_keys
        if not is_wanted or not may_add(profile, request.members, route.server, is_hinted=bool(route.hint)):
            return RoutingKey()
        by_prefix = profile.routing is not None and profile.routing.by_prefix
        name = session.lane.key if by_prefix and not session.lane.is_busy() else session.opening
        session.routing = session.routing or routing_key(route.scope, name)
        return written(profile.routing, session.routing)

    def _reminded(self, transcript: Transcript, reminder: str) -> Transcript:
        """With the operator's text behind the last user message, read as it is sent: the next request's copy of that
        turn is without it, so the prefix ends there."""
        messages = transcript.messages
        last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), None)
        if last is None:
            return transcript
        return transcript.replaced({last: self._reader.read(Raw(with_reminder(messages[last].raw, reminder)))})

    def _cache(self, scope: bytes, profile: CacheProfile) -> _Caches:
        caches = self._caches.get(scope)
        if caches is None:
            sent, own = make_cache(profile, is_forecast=True), make_cache(profile, is_forecast=True)
            caches = self._caches[scope] = _Caches(sent, own, profile)
            self._caches.used(scope)
            if len(self._caches) > _MAX_CACHES:
                self._caches.drop_oldest()
        else:
            self._caches.move_to_end(scope)
        return caches


def _caches_bytes(caches: _Caches) -> int:
    return 4_000 + 400 * (len(caches.sent) + len(caches.own))


def _layout_bytes(layout: Layout) -> int:
    return 2_000 + 300 * len(layout.parts)


def _as_read(request: ChatRequest, draft: Draft, route: Route, changes: Mapping[str, bytes | None]) -> bytes:
    """The messages as the client sent them, but for the operator's reminder; everything else as it came."""
    if not route.reminder:
        return request.edited(changes)
    written = b"[" + b",".join(message.raw for message in draft.view.messages) + b"]"
    return request.edited({**changes, "messages": written})


def _seed(request: ChatRequest, transcript: Transcript, route: Route) -> Seed:
    return seed_of(request.members, route.profile, _scope(route), has_media=transcript.has_media)


def _scope(route: Route) -> bytes:
    """What a provider keeps apart: accounts, models, and the servers of one name."""
    return digest(route.scope.encode(), route.name.encode(), route.model.encode(), route.upstream.encode())


def _own_count(request: ChatRequest, transcript: Transcript) -> int:
    """Markers that the client wrote, honoured or not: within a JSON string the key's quotes would be escaped."""
    raw = [transcript.messages[index].raw for index in transcript.marked]
    if "tools" in request.members:
        raw.append(bytes(request.members["tools"]))
    return sum(text.count(b'"cache_control"') + text.count(b'"prompt_cache_breakpoint"') for text in raw)


def _has_foreign_marks(request: ChatRequest, transcript: Transcript, dialect: Dialect) -> bool:
    """Whether the client marks in a dialect that this provider refuses: such markers are re-placed, or taken out."""
    raw = [transcript.messages[index].raw for index in transcript.marked]
    if "tools" in request.members:
        raw.append(bytes(request.members["tools"]))
    foreign = [b'"%s"' % key.encode() for key in MARK_KEYS if key != dialect.key]
    return any(key in text for text in raw for key in foreign)


def _named(draft: Draft, profile: CacheProfile) -> str:
    """Why nothing is done, in particular; where something is, the choice says why."""
    choice = draft.choice
    if draft.steady is not None and choice.reason is Reason.CLIENT_OPTIMAL:
        return Reason.STEADY_TOOLS
    if choice.reason is not Reason.CLIENT_OPTIMAL or draft.own_prompt.marks or draft.view.transcript.marked:
        return choice.reason
    if profile.family is not Family.MARKER or choice.layout.implicit:
        return Reason.NATURAL_ORDER
    return Reason.ONE_SHOT if draft.session.lane.is_one_shot else Reason.NOTHING_STABLE


def _stand_down(draft: Draft, profile: CacheProfile, *, ignores_markers: bool) -> Reason | None:
    """Why the client's own request is sent although a plan exists."""
    session, layout = draft.session, draft.choice.layout
    if session.is_barred:
        return Reason.BARRED
    if profile.family is not Family.NONE and layout.total < profile.min_tokens:
        return Reason.BELOW_MINIMUM
    return Reason.MARKERS_IGNORED if ignores_markers else None


def _compared(caches: _Caches, draft: Draft, usage: Usage, now: float) -> str:
    """What the provider reports beside what the shadow expected; what it evidently does not hold is dropped."""
    prompt, bill = draft.sent_prompt, draft.sent
    if prompt is None or bill is None:
        return ""
    kind = caches.beliefs.observe(observed(prompt, bill, usage, draft.last_use), draft.scope[1], now)
    if kind in LOST:
        caches.sent.forget(prompt, missing(prompt, bill, usage))
    return kind


def _cost(profile: CacheProfile, bill: Bill) -> float:
    return bill.read * profile.read + bill.write_5m * profile.write + bill.write_1h * profile.write_long + bill.plain


def _surprise_cost(profile: CacheProfile, predicted: Bill | None, usage: Usage) -> float:
    """What the request cost beyond the shadow's bill, by the provider's own report: regret is bounded as it is
    realised, also where entries went early or markers are ignored. In our tokens: the provider counts in its own."""
    if predicted is None or usage.estimated or usage.prompt <= 0:
        return 0.0
    reported = Bill(usage.read, usage.write_5m, usage.write_1h, usage.plain)
    return _cost(profile, reported) * predicted.total / usage.prompt - _cost(profile, predicted)


def _remember(session: Session, layout: Layout) -> None:
    one = tuple(layout.digests)
    if one in session.layouts:
        session.layouts.remove(one)
    session.layouts.append(one)
    del session.layouts[:-_REMEMBERED_LAYOUTS]
    if one not in session.lane.layouts:
        session.lane.layouts.append(one)


def _tier_tokens(choice: Choice) -> Mapping[str, int]:
    """Tokens by tier: a tier ends at each marker, what stands behind the last one is active."""
    ends = [choice.layout.ends[p] for p in sorted(choice.marks)]
    result: dict[str, int] = {}
    before = 0
    for tier, end in zip(("L0", "L1", "L2", "L3"), ends, strict=False):
        result[tier] = end - before
        before = end
    result["active"] = choice.layout.total - before
    return result


def _age(draft: Draft) -> list[Moved]:
    sizes = draft.material.sizes
    items = [Tracked(i.key, i.digest, sizes.get(i.key, 0)) for i in draft.view.items()]
    changes = draft.session.tracker.update(items)
    return [
        Moved(c.key, c.source.name, c.target.name if isinstance(c.target, Tier) else "removed", c.reason)
        for c in changes
    ]

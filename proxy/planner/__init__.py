"""Decides what is sent for a request.

The inputs are a parsed body, the route and the state of the session. The output is a plan: the bytes to send, the
reason for them, and what the shadow cache is told when the exchange ends. The candidates are priced on the shadow
cache. The client's own layout is always one of them. This package never reads a clock, never calls a provider, and
never returns a plan that loses, repeats or re-orders what the fidelity rules fix.

Four kinds of files help the planner, and none of them decides whether an order pays. ``session`` and its neighbours
recognise sessions and keep what is learnt from each; nothing learnt in one client's scope is ever used in another.
``change_rates`` estimates how likely each piece changes. ``orders``, ``layout`` and ``render`` offer orders with their
breakpoints and write them. ``record`` and ``diagnose`` find out afterwards why a prompt was not read from the cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Literal

from proxy.kit.lru import Bounded
from proxy.kit.modes import Mode, Reason
from proxy.kit.value import digest
from proxy.planner.candidates import (
    CandidateInputs,
    Choice,
    IncomingChat,
    OwnRequest,
    PlanAnalysis,
    Pricing,
    TextsInFlight,
    choose,
    own_request,
    pricing_of,
    segment_tokens,
    written_marks,
)
from proxy.planner.change_rates import FileWords
from proxy.planner.forecast import NO_PIECES, Candidate, forecast_of, piece_forecast
from proxy.planner.keep_alive import RefreshPlan, refresh_plan
from proxy.planner.layout import Layout, seed_of
from proxy.planner.observation import StoredPrompt, TurnTexts, read_request
from proxy.planner.orders import RequestElements, moved_elements, request_elements, split_layout
from proxy.planner.plan import (
    CHANGES_NOTHING,
    CONTROL,
    TREATED,
    Diagnosing,
    InFlight,
    Plan,
    PlannerOptions,
    PlanResult,
    as_it_came,
    changes_as_read,
    planned_changes,
)
from proxy.planner.render import begun_with, digests_on_wire, laid_out_again
from proxy.planner.session import Session, SessionKeys, SessionTable, seen_volatile
from proxy.planner.shadow import ProviderObservations, ShadowCaches, cost_of
from proxy.planner.sharing import FrontTable, SentForm, StateLookup, costs_name, key_of, snapshot
from proxy.planner.tiers import with_target
from proxy.protocol.providers import ASSUMED, Family, may_add, may_tell_explicit, routing_key
from proxy.protocol.recognition import Recogniser
from proxy.protocol.request import ParsedBody, inset_body
from proxy.protocol.request.element import ToolOrders, in_order
from proxy.protocol.request.message import may_be_signed
from proxy.protocol.request.reader import RequestReader, Route
from proxy.protocol.request.tokens import Encode
from proxy.protocol.request.transcript import (
    RecognisedRequest,
    Transcript,
    head_digest,
    recognise_request,
    tokens_from,
    user_turns,
)
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import Unreadable

_MAX_CACHES = 1024
# The number of sessions whose last positions are kept, so that a request that appends is not numbered from its
# beginning.
_MAX_NATURAL = 256
_PROMOTION: Final[Mapping[str, Literal["ripple", "count"]]] = MappingProxyType(
    {"classic": "ripple", "economic": "count"}
)
# Below this probability that the session continues in time, a system text is split rather than relocated.
_SPLIT_BODY = 0.5


class TierPlanner:
    """Plans requests. All of its state is in memory and bounded."""

    def __init__(
        self,
        encode: Encode,
        recognisers: Sequence[Recogniser],
        policy: str = "economic",
        options: PlannerOptions | None = None,
        memory_bytes: int = 512 * 2**20,
        prefix: str = "s",
    ) -> None:
        """``memory_bytes`` bounds all state except the token counts. ``prefix`` begins the id of every session. Each of
        several processes that share their state has a prefix of its own."""
        self.reader = RequestReader(encode, recognisers, memory_bytes)
        self._policy = policy
        self._options = options or PlannerOptions()
        self.prefix = prefix
        self._sessions = SessionTable(capacity_bytes=memory_bytes // 4, prefix=prefix)
        self._diagnosing = Diagnosing(self._sessions, capacity_bytes=memory_bytes // 64)
        self._caches: Bounded[bytes, ShadowCaches] = Bounded(memory_bytes // 8, ShadowCaches.about_bytes, _MAX_CACHES)
        self._natural: Bounded[str, Layout] = Bounded(memory_bytes // 16, attrgetter("about_bytes"), _MAX_NATURAL)
        self._tool_orders = ToolOrders(capacity_bytes=memory_bytes // 32)
        self._words = FileWords(capacity_bytes=memory_bytes // 64)
        self._fronts = FrontTable(capacity_bytes=memory_bytes // 64)
        self._texts = TurnTexts(capacity_bytes=memory_bytes // 64, again=self._options.texts_again)

    def plan(self, body: bytes, route: Route, mode: Mode, now: float) -> Plan:
        """The plan for one chat request. Raises InvalidRequest if the body is no chat request. Any other error is
        contained, and the client's request is sent as it came."""
        try:
            parsed = self.reader.parse(body)
        except Unreadable as error:
            return as_it_came(body, mode, error)
        incoming = self.read(parsed, route, mode, now)
        return incoming if isinstance(incoming, Plan) else self.decide(incoming).written()

    def read(self, parsed: ParsedBody, route: Route, mode: Mode, now: float) -> IncomingChat | Plan:
        """Read a chat request. Returns a plan at once if nothing is left to decide. Raises InvalidRequest if the body
        is no chat request."""
        try:
            parsed.chat()
        except Unreadable as error:
            return as_it_came(parsed.body, mode, error)
        edits = parsed.edits(route.model)
        original = parsed.edited(edits) if edits else parsed.body
        if mode is Mode.PASSTHROUGH and not may_be_signed(parsed.body):
            flat = _flat(original, route)
            return Plan(flat, flat, mode, Reason.PASSTHROUGH_MODE)
        try:
            transcript = self.reader.read(parsed)
            raw_tools = parsed.members.get("tools")
            own_tools = self.reader.tools.read(raw_tools) if raw_tools is not None else ()
            # A provider keeps accounts, models, and the servers of one name apart.
            account = digest(route.scope.encode(), route.name.encode(), route.model.encode(), route.upstream.encode())
            incoming = IncomingChat(
                parsed,
                transcript,
                own_tools,
                own_tools[0].digest if own_tools else b"",
                edits,
                original,
                route,
                account,
                mode,
                now,
            )
            if not route.repeats:
                return self._inlaid(incoming, self.reader.inlaid(transcript, route)) if route.has_texts else incoming
            return self._with_texts(incoming) if route.has_texts or self._texts.sent else incoming
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            return as_it_came(_flat(original, route), mode, error)

    def _with_texts(self, incoming: IncomingChat) -> IncomingChat:
        """The request with the operator's texts, and with those of earlier turns if they are applied again. The texts
        are in the request whatever is planned: layouts differ, but the words never do."""
        route, transcript = incoming.route, incoming.transcript
        turns = user_turns(incoming.account, transcript, route.moving)
        profile = ASSUMED if route.profile.family is Family.NONE else route.profile
        head = head_digest(transcript, incoming.parsed.members.get("tools"))
        behind = partial(tokens_from, transcript, turns, route.moving, caches_output=profile.caches_output)
        signed = transcript.signed[-1] if transcript.signed else -1
        applied = self._texts.earlier(turns, head, profile, incoming.now, behind, signed)
        inset = self._texts.sent_with(applied.newest) if turns and turns[-1][0] < signed else None
        inset = inset if inset is not None else route.inset
        route = replace(route, earlier={**applied.texts, **route.earlier}, inset=inset)
        if not route.has_texts:
            return replace(incoming, texts=TextsInFlight(applied, route.inset, 0)) if applied.before else incoming
        inlaid = self.reader.inlaid(transcript, route)
        added = sum(inlaid.messages[i].tokens - transcript.messages[i].tokens for i, _ in turns[-1:])
        incoming = self._inlaid(replace(incoming, route=route), inlaid)
        return replace(incoming, texts=TextsInFlight(applied, route.inset, added))

    def _inlaid(self, incoming: IncomingChat, inlaid: Transcript) -> IncomingChat:
        """The request whose original contains the operator's texts, as they are in ``inlaid``."""
        return replace(incoming, original=changes_as_read(incoming, inlaid.messages, incoming.edits).body())

    def state_lookup(self, incoming: IncomingChat) -> StateLookup:
        """Looks for the state that other processes may have stored about a request. Raises Unreadable."""
        route, account, tools = incoming.route, incoming.account, incoming.tools_key
        caches = self._caches_of(incoming)
        return StateLookup(self._sessions, route, incoming.transcript, tools, account, caches, self._fronts)

    def export_state(self, plan: Plan) -> tuple[str, Mapping[str, bytes]]:
        """The state about a settled exchange to store for other processes, and the scope that it belongs to."""
        in_flight = plan.in_flight
        if in_flight is None or in_flight.accepted is None:
            return "", {}
        analysis, caches = in_flight.analysis, self._caches_of(in_flight.analysis.incoming)
        blobs = snapshot(analysis.session, caches, in_flight.accepted.prompt, analysis.own.prompt)
        costs = caches.others.packed(self.prefix, caches.sent_cost, caches.own_cost)
        return analysis.incoming.route.scope, {**blobs, costs_name(analysis.incoming.account): costs}

    def on_accepted(self, plan: Plan, now: float) -> tuple[str, Sequence[str]]:
        """The provider has accepted the prompt: commit the shadow caches. Returns the scope and the names of the layout
        that was sent (``sent_front``)."""
        if (in_flight := plan.in_flight) is None:
            return "", ()
        incoming = in_flight.analysis.incoming
        in_flight.accept(self._caches_of(incoming), now)
        self._caches.used(incoming.account)  # the caches have grown
        form, scope = None if in_flight.sends_own else in_flight.form, incoming.route.scope
        return scope, self._fronts.sent(scope, incoming.transcript, incoming.tools_key, form)

    def sent_front(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """The layouts of these names, to store for other processes. They have to know a layout before the answer to it
        ends, because even a part of the answer may have signed thinking."""
        return self._fronts.packed(names)

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten request, and the client's own request is sent in its place."""
        if plan.in_flight is not None and not plan.in_flight.sends_own:
            plan.in_flight.sends_own = True
            self._diagnosing.compare(plan.in_flight, is_own=True)

    def barred(self, plan: Plan) -> None:
        """The upstream accepted the client's own request after it had refused the rewritten one. From now on the
        planner does not change the requests of this session."""
        self.refused(plan)
        if plan.in_flight is not None:
            analysis = plan.in_flight.analysis
            analysis.session.is_barred = True
            if analysis.key is not None:
                self._caches_of(analysis.incoming).observations.key_was(accepted=False)

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        """Count the exchange once: what the client has changed, how stable each piece is, and what the provider's
        report shows."""
        if (texts := plan.texts) is not None:
            stored = StoredPrompt(now + ASSUMED.life_s)
            if plan.in_flight is not None:
                stored = plan.in_flight.stored(now, is_planned=plan.mode > Mode.OBSERVE)
            self._texts.commit(texts.applied, texts.inset, texts.tokens, stored, now)
        if plan.in_flight is None:
            return PlanResult()
        reported = usage if plan.mode > Mode.OBSERVE or plan.arm == CONTROL else None
        caches = self._caches_of(plan.in_flight.analysis.incoming)
        result = plan.in_flight.complete(caches, reported, now, is_predicted=plan.predicted is not None)
        broke = self._diagnosing.complete(plan.in_flight, usage, result.deviation, plan.price)
        marked = plan.in_flight.as_marked(caches, now) if self._options.prices_mark else None
        return replace(result, broke=broke, marked=marked)

    def refresh_plan(self, plan: Plan, now: float) -> RefreshPlan | None:
        """How to keep alive the prefix that a request that was sent at ``now`` has cached; None if no refresh pays."""
        in_flight = plan.in_flight
        if in_flight is None or in_flight.accepted is None or in_flight.sends_own or plan.mode <= Mode.OBSERVE:
            return None
        analysis = in_flight.analysis
        return refresh_plan(analysis, plan.body, self._caches_of(analysis.incoming).sent, now)

    def kept(self, work: RefreshPlan, now: float) -> None:
        """The upstream accepted a refresh: its cost counts as the proxy's cost, and the prefix that it has read stays
        cached."""
        caches = self._caches.get(work.scope)
        if caches is not None:
            caches.sent_cost += cost_of(work.profile, caches.sent.bill(work.prompt, now))
            caches.sent.store(work.prompt, now, now)
            self._caches.used(work.scope)

    def decide(self, incoming: IncomingChat, lookup: StateLookup | None = None) -> Plan:
        """The plan, whose body may still have to be written. Internal errors of the proxy are contained. ``lookup``
        knows the session of the request."""
        incoming = incoming if lookup is None else replace(incoming, place=lookup.place)
        try:
            if incoming.transcript.signed:
                incoming = self._bound(incoming)
            if incoming.mode is Mode.PASSTHROUGH:
                plan = Plan(incoming.original, incoming.original, incoming.mode, Reason.PASSTHROUGH_MODE)
            elif incoming.route.profile.family is Family.NONE:
                plan = self._decide_order(incoming)
            else:
                plan = self._decide_layout(incoming)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            plan = as_it_came(incoming.original, incoming.mode, error)
        if incoming.front and plan.surprise is None:
            plan = replace(plan, reason=Reason.SIGNED_THINKING, changes=incoming.bound)
        return plan if incoming.texts is None else replace(plan, texts=incoming.texts)

    def _bound(self, incoming: IncomingChat) -> IncomingChat:
        """The request with everything in front of its signed thinking in the form in which it was sent before."""
        transcript, route, parsed = incoming.transcript, incoming.route, incoming.parsed
        tools = incoming.own_tools
        still, form = self._fronts.bound(route.scope, transcript, incoming.tools_key)
        incoming = replace(incoming, still=still)
        if form is None:
            return incoming
        steady = None
        if tools:
            steady = self._steady_tools(replace(incoming, mode=Mode.TIER, still=0))
            if form.tools:
                steady = in_order(bytes(parsed.members["tools"]), tools[0], form.tools) or steady
        tools = (*tools, *self.reader.tools.read(steady))
        messages = self.reader.inlaid(seen_volatile(transcript, form.regions), route).messages
        front = laid_out_again(messages[: form.count], tools, form.elements, self.reader.counter)
        if front is None:
            return incoming
        steady = steady if steady is not None and front[0] is tools[-1] else None
        incoming = replace(incoming, laid_out=form.count, front=front, tools=steady)
        changes = {**incoming.edits, **({"tools": steady} if steady is not None else {})}
        bound = changes_as_read(incoming, messages, changes)
        return replace(incoming, original=bound.body(), bound=bound)

    def _decide_order(self, incoming: IncomingChat) -> Plan:
        """Plan for an upstream whose cache is not known. The plan is an order only, without markers or figures, as for
        a prefix cache that reads at half the price. A client that sets markers knows its upstream better, so its
        request is left unchanged: the text in front of a marker may be stored as it is, and behind the last marker
        there is mostly nothing to move."""
        original, mode, route = incoming.original, incoming.mode, incoming.route
        is_marked = written_marks(incoming.parsed.members, incoming.transcript, route.profile.dialect)[0] > 0
        if mode < Mode.TIER or is_marked:
            reason = Reason.MARKS_WITHOUT_PROFILE if is_marked else Reason.NO_PROFILE
            return Plan(original, original, mode, reason)
        plan = self._decide_layout(replace(incoming, route=replace(route, profile=ASSUMED)))
        is_same = plan.reason in (Reason.CLIENT_OPTIMAL, Reason.NATURAL_ORDER)
        return replace(plan, predicted=None, own=None, reason=Reason.NO_PROFILE if is_same else plan.reason)

    def _decide_layout(self, incoming: IncomingChat) -> Plan:
        """The plan that follows from the analysis, and from anything that forbids carrying it out."""
        caches = self._caches_of(incoming)
        believed = caches.believed(incoming.route.profile, incoming.now)
        if believed is not incoming.route.profile:
            incoming = replace(incoming, route=replace(incoming.route, profile=believed))
        analysis = self._analyse(incoming, caches)
        mode, now, own, choice = incoming.mode, incoming.now, analysis.own, analysis.choice
        is_planned = mode > Mode.OBSERVE
        is_drawn = is_planned and self._options.holdout > 0
        is_control = is_drawn and self._options.is_control(incoming.route.scope, analysis.session.opening)
        predicted, sends_own = choice.bill, is_control
        stands_down = analysis.passthrough_reason(ignores_markers=now < caches.observations.ignored_until)
        reason = stands_down or (analysis.reason() if is_planned else Reason.OBSERVE_MODE)
        if stands_down is Reason.BELOW_MINIMUM and mode is Mode.TIER and own.has_foreign_marks:
            # Send the client's order, without the markers that the provider refuses.
            natural = Layout(choice.layout.seed, analysis.elements.natural)
            analysis = replace(analysis, choice=replace(choice, layout=natural, marks={}, reason=stands_down))
        elif stands_down is not None:
            sends_own = True
        is_written = is_planned and not sends_own
        if is_written:
            if mode is Mode.TIER and reason in CHANGES_NOTHING and own.has_foreign_marks:
                reason = Reason.MARKERS_REMOVED
            key = self._routing(incoming, analysis.session, caches.observations)
            analysis = replace(analysis, key=key) if key is not None else analysis
        elif is_planned:
            predicted = own.sent_bill
        in_flight = InFlight(analysis, sends_own, self._form(incoming, analysis) if is_written else None)
        self._diagnosing.compare(in_flight, is_own=sends_own or not is_planned)
        return Plan(
            body=incoming.original,
            original=incoming.original,
            mode=Mode.OBSERVE if is_control else mode,
            reason=Reason.HOLD_OUT if is_control else reason,
            predicted=predicted,
            own=own.bill,
            tier_tokens=analysis.tier_tokens() if analysis.recognised.items and not is_control else {},
            segment_tokens={} if is_control else segment_tokens(choice),
            arm=(CONTROL if is_control else TREATED) if is_drawn else "",
            session=analysis.session.id,
            client=incoming.transcript.client,
            headers=(analysis.key,) if analysis.key is not None and not analysis.is_key_in_body else (),
            in_flight=in_flight,
            write=partial(planned_changes, analysis) if is_written else None,
        )

    def _form(self, incoming: IncomingChat, analysis: PlanAnalysis) -> SentForm | None:
        """The form in which the request is sent; None if that is the form in which the client sent it."""
        layout, natural, steady = analysis.choice.layout, analysis.own.natural, analysis.steady_tools
        if layout.digests == natural.digests and (steady is None or incoming.front):
            return None
        count = len(incoming.transcript.messages)
        key = key_of(incoming.transcript, incoming.tools_key, count)
        ordered = [part.digest for part in analysis.elements.tools[0].parts] if steady is not None else ()
        return SentForm(count, key, digests_on_wire(layout), analysis.regions, tuple(ordered))

    def _analyse(self, incoming: IncomingChat, caches: ShadowCaches) -> PlanAnalysis:
        """Recognise the request, forecast the next one, and choose among the candidates."""
        profile, tools = incoming.route.profile, incoming.own_tools
        steady = self._steady_tools(incoming) if tools else None
        tools_key = incoming.tools_key
        if steady is not None:
            tools = self.reader.tools.read(steady)
            tools_key = tools[0].digest
        session, place = self._session_of(incoming, tools_key)
        is_movable, front = session.rendered_anew.__contains__, incoming.front
        recognised = recognise_request(place.transcript, is_movable, incoming.route.moving, incoming.still)
        observation = read_request(session, recognised, tools_key, incoming.now)
        has_spans, hoists = profile.stores_prefixes, profile.hoists_system
        elements = request_elements(recognised, tools, self.reader.counter, has_spans=has_spans, hoists_system=hoists)
        if front:
            elements = begun_with(elements, front, incoming.laid_out, incoming.still)
        pieces = NO_PIECES
        if recognised.groups or recognised.system:
            pieces = piece_forecast(session, observation, recognised, elements, self._words, is_stored=has_spans)
        seed = seed_of(incoming.parsed.members, profile, incoming.account, has_media=incoming.transcript.media_at >= 0)
        # Positions that the session's previous request had, too, are taken over from it.
        natural = came = Layout(seed, elements.natural, self._natural.get(session.id))
        self._natural.put(session.id, natural)
        # The cost of the client's own request is computed with its tools as the client sent them.
        if steady is not None and not front:
            came = Layout(seed, (*incoming.own_tools, *elements.natural[len(tools) :]))
        own = own_request(incoming, natural, came, caches)
        expected = partial(forecast_of, session, observation, recognised, pieces, profile)
        pricing = cache(lambda: pricing_of(incoming, session, observation, expected, own, caches, self._policy))
        if natural.total < profile.least_marked and not elements.groups:
            # The provider stores nothing of this request, whatever is chosen.
            choice, judged = Choice(natural, own.marks, Reason.CLIENT_OPTIMAL, own.sent_bill, 0.0), None
        else:
            choice, judged = self._choose(incoming, session, recognised, elements, own, pricing())
        return PlanAnalysis(
            incoming=incoming,
            session=session,
            observation=observation,
            recognised=recognised,
            elements=elements,
            own=own,
            choice=choice,
            pieces=pieces,
            pricing=pricing,
            profile=profile,
            turns_before=session.turns,
            steady_tools=steady,
            natural=judged,
            regions=place.regions,
        )

    def _steady_tools(self, incoming: IncomingChat) -> bytes | None:
        """The tools as this client first sent them, if these are the same tools in another order or form. There must be
        tools."""
        tools = incoming.own_tools
        if not self._options.steady_tools or incoming.mode is Mode.MARK or incoming.still:
            return incoming.tools
        return self._tool_orders.steady(incoming.account, tools[0].digest, bytes(incoming.parsed.members["tools"]))

    def _session_of(self, incoming: IncomingChat, tools_key: bytes) -> tuple[Session, SessionKeys]:
        """The session of a request, and the keys by which it was found. Their transcript holds the messages as the
        session reads them: the volatile lines that it knows are recognised, and the operator's texts are included."""
        route, came = incoming.route, incoming.transcript
        place = self._sessions.place(route.scope, route.named, route.hint, came, tools_key, incoming.place)
        session = self._sessions.find(place)
        if place.transcript.recognised or session.candidates:
            session.notice(place.transcript)
        tracker = session.tracker
        if not session.requests:
            tracker.policy = with_target(tracker.policy, route.profile.min_tokens)
        # Under a policy that orders by price, tiers only serve to inform people.
        if tracker.policy.promotion != _PROMOTION[self._policy]:
            tracker.policy = replace(tracker.policy, promotion=_PROMOTION[self._policy])
        if route.has_texts:
            place = replace(place, transcript=self.reader.inlaid(place.transcript, route))
        return session, place

    def _choose(
        self,
        incoming: IncomingChat,
        session: Session,
        recognised: RecognisedRequest,
        elements: RequestElements,
        own: OwnRequest,
        pricing: Pricing,
    ) -> tuple[Choice, Candidate]:
        """The choice that is sent, and the client's own order as it was judged."""
        route, mode, natural = incoming.route, incoming.mode, own.natural
        may_order = mode is not Mode.MARK
        # A split may pay if nothing may move, or if hardly any request is expected that would read the text behind a
        # relocated line. Otherwise it saves a few tokens now, but every later request reads less.
        may_split = not may_order or (self._policy == "economic" and pricing.forecast.body < _SPLIT_BODY)
        inputs = CandidateInputs(
            own,
            elements,
            moved_elements(recognised, elements, self.reader.counter) if recognised.system and may_order else None,
            session,
            split_layout(recognised, natural, self.reader.counter) if recognised.system and may_split else None,
            may_tell_explicit(route.profile, incoming.parsed.members, route.server),
        )
        judged = pricing.read(natural, is_natural=True)
        return choose(inputs, judged, pricing, may_order=may_order, policy=self._policy), judged

    def _routing(
        self, incoming: IncomingChat, session: Session, observations: ProviderObservations
    ) -> tuple[str, str] | None:
        """The key that keeps this conversation, or all conversations that begin like it, together at the provider, with
        its name. None if no key is sent."""
        route, routing = incoming.route, incoming.route.profile.routing
        if routing is None or not self._options.routing_keys or not observations.takes_keys:
            return None
        is_hinted = route.is_told and bool(route.hint)
        if not may_add(route.profile, incoming.parsed.members, route.server, is_hinted=is_hinted):
            return None
        by_prefix = routing.by_prefix and not session.cohort.is_busy()
        name = session.cohort.key if by_prefix else session.opening
        session.routing = session.routing or routing_key(route.scope, name)
        return routing.name, session.routing

    def _caches_of(self, incoming: IncomingChat) -> ShadowCaches:
        caches = self._caches.get(incoming.account)
        if caches is None:
            caches = ShadowCaches.of(incoming.route.profile)
            self._caches.put(incoming.account, caches)
        else:
            self._caches.move_to_end(incoming.account)
        return caches


def _flat(original: bytes, route: Route) -> bytes:
    """The client's request with the operator's texts in it, for requests whose messages are not read. The request stays
    as it is if its messages cannot be found at all."""
    try:
        return inset_body(original, route.inset, route.earlier)
    except Unreadable:
        return original

"""Connects the engine's ports with the pure planner: builds the route, reports what was contained.

A large request is planned in three steps. It is read and tokenised beside the event loop (``proxy.aside``), by readers
that are its own; it is decided on the event loop, which alone holds the planner's state, in a time that grows with the
number of messages and pieces (both are bounded) and not with their bytes; and it is written beside the event loop. The
result is what one step would give: nothing in it depends on how long anything took. A small request takes the same
steps, all of them on the event loop, and never waits for a large one.
"""

import logging
from collections.abc import Sequence
from functools import partial

from msgspec import Raw

from proxy.aside import LARGE_BYTES, Aside
from proxy.core.modes import Mode
from proxy.core.planner.keep_alive import RefreshPlan
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.reasons import Reason
from proxy.core.request.body_cache import ParsedBody
from proxy.core.request.route import Route
from proxy.core.response.usage import Usage
from proxy.core.wire.json_body import Unreadable
from proxy.errors import InvalidRequest
from proxy.planning.layout_state import SharedLayoutStore
from proxy.ports import Deployment, Principal

_log = logging.getLogger("stratiform")

# About 5 ms of reading and tokenising: below that a thread costs more than it spares.
_LARGE_BYTES = 400_000


class Planning:
    """Implements ``ports.Planner``. ``state`` is what other workers, and the next start, share; None: nothing."""

    def __init__(
        self, planner: TierPlanner, state: SharedLayoutStore | None = None, aside: Aside | None = None
    ) -> None:
        self._planner = planner
        self._state = state
        self._aside = aside or Aside()
        self._advised: set[str] = set()

    def cut(self, body: bytes) -> ParsedBody:
        """The body, cut with the help of what was cut before. Raises InvalidRequest, Unreadable."""
        return self._planner.cut(body)

    async def prepare(
        self,
        body: bytes,
        deployment: Deployment,
        principal: Principal,
        mode: Mode,
        now: float,
        cut: ParsedBody | None,
    ) -> None:
        """Read what is large and new in another thread, for tokenising it here would hold up every other client; and
        let the planner know what other workers know of this request's session."""
        if cut is None or mode is Mode.PASSTHROUGH or "messages" not in cut.members:
            return
        await self._read_ahead(body, cut)
        if self._state is not None:
            try:
                wanted = self._planner.state_lookup(body, _route(deployment, principal), cut)
            except (InvalidRequest, Unreadable):
                # The planner will meet it again and say so.
                return
            await self._state.recall(principal.scope, wanted, now, len(body))

    async def _read_ahead(self, body: bytes, cut: ParsedBody) -> None:
        if len(body) >= LARGE_BYTES:
            size = len(body)
        else:
            try:
                messages = cut.unread()
            except Unreadable:
                return
            size = _size(messages)
            if size < _LARGE_BYTES or _size(self._planner.unread(messages)) < _LARGE_BYTES:
                return
        ahead = self._planner.ahead(cut)
        await self._aside.run(size, ahead.run)
        self._planner.bring_back(ahead)

    def plan(
        self,
        body: bytes,
        deployment: Deployment,
        principal: Principal,
        mode: Mode,
        now: float,
        cut: ParsedBody | None = None,
    ) -> Plan:
        """The plan for one chat request, its body perhaps still to be written. Raises InvalidRequest where the body is
        no chat request."""
        plan = self._planner.decide(body, _route(deployment, principal), mode, now, cut)
        if plan.reason is Reason.MARKS_WITHOUT_PROFILE:
            self._advise(deployment)
        return plan

    def _advise(self, deployment: Deployment) -> None:
        """Say once what would help the clients of an entry of the model list."""
        entry = deployment.entry or deployment.name
        if entry not in self._advised:
            self._advised.add(entry)
            _log.warning(
                "model %s: clients mark their prompts for a cache, and no cache profile is known of this upstream: "
                "their requests go as they came. Set model_info.cache_profile (or --cache-profile) to anthropic, or to "
                "what else the upstream follows, and markers are placed for them",
                entry,
            )

    async def written(self, plan: Plan) -> Plan:
        """The plan with its body: a large one is written beside the event loop."""
        if plan.writing is not None and len(plan.original) >= LARGE_BYTES:
            plan = await self._aside.run(len(plan.original), partial(self._planner.written, plan))
        else:
            plan = self._planner.written(plan)
        if plan.surprise is not None:
            # The type and place only: a message could quote the prompt.
            _log.error("planning failed, request sent as it came: %s", _place(plan.surprise))
        return plan

    def began(self, plan: Plan, now: float) -> None:
        """The upstream accepted the request: commit the shadow cache."""
        self._planner.began(plan, now)

    def refresh_plan(self, plan: Plan, now: float) -> RefreshPlan | None:
        """How to keep alive what a request that was sent at ``now`` has cached; None where nothing would pay."""
        return self._planner.refresh_plan(plan, now)

    def kept(self, work: RefreshPlan, now: float) -> None:
        """The upstream accepted a refresh."""
        self._planner.kept(work, now)

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten body: the original is sent in its place."""
        self._planner.refused(plan)

    def barred(self, plan: Plan) -> None:
        """The upstream took the original of what it had refused: bar rewrites for the session."""
        self._planner.barred(plan)

    def settled(self, plan: Plan, usage: Usage | None, now: float) -> None:
        """The exchange ended well: count it once, and leave what it taught for other workers."""
        self._planner.settled(plan, usage, now)
        if self._state is not None:
            scope, blobs = self._planner.export_state(plan)
            self._state.keep(scope, blobs, now)

    async def aclose(self) -> None:
        """Write what waits to be written."""
        self._aside.close()
        if self._state is not None:
            await self._state.aclose()


def _route(deployment: Deployment, principal: Principal) -> Route:
    return Route(
        scope=principal.scope,
        name=deployment.name,
        model=deployment.model,
        profile=deployment.profile,
        hint=principal.session_hint,
        reminder=deployment.reminder,
        upstream=deployment.id,
        server=deployment.server,
    )


def _size(messages: Sequence[Raw]) -> int:
    return sum(len(raw) for raw in messages)


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    return f"{type(error).__name__} at {where}"

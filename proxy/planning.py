"""Connects the engine's ports with the pure planner: builds the route, reports what was contained."""

import asyncio
import logging
from collections.abc import Sequence

from msgspec import Raw

from proxy.core.cut import Cut
from proxy.core.keep_alive import Upkeep
from proxy.core.message import MessageReader
from proxy.core.modes import Mode
from proxy.core.plan import Plan, Route
from proxy.core.planner import TierPlanner
from proxy.core.usage import Usage
from proxy.core.wire import Unreadable
from proxy.errors import InvalidRequest
from proxy.layout_state import LayoutState
from proxy.ports import Deployment, Subject

_log = logging.getLogger("stratiform")

# About 5 ms of reading and tokenising: below that a thread costs more than it spares.
_LARGE_BYTES = 400_000


class Planning:
    """Implements ``ports.Planner``. ``state`` is what other workers, and the next start, share; None: nothing."""

    def __init__(self, planner: TierPlanner, state: LayoutState | None = None) -> None:
        self._planner = planner
        self._state = state

    def cut(self, body: bytes) -> Cut:
        """The body, cut with the help of what was cut before. Raises InvalidRequest, Unreadable."""
        return self._planner.cut(body)

    async def prepare(
        self,
        body: bytes,
        deployment: Deployment,
        subject: Subject,
        mode: Mode,
        now: float,
        cut: Cut | None,
    ) -> None:
        """Read what is large and new in another thread, for tokenising it here would hold up every other client; and
        let the planner know what other workers know of this request's session."""
        if cut is None or mode is Mode.PASSTHROUGH or "messages" not in cut.members:
            return
        await self._read_ahead(cut)
        if self._state is not None:
            try:
                wanted = self._planner.lookout(body, _route(deployment, subject), cut)
            except (InvalidRequest, Unreadable):
                # The planner will meet it again and say so.
                return
            await self._state.recall(subject.scope, wanted, now)

    async def _read_ahead(self, cut: Cut) -> None:
        try:
            messages = cut.unread()
        except Unreadable:
            return
        if _size(messages) < _LARGE_BYTES:
            return
        unread = self._planner.unread(messages)
        if _size(unread) >= _LARGE_BYTES:
            reader = self._planner.reading_room()
            await asyncio.to_thread(_read_all, reader, unread)
            self._planner.bring_back(reader)

    def plan(
        self,
        body: bytes,
        deployment: Deployment,
        subject: Subject,
        mode: Mode,
        now: float,
        cut: Cut | None = None,
    ) -> Plan:
        """The plan for one chat request. Raises InvalidRequest where the body is no chat request."""
        plan = self._planner.plan(body, _route(deployment, subject), mode, now, cut)
        if plan.surprise is not None:
            # The type and place only: a message could quote the prompt.
            _log.error("planning failed, request sent as it came: %s", _place(plan.surprise))
        return plan

    def began(self, plan: Plan, now: float) -> None:
        """The upstream accepted the request: commit the shadow cache."""
        self._planner.began(plan, now)

    def upkeep(self, plan: Plan, now: float) -> Upkeep | None:
        """How to keep alive what a request that was sent at ``now`` has cached; None where nothing would pay."""
        return self._planner.upkeep(plan, now)

    def kept(self, work: Upkeep, now: float) -> None:
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
            scope, blobs = self._planner.handed(plan)
            self._state.keep(scope, blobs, now)

    async def aclose(self) -> None:
        """Write what waits to be written."""
        if self._state is not None:
            await self._state.aclose()


def _route(deployment: Deployment, subject: Subject) -> Route:
    return Route(
        scope=subject.scope,
        name=deployment.name,
        model=deployment.model,
        profile=deployment.profile,
        hint=subject.session_hint,
        reminder=deployment.reminder,
        upstream=deployment.id,
        server=deployment.server,
    )


def _read_all(reader: MessageReader, messages: Sequence[Raw]) -> None:
    for raw in messages:
        try:
            reader.read(raw)
        except Unreadable:
            # The planner will meet it again and say so.
            return


def _size(messages: Sequence[Raw]) -> int:
    return sum(len(raw) for raw in messages)


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    return f"{type(error).__name__} at {where}"

"""Implements the engine's planner port with the pure planner: builds the route, and reports contained errors.

A large request is planned in three steps. First, it is read and tokenised beside the event loop (``proxy.tasks``), by
readers of its own. Second, the layout is decided on the event loop, which alone holds the planner's state. The time for
that grows with the number of messages and pieces (both are bounded), and not with their bytes. Third, the request is
written beside the event loop. The result is the same as that of a single step: nothing in it depends on how long
anything took. A small request takes the same steps, all of them on the event loop, and never waits for a large one.

The file of fingerprints: what was sent, as keyed digests and sizes, a line for each request.

All workers of a host append to one file. Its key is in a file beside it and is made at the same time. Only the user
that runs the proxy can read the two files. Lines are written beside the event loop. If the disk is full or slow, lines
are lost, but no request fails or waits.
"""

import asyncio
import errno
import fcntl
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from proxy.core.diagnosis.record import VERSION, Fingerprint, line_of
from proxy.core.modes import Mode
from proxy.core.money.prices import Price, cost
from proxy.core.planner.in_flight import PlanResult
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.reasons import Reason
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.reader import Route
from proxy.core.response.usage import Usage
from proxy.core.structured.chat import AssembledChat
from proxy.core.wire.json_body import Unreadable
from proxy.engine.suppress import place_of, suppress_and_log
from proxy.errors import InvalidRequest
from proxy.planning.compactions import Compactions
from proxy.planning.layout_state import SharedLayoutStore
from proxy.planning.structured import StructuredChats
from proxy.planning.windows import read_ahead
from proxy.ports import Deployment, PlanRequest, Principal
from proxy.storage.private_file import make_private, tighten
from proxy.tasks import Aside, Tasks, drain, spawn

MOST_BYTES = 1 << 30
"""A larger file is renamed to ``.1`` and replaces an earlier ``.1``. A new file is begun in its place."""
_MOST_WAITING = 256
_KEY_BYTES = 32

_log = logging.getLogger("stratiform")


class FingerprintFile:
    """Appends to the file of this path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = b""
        self._waiting: deque[Fingerprint] = deque(maxlen=_MOST_WAITING)
        self._writing: Tasks = set()
        self._has_failed = False

    def add(self, plan: Plan, usage: Usage | None) -> None:
        """Write a request that was planned and answered. If more lines wait than the disk takes, the oldest are
        lost."""
        if plan.in_flight is None or plan.in_flight.sent is None:
            return
        analysis, is_told = plan.in_flight.analysis, usage is not None and not usage.estimated
        self._waiting.append(
            Fingerprint(
                v=VERSION,
                session=plan.session,
                model=analysis.route.name,
                record=plan.in_flight.sent.record,
                client=plan.client,
                profile=analysis.profile.name,
                tokens=(usage.prompt, usage.output, usage.read, usage.write_5m, usage.write_1h)
                if usage is not None and is_told
                else None,
                cost_usd=cost(usage, plan.price).total_usd if usage is not None and plan.price is not None else None,
            )
        )
        if all(task.done() for task in self._writing):  # the set still holds a task that has just ended
            spawn(self._write_all(), self._writing)

    async def aclose(self) -> None:
        await drain(self._writing)

    async def _write_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            await asyncio.to_thread(self._write, batch)

    def _write(self, batch: Sequence[Fingerprint]) -> None:
        try:
            self._key = self._key or _key_of(self._path)
            self._make_room()
            lines = b"".join(line_of(fingerprint, self._key) for fingerprint in batch)
            make_private(self._path)
            with open(self._path, "ab", buffering=0) as file:
                # A line that was written only in part ends here, so that the next line can be read.
                whole = b"\n" * self._has_failed + lines
                if file.write(whole) < len(whole):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("fingerprints cannot be written to %s: %s", self._path, error.strerror or error)
            self._has_failed = True

    def _make_room(self) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size <= MOST_BYTES:
                return
            with open(_key_file(self._path), "rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                # Another worker may have renamed the file meanwhile: the new file must not replace the full one.
                if self._path.stat().st_size > MOST_BYTES:
                    self._path.replace(self._path.with_name(f"{self._path.name}.1"))


def _key_of(path: Path) -> bytes:
    """The key beside the file. It is made if there is none. If two processes make one at the same time, the first one's
    key is used. Raises OSError, also for a key that is too short to keep anything secret."""
    file = _key_file(path)
    with suppress(FileNotFoundError):
        tighten(file)
        return _read(file)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = file.with_name(f"{file.name}.{os.getpid()}")
    make_private(mine)
    mine.write_bytes(secrets.token_bytes(_KEY_BYTES))
    with suppress(FileExistsError):
        os.link(mine, file)
    mine.unlink()
    return _read(file)


def _key_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.key")


def _read(file: Path) -> bytes:
    key = file.read_bytes()[:_KEY_BYTES]
    if len(key) < _KEY_BYTES:
        raise OSError(errno.EINVAL, f"{file} is no key: remove it, and a new one is made")
    return key


_log = logging.getLogger("stratiform")


class Planning:
    """Implements ``ports.Planner``. ``state`` is shared with other workers and with the next start; None: nothing is
    shared."""

    def __init__(
        self,
        planner: TierPlanner,
        state: SharedLayoutStore | None = None,
        aside: Aside | None = None,
        structured: StructuredChats | None = None,
        price_of: Callable[[Deployment], Price | None] = lambda deployment: None,
        fingerprints: FingerprintFile | None = None,
    ) -> None:
        """``planner`` is the pure planner. ``structured`` assembles structured context; None: a request with structured
        context is refused. ``price_of`` tells a model's price, in USD a token. ``fingerprints`` is the file that takes
        the digests of what is sent; None: no digests are written."""
        self.pure = planner
        self._structured = structured
        self.state = state
        self._aside = aside or Aside()
        self._advised: set[str] = set()
        self._price_of = price_of
        self._fingerprints = fingerprints

    @property
    def compactions(self) -> Compactions | None:
        """The compactions of conversations. None if compaction is not allowed."""
        return self._structured.compactions if self._structured is not None else None

    def parse(self, body: bytes) -> ParsedBody:
        """The body, parsed with the help of earlier requests."""
        return self.pure.reader.parse(body)

    async def assemble(
        self,
        sent: ParsedBody,
        principal: Principal,
        now: float,
        *,
        keeps_state: bool = True,
        own_count: int | None = None,
    ) -> AssembledChat:
        """The request with its structured context as messages. Raises InvalidRequest, MissingContent."""
        if self._structured is None:
            raise InvalidRequest(
                "this proxy assembles no structured context: send the context as messages, and leave out 'stratiform'",
                param="stratiform",
                code="structured_form_unavailable",
            )
        return await self._structured.assemble(sent, principal, now, keeps_state=keeps_state, own_count=own_count)

    async def breakdown(self, assembled: AssembledChat, deployment: Deployment, mode: Mode) -> Mapping[str, object]:
        """The parts of which the request would consist at this deployment, and their tiers. Nothing is sent or
        counted."""
        assert self._structured is not None
        return await self._structured.breakdown(assembled, deployment, mode)

    async def tokens(self, parsed: ParsedBody) -> int | None:
        """About how many tokens the messages and tools of a chat request have. None if they cannot be read."""
        with suppress_and_log("planner.read_ahead"):
            await read_ahead(self.pure.reader, self._aside, parsed)
        reader = self.pure.reader
        try:
            parsed.chat()
            messages, tools = reader.read(parsed).messages, reader.tools.read(parsed.members.get("tools"))
        except (Unreadable, InvalidRequest):
            return None  # the planner meets the same error, and tells the client
        return sum(message.tokens for message in messages) + sum(tool.tokens for tool in tools)

    async def plan(self, request: PlanRequest) -> Plan:
        """The plan for one chat request. Raises InvalidRequest if the body is no chat request."""
        parsed, mode, now = request.parsed, request.mode, request.now
        route = _route(request)
        if request.assembled is not None and self._structured is not None:
            plan = await self._plan_assembled(request.assembled, request, route)
        else:
            plan = await self._plan(parsed, route, mode, now, has_body=request.has_body)
        if plan.reason is Reason.MARKS_WITHOUT_PROFILE:
            self._advise(request.deployment)
        if plan.surprise is not None:
            # Only the type and the place are logged: a message could quote the prompt.
            _log.error("planning failed, request sent as it came: %s", place_of(plan.surprise))
        return replace(plan, price=self._price_of(request.deployment)) if plan.in_flight is not None else plan

    async def _plan_assembled(self, chat: AssembledChat, request: PlanRequest, route: Route) -> Plan:
        """The plan of a request with structured context. If the tiers decide the layout, the planner only observes it.
        A refused request is retried with the arrangement's fallback."""
        assert self._structured is not None
        mode, now = request.mode, request.now
        arranged = await self._structured.arrange(chat, request.deployment, mode)
        parsed = request.parsed if arranged.body is chat.body else await self._parsed(arranged.body)
        plan = await self._plan(parsed, replace(route, moving=arranged.moving), arranged.mode, now)
        if arranged.fallback is arranged.body:
            return arranged.concluded(plan, mode)
        flat = request.parsed if arranged.fallback is chat.body else await self._parsed(arranged.fallback)
        original = self.pure.read(flat, route, Mode.OBSERVE, now).original
        if plan.reason is Reason.BARRED:
            return replace(arranged.concluded(plan, mode), body=original, original=original, reason=Reason.BARRED)
        return replace(arranged.concluded(plan, mode), original=original)

    async def _parsed(self, body: bytes) -> ParsedBody:
        """The parsed body. A large body is parsed beside the event loop."""
        return await self._aside.run_large(len(body), self.parse, body)

    async def _plan(self, parsed: ParsedBody, route: Route, mode: Mode, now: float, *, has_body: bool = True) -> Plan:
        with suppress_and_log("planner.read_ahead"):
            await read_ahead(self.pure.reader, self._aside, parsed)
        incoming = self.pure.read(parsed, route, mode, now)
        if isinstance(incoming, Plan):
            return incoming
        lookup = None
        if self.state is not None:
            with suppress_and_log("planner.recall"), suppress(Unreadable):  # the planner meets the same error
                lookup = self.pure.state_lookup(incoming)
                await self.state.recall(route.scope, lookup, now, len(parsed.body))
        plan = self.pure.decide(incoming, lookup)
        if plan.write is None:
            return plan
        return await self._aside.run_large(len(plan.original), partial(plan.written, has_body=has_body))

    def _advise(self, deployment: Deployment) -> None:
        """Log once for each entry of the model list what would help its clients."""
        entry = deployment.entry or deployment.name
        if entry not in self._advised:
            self._advised.add(entry)
            _log.warning(
                "model %s: clients mark their prompts for a cache, and no cache profile is known of this upstream: "
                "their requests go as they came. Set model_info.cache_profile (or --cache-profile) to anthropic, or to "
                "what else the upstream follows, and markers are placed for them",
                entry,
            )

    def on_accepted(self, plan: Plan, now: float) -> None:
        """The upstream accepted the request: commit the changes to the shadow cache, and store its layout."""
        self.pure.on_accepted(plan, now)
        if self.state is not None:
            scope, blobs = self.pure.export_front(plan)
            self.state.keep(scope, blobs, now)

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten body: the original is sent in its place."""
        self.pure.refused(plan)

    def barred(self, plan: Plan) -> None:
        """The upstream accepted the original after it had refused the rewritten body: bar rewrites for the session."""
        self.pure.barred(plan)

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        """The exchange ended well: count it once, and store what was learnt from it for other workers."""
        result = self.pure.on_completed(plan, usage, now)
        if plan.counted is not None:
            result = replace(result, moves=plan.counted(usage))
        if self._fingerprints is not None:
            self._fingerprints.add(plan, usage)
        if self.state is not None:
            scope, blobs = self.pure.export_state(plan)
            self.state.keep(scope, blobs, now)
        return result

    async def aclose(self) -> None:
        """Write what waits to be written."""
        if self._structured is not None:
            await self._structured.aclose()
        if self._fingerprints is not None:
            await self._fingerprints.aclose()
        self._aside.close()
        if self.state is not None:
            await self.state.aclose()


def _route(request: PlanRequest) -> Route:
    deployment, principal, inset = request.deployment, request.principal, request.inset
    if request.mode is not Mode.PASSTHROUGH:
        # The model's reminder is left out only in a mode that the operator has set for the model.
        inset = inset.followed_by(deployment.reminder)
    return Route(
        scope=principal.scope,
        name=deployment.name,
        model=deployment.model,
        profile=deployment.profile,
        hint=principal.session_hint,
        inset=inset,
        upstream=deployment.id,
        server=deployment.server,
        repeats=request.repeats_texts,
    )

"""Implements the engine's planner port with the pure planner, for plain requests and for structured context.

A large request is planned in three steps. First, it is read and tokenised beside the event loop (``proxy.kit.tasks``),
by readers of its own. Second, the layout is decided on the event loop, which alone holds the planner's state. The time
for that grows with the number of messages and pieces (both are bounded), and not with their bytes. Third, the request
is written beside the event loop. The result is the same as that of a single step: nothing in it depends on how long
anything took. A small request takes the same steps, all of them on the event loop, and never waits for a large one.

A request with structured context is assembled before, in the same way: ``StructuredChats`` does large work beside the
event loop, and touches state only on the event loop.

What was sent is also written into a file of fingerprints, if the operator asks for it: as keyed digests and sizes, a
line for each request. All workers of a host append to one file. Its key is in a file beside it and is made at the same
time. Only the user that runs the proxy can read the two files. Lines are written beside the event loop. If the disk is
full or slow, lines are lost, but no request fails or waits.
"""

import asyncio
import errno
import fcntl
import logging
import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from proxy.context import SymbolMap
from proxy.context.blocks import Circumstances, shown
from proxy.context.panels.board import Board
from proxy.context.session import AssembledChat, Dialogue, filled
from proxy.engine.exchange import Principal
from proxy.engine.ports import PlanRequest
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import InvalidRequest, MissingContent
from proxy.kit.modes import Mode, Reason
from proxy.kit.tasks import LARGE_BYTES, OBJECT_BYTES, Aside, Tasks, drain, place_of, spawn, suppress_and_log, work_in
from proxy.models import Deployment
from proxy.planner import TierPlanner
from proxy.planner.candidates import IncomingChat
from proxy.planner.plan import Plan, PlanResult
from proxy.planner.record import VERSION, Fingerprint, line_of
from proxy.planner.tiers import Change
from proxy.protocol.prices import Price, cost
from proxy.protocol.request import ParsedBody
from proxy.protocol.request.reader import RequestReader, Route
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import MOST_ELEMENTS, TooMany, Unreadable
from proxy.services import ModelFacts
from proxy.services.context_assembler import Arrangement, ContextAssembler, Resolved, SentContext
from proxy.services.context_sessions import CompactionOutcome, Compactions, SessionStore, TextStore
from proxy.services.layout_state import SharedLayoutStore
from proxy.storage.database import make_private, tighten

# About 5 ms of reading and tokenising. For less, a thread costs more time than it saves.
_LARGE_BYTES = 400_000
MOST_BYTES = 1 << 30
"""A larger file is renamed to ``.1`` and replaces an earlier ``.1``. A new file is begun in its place."""
_MOST_WAITING = 256
_KEY_BYTES = 32
_BYTES_PER_FILE = 2_000
# About how much work the index has for a file that it knows, and for a character of a file that it does not know. The
# unit is the work of reading one byte of other text.
_BYTES_PER_CHAR = 30
# About how much work it is to place and write a panel of any length, in the work of reading one byte of other text.
_BYTES_PER_PANEL = 20_000

_log = logging.getLogger("stratiform")
_ADVICE = (
    "model %s: clients mark their prompts for a cache, and no cache profile is known of this upstream: their requests "
    "go as they came. Set model_info.cache_profile (or --cache-profile) to anthropic, or to what else the upstream "
    "follows, and markers are placed for them"
)


class Planning:
    """Implements ``ports.Planner``. ``state`` is shared with other workers and with the next start; None: nothing is
    shared."""

    def __init__(
        self,
        planner: TierPlanner,
        state: SharedLayoutStore | None = None,
        aside: Aside | None = None,
        structured: "StructuredChats | None" = None,
        price_of: Callable[[Deployment], Price | None] = lambda deployment: None,
        fingerprints: "FingerprintFile | None" = None,
    ) -> None:
        """``planner`` is the pure planner. ``structured`` assembles structured context; None: a request with structured
        context is refused. ``price_of`` tells a model's price, in USD a token. ``fingerprints`` is the file that takes
        the digests of what is sent; None: no digests are written."""
        self.pure = planner
        self.parse, self.refused, self.barred = planner.reader.parse, planner.refused, planner.barred
        self._structured = structured
        self.compactions = structured.compactions if structured is not None else None
        self.state = state
        self._aside = aside or Aside()
        self._advised: set[str] = set()
        self._price_of = price_of
        self._fingerprints = fingerprints

    async def assemble(
        self,
        sent: ParsedBody,
        principal: Principal,
        now: float,
        own: ParsedBody | None = None,
    ) -> AssembledChat:
        """The request with its structured context as messages. Raises InvalidRequest, MissingContent."""
        if self._structured is None:
            raise InvalidRequest(
                "this proxy assembles no structured context: send the context as messages, and leave out 'stratiform'",
                param="stratiform",
                code="structured_form_unavailable",
            )
        return await self._structured.assemble(sent, principal, now, own)

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
        deployment, principal, inset = request.deployment, request.principal, request.inset
        if deployment.reminder and request.mode is not Mode.PASSTHROUGH:
            # The model's reminder is left out only in a mode that the operator has set for the model.
            inset = inset.followed_by(deployment.reminder)
        route = Route(
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
        if request.assembled is not None and self._structured is not None:
            plan = await self._plan_assembled(request.assembled, request, route)
        else:
            plan = await self._plan(request.parsed, route, request.mode, request.now, has_body=request.has_body)
        if plan.reason is Reason.MARKS_WITHOUT_PROFILE:
            # Log once for each entry of the model list what would help its clients.
            entry = deployment.entry or deployment.name
            if entry not in self._advised:
                _log.warning(_ADVICE, entry)
            self._advised.add(entry)
        if plan.surprise is not None:
            # Only the type and the place are logged: a message could quote the prompt.
            _log.error("planning failed, request sent as it came: %s", place_of(plan.surprise))
        return replace(plan, price=self._price_of(request.deployment)) if plan.in_flight is not None else plan

    async def _plan_assembled(self, chat: AssembledChat, request: PlanRequest, route: Route) -> Plan:
        """The plan of a request with structured context. If the tiers decide the layout, the planner only observes it.
        A refused request is retried with the arrangement's fallback."""
        assert self._structured is not None
        mode, now = request.mode, request.now
        route = replace(route, hint=chat.hint or route.hint, is_told=bool(route.hint) and not chat.context.session)
        arranged = await self._structured.arrange(chat, request.deployment, mode)
        parsed = request.parsed if arranged.body is chat.body else await self._parsed(arranged.body)
        plan = await self._plan(parsed, replace(route, moving=arranged.moving), arranged.mode, now)
        if arranged.fallback is arranged.body:
            return arranged.concluded(plan, mode)
        flat = request.parsed if arranged.fallback is chat.body else await self._parsed(arranged.fallback)
        original = (await self._read(flat, route, Mode.OBSERVE, now)).original
        concluded = replace(arranged.concluded(plan, mode), original=original)
        return replace(concluded, body=original, reason=plan.reason) if plan.reason is Reason.BARRED else concluded

    async def _parsed(self, body: bytes) -> ParsedBody:
        """The parsed body. A large body is parsed beside the event loop."""
        return await self._aside.run_large(len(body), self.parse, body)

    async def _read(self, parsed: ParsedBody, route: Route, mode: Mode, now: float) -> IncomingChat | Plan:
        with suppress_and_log("planner.read_ahead"):
            await read_ahead(self.pure.reader, self._aside, parsed)
        return self.pure.read(parsed, route, mode, now)

    async def _plan(self, parsed: ParsedBody, route: Route, mode: Mode, now: float, *, has_body: bool = True) -> Plan:
        incoming = await self._read(parsed, route, mode, now)
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

    def on_accepted(self, plan: Plan, now: float) -> None:
        """The upstream accepted the request: commit the changes to the shadow cache, and store its layout."""
        scope, names = self.pure.on_accepted(plan, now)
        if self.state is not None:
            self.state.keep(scope, self.pure.sent_front(names), now)

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        """The exchange ended well: count it once, and store what was learnt from it for other workers."""
        result = self.pure.on_completed(plan, usage, now)
        if plan.counted is not None:
            result = replace(result, moves=plan.counted(usage))
        if self._fingerprints is not None:
            self._fingerprints.add(plan, usage)
        if self.state is not None:
            self.state.keep(*self.pure.export_state(plan), now)
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


async def read_ahead(reader: RequestReader, aside: Aside, parsed: ParsedBody) -> None:
    """Read large and new parts in another thread: to tokenise them here would hold up every other client."""
    if "messages" not in parsed.members:
        return
    size = len(parsed.body)
    if size < LARGE_BYTES:
        try:
            messages = parsed.unread()
        except Unreadable:
            return
        if size + OBJECT_BYTES * len(messages) < _LARGE_BYTES:
            return
        new = reader.messages.unread(messages)
        if sum(map(len, new)) + OBJECT_BYTES * len(new) < _LARGE_BYTES:
            return
    fork = reader.fork()
    await aside.run(size, partial(fork.read_ahead, parsed))
    reader.merge(fork)


class StructuredChats:
    """Assembles the context that clients describe."""

    def __init__(
        self,
        assembler: ContextAssembler,
        aside: Aside,
        watch: Metrics,
        texts: TextStore | None = None,
        facts: ModelFacts | None = None,
        compactions: Compactions | None = None,
        sessions: SessionStore | None = None,
    ) -> None:
        """``watch`` counts what becomes of structured context. ``texts`` keeps in the store the texts that clients
        send, and ``sessions`` the state of conversations; None: they are kept in memory only. ``compactions`` compacts
        conversations; None: compaction is not allowed."""
        self.compactions = compactions
        self._facts = facts or ModelFacts()
        self.assembler = assembler
        self._texts = texts
        self._sessions = sessions
        self._aside = aside
        # A text that is made to be slow holds up other indexing, and nothing else.
        self._indexing = Aside()
        self._watch = watch

    async def assemble(
        self,
        sent: ParsedBody,
        principal: Principal,
        now: float,
        own: ParsedBody | None = None,
    ) -> AssembledChat:
        """The request with its context as messages. ``now`` is when it arrived, in unix seconds. The session takes over
        its review and its panels when the chat is ``kept``. ``own`` is the request without the operator's system text;
        None: there is no such text. Raises InvalidRequest, PayloadTooLarge, MissingContent."""
        size, assembler = work_in(sent.body), self.assembler
        try:
            request = await self._aside.run_large(size, partial(assembler.read, sent, own))
        except TooMany as error:
            message = f"'messages' has more than {MOST_ELEMENTS} messages, or too many parts in them"
            raise InvalidRequest(message, param="messages", code="too_many_items") from error
        except Unreadable as error:
            raise InvalidRequest("'messages' must be an array of messages", param="messages") from error
        resolved = await self._resolved(request, principal)
        form = request.form
        if self._sessions is not None and (form.has_history or form.compaction):
            with suppress_and_log("context.recall"):
                await self._sessions.recall(resolved.scope, resolved.name, size)
        with suppress_and_log("context.aliases"):
            resolved = assembler.with_aliases(resolved)
        symbols = await self._indexed(resolved)
        context = assembler.context(resolved, symbols)
        # A short body may name long texts, and a first request may name thousands of files. To read them here would
        # hold up every other client.
        size = max(size, context.chars) + _BYTES_PER_PANEL * len(form.panels)
        chat, counted, blocks = await self._aside.run_large(size, partial(assembler.assembled, resolved, context, now))
        assembler.know(resolved, counted, blocks)
        for reason, count in chat.assembly.skipped.items():
            self._watch.item_skipped(reason.value, by=count)
        if chat.dialogue.uncompacted is not None and self.compactions is None:
            self._watch.compacted(CompactionOutcome.DISALLOWED.value)
        return replace(chat, kept=partial(self._keep, resolved, chat, now))

    def _keep(self, resolved: Resolved, chat: AssembledChat, now: float) -> None:
        """The request is sent: its session goes on from it."""
        self._count_panels(resolved.session.state.board, chat.dialogue)
        self.assembler.remember(resolved, chat)
        if self._sessions is not None:
            with suppress_and_log("context.keep"):
                self._sessions.keep(resolved.scope, resolved.name, resolved.session, now)

    def _count_panels(self, before: Board, dialogue: Dialogue) -> None:
        if dialogue.board is None:
            return
        states: Counter[tuple[str, str]] = Counter()
        for panel in dialogue.panels:
            if panel.is_shown:
                is_same = before.memory(panel).digest == dialogue.board.memory(panel).digest
                states[panel.label, "same" if is_same else "new"] += 1
        for (kind, state), count in states.items():
            self._watch.panels(kind, state, by=count)

    async def aclose(self) -> None:
        """Write what waits to be written, and end the threads once their work is done."""
        if self._sessions is not None:
            await self._sessions.aclose()
        if self._texts is not None:
            await self._texts.aclose()
        self._indexing.close()

    async def _resolved(self, request: SentContext, principal: Principal) -> Resolved:
        """The request with its texts, which come from memory, or else from the store. Raises MissingContent."""
        resolve = partial(self.assembler.resolve, scope=principal.scope, hint=principal.session_hint)
        if self._texts is None:
            return resolve(request)
        try:
            resolved = resolve(request)
        except MissingContent as error:
            texts: Mapping[str, str] = {}
            with suppress_and_log("context.recall"):
                texts = await self._texts.recall(principal.scope, error.missing)
            if not texts:
                raise
            resolved = resolve(replace(request, form=filled(request.form, texts)))
        with suppress_and_log("context.keep"):
            self._texts.keep(principal.scope, resolved.form)
        return resolved

    async def _indexed(self, resolved: Resolved) -> SymbolMap:
        """The symbols. If there is no index, or if it fails, these are the symbols that the client has sent."""
        shown = resolved.form.context
        with suppress_and_log("context.index"):
            size = sum(_BYTES_PER_CHAR * len(file.text or "") + _BYTES_PER_FILE for file in resolved.form.context.files)
            return await self._indexing.run_large(size, partial(self.assembler.index, resolved))
        return SymbolMap(shown.symbols, shown.legend)

    async def arrange(self, chat: AssembledChat, deployment: Deployment, mode: Mode) -> Arrangement:
        """How the request is planned for this deployment."""
        arranged = await self._arranged(chat, deployment, mode)
        if self._sessions is not None:
            arranged = replace(arranged, counted=partial(self._counted, self._sessions, chat, arranged.counted))
        self._watch.assembled(arranged.kind)
        self._watch.empty_tiers(by=arranged.assembly.empty_tiers)
        return arranged

    async def _arranged(self, chat: AssembledChat, deployment: Deployment, mode: Mode) -> Arrangement:
        assembler, sessions, profile = self.assembler, self.assembler.sessions, deployment.profile
        placement, price = assembler.place(chat, profile), self._facts.price(deployment)
        counter, session = sessions.counter.fork(), sessions.session(chat.scope, chat.session)
        freezing_cost = session.freezing_cost + chat.dialogue.freezing_cost
        most_input, _ = self._facts.limits(deployment)
        work = partial(assembler.arrange, chat, placement, profile, mode, price, most_input)
        arranged = await self._aside.run_large(_size(chat), work)
        return replace(arranged, contents=partial(arranged.inventory, placement, counter, freezing_cost))

    def _counted(
        self,
        sessions: SessionStore,
        chat: AssembledChat,
        counted: Callable[[Usage | None], Sequence[Change]],
        usage: Usage | None,
    ) -> Sequence[Change]:
        """The exchange counts. The change is written to the store for other processes."""
        moved = counted(usage)
        sessions.changed(chat.scope, chat.session)
        return moved

    async def breakdown(self, chat: AssembledChat, deployment: Deployment, mode: Mode) -> Mapping[str, object]:
        """The contents of the request at this deployment, as a value for JSON."""
        most_input, most_output = self._facts.limits(deployment)
        session = self.assembler.sessions.session(chat.scope, chat.session)
        about = Circumstances(
            model=deployment.name,
            max_input_tokens=most_input,
            max_output_tokens=most_output,
            changes=session.changes,
            empty_tiers_total=session.empty_tiers,
            last=session.last,
            total=session.total,
            edits=chat.dialogue.edits,
        )
        contents = (await self._arranged(chat, deployment, mode)).contents
        assert contents is not None
        return await self._aside.run_large(_size(chat), lambda: shown(contents(), about))


def _size(chat: AssembledChat) -> int:
    """How much work the arrangement is, in the work of reading one byte."""
    return work_in(chat.body) + _BYTES_PER_PANEL * len(chat.dialogue.panels)


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
        if plan.in_flight is None:
            return
        analysis, is_told = plan.in_flight.analysis, usage is not None and not usage.estimated
        self._waiting.append(
            Fingerprint(
                v=VERSION,
                session=plan.session,
                model=analysis.incoming.route.name,
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
            await asyncio.to_thread(self._write, [self._waiting.popleft() for _ in range(len(self._waiting))])

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

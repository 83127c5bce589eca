"""Structured context for the live proxy. Large work is done beside the event loop; state is touched only on the event
loop."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from proxy.core.layout.tiers import Change
from proxy.core.modes import Mode
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.usage import Usage
from proxy.core.structured.blocks import Circumstances, Measure, shown
from proxy.core.structured.chat import AssembledChat, Dialogue
from proxy.core.structured.context import SymbolMap
from proxy.core.structured.panels.board import Board
from proxy.core.structured.session import filled
from proxy.core.wire.json_body import MOST_ELEMENTS, TooMany, Unreadable
from proxy.engine.suppress import suppress_and_log
from proxy.errors import InvalidRequest, MissingContent
from proxy.planning.compactions import CompactionOutcome, Compactions
from proxy.planning.context_assembler import Arrangement, ContextAssembler, Resolved, SentContext
from proxy.planning.context_sessions import SessionStore, TextStore
from proxy.planning.tokenizers import ModelFacts
from proxy.ports import Deployment, Principal
from proxy.tasks import Aside, work_in
from proxy.telemetry.metrics import Metrics

_BYTES_PER_FILE = 2_000
_BYTES_PER_CHAR = 30
"""About how much work the index has for a file that it knows, and for a character of a file that it does not know. The
unit is the work of reading one byte of other text."""
_BYTES_PER_PANEL = 20_000
"""About how much work it is to place and write a panel of any length, in the work of reading one byte of other text."""


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
        *,
        keeps_state: bool = True,
        own_count: int | None = None,
    ) -> AssembledChat:
        """The request with its context as messages. ``now`` is when it arrived, in unix seconds. The session takes over
        its review and its panels if it ``keeps_state``. ``own_count`` of its messages are the client's, and stand after
        those of the operator; None: all are the client's. Raises InvalidRequest, PayloadTooLarge, MissingContent."""
        size, assembler = work_in(sent.body), self.assembler
        try:
            request = await self._aside.run_large(size, partial(assembler.read, sent, own_count))
        except TooMany as error:
            message = f"'messages' has more than {MOST_ELEMENTS} messages, or too many parts in them"
            raise InvalidRequest(message, param="messages", code="too_many_items") from error
        except Unreadable as error:
            raise InvalidRequest("'messages' must be an array of messages", param="messages") from error
        resolved = await self._resolved(request, principal)
        session, form = resolved.session, request.form
        if self._sessions is not None and (form.has_history or form.compaction):
            with suppress_and_log("context.recall"):
                await self._sessions.recall(resolved.scope, resolved.name, size)
        with suppress_and_log("context.aliases"):
            assembler.give_aliases(resolved)
        symbols = await self._indexed(resolved)
        context, board = assembler.context(resolved, symbols, keeps_state=keeps_state), session.board
        # A short body may name long texts, and a first request may name thousands of files. To read them here would
        # hold up every other client.
        size = max(size, context.chars) + _BYTES_PER_PANEL * len(form.panels)
        chat, counted, blocks = await self._aside.run_large(size, partial(assembler.assembled, resolved, context, now))
        assembler.remember(resolved, chat, counted, blocks, keeps_state=keeps_state)
        if keeps_state:
            self._count_panels(board, chat.dialogue)
            if self._sessions is not None:
                with suppress_and_log("context.keep"):
                    self._sessions.keep(resolved.scope, resolved.name, session, now)
        for reason, count in chat.assembly.skipped.items():
            self._watch.item_skipped(reason.value, by=count)
        if chat.dialogue.uncompacted is not None and self.compactions is None:
            self._watch.compacted(CompactionOutcome.DISALLOWED.value)
        return chat

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
        arranger, sessions, profile = self.assembler.arranger, self.assembler.sessions, deployment.profile
        placement, price = arranger.place(chat, profile), self._facts.price(deployment)
        measure, session = Measure.of(sessions.counter.fork()), sessions.session(chat.scope, chat.session)
        freezing_cost = session.freezing_cost + chat.dialogue.freezing_cost
        most_input, _ = self._facts.limits(deployment)
        work = partial(arranger.arrange, chat, placement, profile, mode, price, most_input)
        arranged = await self._aside.run_large(_size(chat), work)
        return replace(arranged, contents=partial(arranged.inventory, placement, measure, freezing_cost))

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

"""Arranges an assembled chat for an upstream: which of its layouts is sent there, how the planner takes it, and what
its panels cost."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import msgspec

from proxy.core.layout.inventory import Inventory
from proxy.core.layout.tiers import Change, with_target
from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.planner.plan import Plan
from proxy.core.providers import CacheProfile, Dialect
from proxy.core.reasons import Edit, Reason
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.usage import Usage
from proxy.core.structured.assembly.sections import ContextTexts
from proxy.core.structured.assembly.tiered import MOST_MARKS, tiered_assembly
from proxy.core.structured.assembly.untiered import in_tiers, untiered_assembly
from proxy.core.structured.blocks.blocks import Assembly, AssemblyKind
from proxy.core.structured.blocks.breakdown import Measure, inventory_of
from proxy.core.structured.chat import AssembledChat, body_of, has_thinking
from proxy.core.structured.messages import marks_beside_messages, system_text
from proxy.core.structured.panels.inlay import Inlay, Wants, fitted, moving
from proxy.core.structured.placement.placement import Placement
from proxy.core.value import dataclass, field, replace
from proxy.engine.suppress import place_of
from proxy.planning.context_sessions import AssemblyOptions, ContextSessions, PanelBill

_SETTLED: Mapping[AssemblyKind, Reason] = MappingProxyType(
    {AssemblyKind.TIERED: Reason.ASSEMBLED_TIERS, AssemblyKind.FLAT: Reason.ASSEMBLED_FLAT}
)
"""The reasons of layouts that the planner only observes."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The body, and the ``mode`` in which the planner takes it. This mode is lower than the one that was asked for if
    the ``kind`` of the assembly settles the layout. ``fallback`` is the body that is sent if an upstream refuses the
    other one. ``edits`` counts the edits besides the layout, by their reason. ``counted`` is called when the exchange
    counts. ``moving`` are the messages that the proxy has put between the client's own, in the form of
    ``Route.moving``. ``bill`` says what the panels cost; None: there are no panels."""

    kind: AssemblyKind
    body: bytes
    fallback: bytes
    mode: Mode
    assembly: Assembly
    counted: Callable[[Usage | None], Sequence[Change]]
    edits: Mapping[Edit, int] = field(default_factory=dict)
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    moving: Mapping[int, float] = field(default_factory=dict)
    bill: PanelBill | None = None
    contents: Callable[[], Inventory] | None = None
    """Measures what is sent."""

    def concluded(self, plan: Plan, mode: Mode) -> Plan:
        """The planner's plan with the assembly's decisions added. ``mode`` is the one that was asked for."""
        plan = replace(
            plan, counted=self.counted, tier_tokens=self.tier_tokens, edits=self.edits, contents=self.contents
        )
        if mode is self.mode or plan.surprise is not None:
            return plan
        return replace(plan, mode=mode, reason=_SETTLED[self.kind], predicted=plan.own)

    def inventory(self, placement: Placement | None, measure: Measure, freezing_cost: float) -> Inventory:
        """The contents of the request. Items that are not ordered by tiers are shown in the tiers of the ``placement``.
        ``freezing_cost`` is what freezing has cost the session so far."""
        assembly, counts = self.assembly, placement.counts if placement is not None else {}
        if placement is not None and self.kind is AssemblyKind.ECONOMIC:
            assembly = in_tiers(assembly, placement)
        panels = self.bill.value() if self.bill is not None else ()
        found = inventory_of(assembly, measure, counts)
        return msgspec.structs.replace(found, panels=panels, freezing_cost=freezing_cost)


T = TypeVar("T")
_log = logging.getLogger("stratiform")


class Arranger:
    """Arranges the chats of these ``sessions``."""

    def __init__(self, texts: ContextTexts, options: AssemblyOptions, sessions: ContextSessions) -> None:
        self._texts = texts
        self._options = options
        self._sessions = sessions

    def place(self, chat: AssembledChat, profile: CacheProfile) -> Placement | None:
        """The place of each item, as the conversation's tracker decides it. None if the proxy itself has an error."""
        return tried(partial(self._placement, chat, profile))

    def _placement(self, chat: AssembledChat, profile: CacheProfile) -> Placement:
        tracker = self._sessions.session(chat.scope, chat.session).tracker
        if not self._options.has_target:
            tracker.policy = with_target(tracker.policy, profile.min_tokens)
        return tracker.placement(chat.context, chat.reading.history, chat.reading.head_tokens)

    def arrange(
        self,
        chat: AssembledChat,
        placement: Placement | None,
        profile: CacheProfile,
        mode: Mode,
        price: Price | None,
        most_input: int | None = None,
    ) -> Arrangement:
        """The messages for an upstream with these cache rules. ``price`` is the model's price, and ``most_input`` the
        most tokens that it reads; None: unknown. Any thread may call this. If the proxy itself has an error, the error
        is logged and the flat assembly is used."""
        wants = _wants(chat.sent, profile)
        if chat.dialogue.has_panels and (profile.declares_tools or profile.name in self._options.repeats_for or wants):
            chat = self._ordered(chat, profile, wants, is_chronological=False)
        kind, sent, planned = self._sent(chat, placement, profile, wants, mode)
        board = sent.dialogue.board
        bill = (
            PanelBill(sent.order, sent.reading.panel_tokens, board, price) if board is not None and sent.order else None
        )
        tokens = placement.tokens if placement is not None else {}
        return Arrangement(
            kind=kind,
            body=sent.body,
            fallback=chat.body,
            mode=planned,
            assembly=sent.assembly,
            counted=partial(self._sessions.counted, sent, bill, profile, most_input),
            edits=chat.dialogue.edits,
            bill=bill,
            tier_tokens={tier.label: count for tier, count in tokens.items() if count},
            moving={} if board is None else moving(sent.assembly, board, sent.order),
        )

    def _sent(
        self, chat: AssembledChat, placement: Placement | None, profile: CacheProfile, wants: Wants, mode: Mode
    ) -> tuple[AssemblyKind, AssembledChat, Mode]:
        """The chat as it is sent in this mode, and the mode in which the planner takes it. The planner only observes a
        layout that is settled here."""
        if chat.kind is AssemblyKind.ECONOMIC:
            moves = mode > Mode.OBSERVE and chat.dialogue.board is not None
            return chat.kind, self._ordered(chat, profile, wants, is_chronological=True) if moves else chat, mode
        if mode <= Mode.OBSERVE:
            return AssemblyKind.FLAT, chat, mode
        if chat.kind is AssemblyKind.TIERED:
            if mode is not Mode.TIER:
                # This mode does not order by tiers: the planner alone decides.
                return AssemblyKind.FLAT, chat, mode
            if placement is not None:
                tiered = tried(partial(self._tiered, chat, placement, profile, wants))
                if tiered is not None:
                    return AssemblyKind.TIERED, tiered, Mode.OBSERVE
        return AssemblyKind.FLAT, chat, Mode.OBSERVE

    def _ordered(
        self, chat: AssembledChat, profile: CacheProfile, wants: Wants, *, is_chronological: bool
    ) -> AssembledChat:
        """The request with its panels in this order, and with what else this upstream needs. In chronological order
        each panel stands where the conversation was when the panel last changed; otherwise all panels stand in front.
        If the proxy itself has an error, the error is logged and the request stays as it is."""

        def work() -> AssembledChat:
            inlay = self._inlay(chat, profile, wants, is_chronological=is_chronological)
            assembly = untiered_assembly(chat.front, chat.dialogue.conversation, inlay, chat.context.images)
            return _with(chat, assembly, inlay, profile)

        return tried(work) or chat

    def _tiered(self, chat: AssembledChat, placement: Placement, profile: CacheProfile, wants: Wants) -> AssembledChat:
        slots = max(0, min(profile.max_marks, MOST_MARKS) - marks_beside_messages(chat.sent.members))
        inlay = self._inlay(chat, profile, wants, is_chronological=False)
        assembly = tiered_assembly(
            chat.context,
            chat.dialogue.conversation,
            placement,
            self._texts.tiered,
            profile.dialect if slots else Dialect.NONE,
            slots=max(1, slots),
            inlay=inlay,
        )
        return _with(chat, assembly, inlay, profile)

    def _inlay(self, chat: AssembledChat, profile: CacheProfile, wants: Wants, *, is_chronological: bool) -> Inlay:
        texts, repeat = self._texts.panels, ""
        if profile.name in self._options.repeats_for:
            repeat = system_text(chat.dialogue.conversation)
        inlay = chat.dialogue.inlay(texts, is_chronological=is_chronological, repeat=repeat)
        return fitted(inlay, chat.dialogue.conversation.turns, wants, texts.ok)


def tried(work: Callable[[], T]) -> T | None:
    """The result of the work. If the proxy itself has an error, the result is None, and the error is logged with its
    type and its place."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
        _log.error("assembly failed, context sent flat: %s", place_of(error))
        return None


def _with(chat: AssembledChat, assembly: Assembly, inlay: Inlay, profile: CacheProfile) -> AssembledChat:
    """The chat with this assembly. If panels are shown, the panels' tool is declared to an upstream that wants tools
    declared. Without a panel the tool is not declared, because nobody would answer a call of it."""
    body = body_of(chat.sent, assembly, declares_tool=profile.declares_tools and bool(inlay.order))
    return replace(chat, assembly=assembly, body=body, order=inlay.order)


def _wants(sent: ParsedBody, profile: CacheProfile) -> Wants:
    return Wants(
        begins_with_user=profile.begins_with_user,
        answers_results=profile.answers_results or (profile.thinks_in_calls and has_thinking(sent.members)),
        plain_ids=profile.plain_call_ids,
    )

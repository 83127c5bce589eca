"""Structured context in replays: each request is assembled as in the proxy, with the memory of the requests before."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from proxy.core.layout.tiers import Tier
from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.parsed_body import parse_body
from proxy.core.request.route import Route
from proxy.core.structured.assembly.untiered import in_tiers
from proxy.core.structured.blocks.blocks import Assembly, AssemblyKind, file_block
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.form.section import section_of
from proxy.core.structured.panels.inlay import NAME, PANEL
from proxy.core.wire.json_body import Unreadable, members_of
from proxy.core.wire.surrogates import text_json
from proxy.errors import InvalidRequest, MissingContent
from proxy.planning.context_assembler import ContextAssembler
from proxy.replay.trace import Step, TraceError


class ReplayedContexts:
    """Assembles the requests of one session, in their order."""

    def __init__(self, assembler: ContextAssembler) -> None:
        self._assembler = assembler
        self._items: dict[str, Tier] = {}
        self._messages: list[Tier] = []
        self.panels: dict[int, str] = {}
        """The panel that each message of the last request belongs to, and since when its content is unchanged."""

    def assembled(self, step: Step, scope: str) -> AssembledChat | None:
        """The request with its context as messages; None for a request without structured context. Raises TraceError if
        the proxy would refuse the request."""
        try:
            sent = parse_body(step.body)
        except (InvalidRequest, Unreadable):
            return None
        if section_of(sent.members) is None:
            return None
        try:
            return self._assembler.chat_of(sent, scope, now=step.at)
        except (InvalidRequest, MissingContent, Unreadable) as error:
            at = f"the request at t = {step.at} of session '{step.session}'"
            raise TraceError(f"{at} has structured context that cannot be assembled: {error}") from error

    def plan(self, planner: TierPlanner, chat: AssembledChat, route: Route, mode: Mode, now: float) -> Plan:
        """The plan of an assembled request."""
        arranger = self._assembler.arranger
        placement = arranger.place(chat, route.profile)
        arranged = arranger.arrange(chat, placement, route.profile, mode, None)
        shown = arranged.assembly
        if placement is not None:
            self._items = placement.tier_of()
            shown = in_tiers(shown, placement) if arranged.kind is AssemblyKind.ECONOMIC else shown
        self._messages = [block.tier for block in shown.blocks for _ in block.messages]
        self.panels = dict(_panels(chat, arranged.assembly))
        route = replace(route, hint=chat.context.session, moving=arranged.moving)
        return arranged.concluded(planner.plan(arranged.body, route, arranged.mode, now), mode)

    def tier_of(self, element: Element) -> str | None:
        """The tier of an element of the last request, by the conversation's own tracker: the tier of its file, or else
        of its message. It is empty for an element without a tier, and None if nothing was assembled."""
        if not self._messages:
            return None
        name = element.item.key.partition("/")[2].partition("#")[0] if element.item is not None else ""
        if name in self._items:
            return self._items[name].label
        tier = self._messages[element.message] if 0 <= element.message < len(self._messages) else Tier.ACTIVE
        return tier.label if tier is not Tier.ACTIVE or element.kind is not ElementKind.MESSAGE else ""


def _panels(chat: AssembledChat, assembly: Assembly) -> Iterator[tuple[int, str]]:
    """The panel of each message that shows one, by the message's index."""
    board = chat.dialogue.board
    if board is None:
        return
    since = {PANEL + panel.id: board.memory(panel).stamp_s for panel in chat.dialogue.panels}
    for index, item in assembly.shown(NAME):
        if item.key in since:
            at = datetime.fromtimestamp(since[item.key], UTC)
            yield index, f"{item.key.replace(':', ' ')}, the same since {at:%Y-%m-%d %H:%M:%S}"


def lost_items(chat: AssembledChat, body: bytes) -> list[str]:
    """The faults of a body by the fidelity rule of structured context: the body must hold each selected file, each
    symbol block and each message of the history."""
    context = chat.context
    items = [
        (f"file:{file.path}", text_json(file_block(file.path, file.text or ""))[1:-1]) for file in context.selected()
    ]
    items += [(f"symbol:{path}", text_json(context.symbols[path])[1:-1]) for path in context.mapped()]
    items += [(f"history:{index}", _said(turn.raw)) for index, turn in enumerate(chat.dialogue.conversation.history)]
    return [f"{key} is not in the request" for key, written in items if written not in body]


def _said(raw: bytes) -> bytes:
    """The content of a message. A marker may have turned the content into a list; its text has the same bytes."""
    try:
        return bytes(members_of(raw).get("content", raw))
    except Unreadable:
        return raw

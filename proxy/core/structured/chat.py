"""A chat request whose context was assembled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.panel_calls import PanelAnswers
from proxy.core.structured.assembly.untiered import Front
from proxy.core.structured.blocks.blocks import Assembly, AssemblyKind
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.dialogue import Dialogue
from proxy.core.structured.form.section import SECTION
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.panels.panel import Panel
from proxy.core.structured.panels.tool import with_declaration
from proxy.core.structured.placement.tracking import HistoryItem
from proxy.core.structured.symbols.map_chunks import MapChunks
from proxy.core.wire.json_body import splice


@dataclass(frozen=True, slots=True)
class ChatReading:
    """What is read of all texts of a conversation once, beside the event loop where they are long. ``digest`` is that
    of all its messages, and ``history`` is what the tracker knows them by, both without markers; ``head_tokens`` are
    those in front of all items, and ``panel_tokens`` those of the shown panels, by id."""

    digest: bytes = b""
    history: Sequence[HistoryItem] = ()
    head_tokens: int = 0
    panel_tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssembledChat:
    """``sent`` is the client's body as it came; ``body`` is the same request with the context as messages (those of
    ``assembly``) and without the section: in the flat order, or with the ``map`` of symbols in chunks. ``kind`` is what
    shall be made of it for an upstream that caches. ``front`` is what stands in front of the conversation. ``dialogue``
    is the conversation, with its panels; ``order`` are the shown panels in sending order. ``scope`` and ``session``
    name the state that belongs to the conversation. ``answers`` answers the model's own calls for a panel; None where
    no panel is shown. ``reading`` is what was read of the texts."""

    sent: ParsedBody
    body: bytes
    kind: AssemblyKind
    front: Front
    assembly: Assembly
    context: StructuredContext
    dialogue: Dialogue
    scope: str
    session: str
    map: MapChunks | None = None
    order: tuple[Panel, ...] = ()
    answers: PanelAnswers | None = None
    reading: ChatReading = ChatReading()

    @property
    def uncompacted(self) -> RuledHistory | None:
        """The conversation without a compaction, where the client wants one."""
        return self.dialogue.uncompacted


def body_of(sent: ParsedBody, assembly: Assembly, *, declares_tool: bool = False) -> bytes:
    """The client's body with the messages of the assembly in the place of its own, and without the section.
    ``declares_tool``: the tool of the panels is among its tools."""
    changes: dict[str, bytes | None] = {"messages": assembly.body(), SECTION: None}
    if declares_tool:
        tools = with_declaration(sent.members.get("tools"))
        changes |= {"tools": tools} if tools is not None else {}
    return splice(sent.body, sent.members, changes, sent.span)

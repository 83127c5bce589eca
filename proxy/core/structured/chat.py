"""A chat request whose context was assembled."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw

from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.panel_calls import PanelAnswers
from proxy.core.structured.assembly import Assembly
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.conversation import Conversation
from proxy.core.structured.dialogue import Dialogue
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.map_chunks import MapChunks
from proxy.core.structured.panels.panel import Panel

SECTION = "stratiform"
"""The member of the body in which a client says what its context consists of."""
_SHORT_BYTES = 64


@dataclass(frozen=True, slots=True)
class AssembledChat:
    """``sent`` is the client's body as it came; ``body`` is the same request with the context as messages (those of
    ``assembly``) and without the section. ``dialogue`` is the conversation in it, with its panels. ``scope`` and
    ``session`` name the state that belongs to the conversation.
    ``map`` are the chunks of the symbol map, where it has any; ``order`` are the shown panels in sending order.
    ``is_flat``: the assembly is the flat one; ``wants_flat``: the client asks for that. ``answers`` answers the model's
    own calls for a panel; None where no panel is shown."""

    sent: ParsedBody
    body: bytes
    assembly: Assembly
    context: StructuredContext
    dialogue: Dialogue
    scope: str
    session: str
    map: MapChunks | None = None
    order: tuple[Panel, ...] = ()
    is_flat: bool = False
    wants_flat: bool = False
    answers: PanelAnswers | None = None

    @property
    def uncompacted(self) -> RuledHistory | None:
        """The conversation without a compaction, where the client wants one."""
        return self.dialogue.uncompacted

    @property
    def conversation(self) -> Conversation:
        """The client's messages as far as they are sent."""
        return self.dialogue.conversation


def section_of(members: Mapping[str, Raw | bytes] | None) -> Raw | bytes | None:
    """The section, where it says anything."""
    raw = (members or {}).get(SECTION)
    if raw is None or (len(raw) < _SHORT_BYTES and b"".join(bytes(raw).split()) in (b"null", b"{}")):
        return None
    return raw

"""A request with structured context on its way to an assembly: what is known of it, and what was read ahead."""

from dataclasses import dataclass

from proxy.core.request.tokens import TokenCounter
from proxy.core.structured.chat import ChatReading
from proxy.core.structured.messages.conversation import Conversation
from proxy.core.structured.placement.tracking import Blocks
from proxy.core.structured.session.session import ContextSession
from proxy.core.structured.session.uploads import ResolvedForm


@dataclass(frozen=True, slots=True)
class Resolved:
    """A form with its texts at hand, and the session that it belongs to; ``is_named``: the client has named it.
    ``chars`` are those of the selected files together."""

    found: ResolvedForm
    conversation: Conversation
    scope: str
    name: str
    session: ContextSession
    is_named: bool = False
    chars: int = 0


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """What was read of a request beside the event loop: counted texts, digests of blocks, and its conversation."""

    counted: TokenCounter
    blocks: Blocks
    chat: ChatReading

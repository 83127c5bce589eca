"""A request with structured context on its way to a chat."""

from dataclasses import dataclass

from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.tokens import TokenCounter
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.form.form import StructuredForm
from proxy.core.structured.messages.conversation import Conversation
from proxy.core.structured.placement.tracking import Blocks
from proxy.core.structured.session.session import ContextSession
from proxy.core.structured.session.uploads import ResolvedForm


@dataclass(frozen=True, slots=True)
class SentContext:
    """A request as it was read: its body, its section, and its messages."""

    sent: ParsedBody
    form: StructuredForm
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class Resolved:
    """The same with the form's texts at hand, and the session that it belongs to; ``is_named``: the client has named
    it."""

    sent: ParsedBody
    found: ResolvedForm
    conversation: Conversation
    scope: str
    name: str
    session: ContextSession
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Assembled:
    """The chat, and what was read for it: counted texts, and digests of blocks."""

    chat: AssembledChat
    counted: TokenCounter
    blocks: Blocks

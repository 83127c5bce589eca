"""Reads requests for the planner, and remembers what it has read: bodies, messages, tools and token counts.

A large request is read by a fork of the reader in another thread. The fork knows everything that the reader knows, and
does not change the reader. Back in the reader's own thread, ``merge`` hands the results of the fork to the reader.
"""

from collections.abc import Sequence

from msgspec import Raw

from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.body_cache import BodyCache
from proxy.core.request.element import Element
from proxy.core.request.insets import placed, with_inset
from proxy.core.request.message import MessageReader
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.route import Route
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.request.tools import ToolReader
from proxy.core.request.transcript import Transcript
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable

_MOST_COUNTS = 200_000


@dataclass(frozen=True, slots=True)
class ReaderFork:
    """Readers of messages and tools for another thread."""

    messages: MessageReader
    tools: ToolReader

    def read_ahead(self, parsed: ParsedBody) -> None:
        """Read all messages and tools. A body without an array of messages is left to the planner, which refuses it.
        A body that is unreadable is not read again: ``chat`` raises the same error."""
        if bytes(memoryview(parsed.members["messages"])[:1]) != b"[":
            return
        try:
            self.tools.read(parsed.members.get("tools"))
            parsed.read(self.messages.read)
        except Unreadable as error:
            parsed.failure = error


class RequestReader:
    """Reads each body, message and array of tools once. Its memory is bounded."""

    def __init__(self, encode: Encode, recognisers: Sequence[Recogniser], memory_bytes: int) -> None:
        """Token counts take additional memory: up to an eighth of ``memory_bytes``, but at most 50 MB."""
        self.counter = TokenCounter(encode, capacity=min(_MOST_COUNTS, memory_bytes // 2_000))
        self._bodies = BodyCache(capacity_bytes=memory_bytes // 4)
        self._messages = MessageReader(self.counter, recognisers, capacity_bytes=memory_bytes // 4)
        self._tools = ToolReader(self.counter, capacity_bytes=memory_bytes // 16)

    def parse(self, body: bytes) -> ParsedBody:
        """The body, parsed with the help of earlier requests of the conversation. Another thread may call this. Raises
        InvalidRequest for a body that is no JSON object, and Unreadable if only the proxy cannot read it."""
        return self._bodies.parse(body)

    def read(self, parsed: ParsedBody) -> Transcript:
        """All messages of a chat. The reader remembers the conversation. Raises Unreadable."""
        transcript = parsed.read(self._messages.read)
        self._bodies.keep(parsed, transcript)
        return transcript

    def read_tools(self, raw: Raw | bytes | None) -> tuple[Element, ...]:
        """The tools as one element; nothing if there are no tools. Raises Unreadable if they are no array of
        objects."""
        return self._tools.read(raw)

    def inlaid(self, transcript: Transcript, route: Route) -> Transcript:
        """The transcript with the operator's texts in its user messages. The client's next request has none of these
        texts. If a text is not applied again then, the common prefix ends at its place. Raises Unreadable."""
        if not route.has_texts:
            return transcript
        messages = transcript.messages
        texts = placed([message.is_asked for message in messages], route.inset, route.earlier)
        written = {i: with_inset(messages[i].raw, inset) for i, inset in texts.items()}
        return transcript.replaced({i: self._messages.read(Raw(raw)) for i, raw in written.items()})

    def unread(self, messages: Sequence[Raw]) -> list[Raw]:
        """The messages that were never read. Planning would have to tokenise them."""
        return self._messages.unread(messages)

    def fork(self) -> ReaderFork:
        """Readers for another thread, which know everything that this reader knows."""
        return ReaderFork(self._messages.fork(), self._tools.fork())

    def merge(self, fork: ReaderFork) -> None:
        self._messages.merge(fork.messages)
        self._tools.merge(fork.tools)

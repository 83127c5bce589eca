"""What is large and new in a request, read apart from the planner: its messages and its tools."""

from proxy.core.request.body_cache import ParsedBody
from proxy.core.request.message import MessageReader
from proxy.core.request.tools import ToolReader
from proxy.core.wire.json_body import Unreadable


class Ahead:
    """Readers for another thread. They know what the planner's know, and change nothing of it; what they have read is
    the planner's with ``MessageReader.adopt`` and ``ToolReader.adopt``, back in its own thread."""

    __slots__ = ("_cut", "messages", "tools")

    def __init__(self, cut: ParsedBody, messages: MessageReader, tools: ToolReader) -> None:
        self._cut = cut
        self.messages = messages
        self.tools = tools

    def run(self) -> None:
        """Read all of it."""
        cut = self._cut
        if bytes(memoryview(cut.members["messages"])[:1]) != b"[":
            # The planner says that this is no chat.
            return
        try:
            self.tools.read(cut.members.get("tools"))
            cut.read(self.messages.read)
        except Unreadable as error:
            cut.failure = error

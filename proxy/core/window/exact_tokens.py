"""Counts tokens exactly as the encoder does, without estimates or samples. Each text is counted once.

The planner's reader only estimates. That is enough to compare layouts and far cheaper, but repetitive code may have
half as many tokens again as the estimate. Prompts are counted here before they are compared with a window.
"""

from collections.abc import Sequence

from msgspec import Raw

from proxy.core.digest import digest
from proxy.core.request.element import Element
from proxy.core.request.message import Message, MessageReader
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.request.tools import ToolReader
from proxy.core.wire.surrogates import utf8

_SHORT_CHARS = 256
"""A text up to this length is not remembered, because it is counted about as fast as it is looked up."""
_TEXT, _WRITTEN, _TOOLS = b"t", b"w", b"o"


class ExactTokens(TokenCounter):
    """Counts messages, tools and texts, and remembers at most ``capacity`` counts by digest, the least recently used
    out first. A count takes about 150 bytes of memory.

    A ``fork`` may be used in another thread. It has the counts of this one, and ``merge`` brings back its new counts.
    """

    def __init__(self, encode: Encode, *, capacity: int, base: "ExactTokens | None" = None) -> None:
        super().__init__(encode, capacity=capacity, base=base)
        # Counts are remembered for whole messages, so these readers remember next to nothing.
        counter = TokenCounter(encode, capacity=1)
        self._messages = MessageReader(counter, (), capacity_bytes=0)
        self._tools = ToolReader(counter, capacity_bytes=0)

    def fork(self) -> "ExactTokens":
        return ExactTokens(self._encode, capacity=self._capacity, base=self)

    def of_message(self, message: Message) -> int:
        return self.counted(message.digest, lambda: self._messages.read(Raw(message.raw)).tokens)

    def of_written(self, raw: bytes) -> int:
        """Tokens of a message that the proxy has written. Raises Unreadable."""
        return self.counted(_WRITTEN + digest(raw), lambda: self._messages.read(Raw(raw)).tokens)

    def of_tools(self, raw: Raw | bytes | None, read: Sequence[Element]) -> int:
        """Tokens of the tools, which the planner has ``read``. Raises Unreadable."""
        if not read:
            return 0
        key = _TOOLS + digest(*(element.digest for element in read))
        return self.counted(key, lambda: sum(element.tokens for element in self._tools.read(raw)))

    def of_text(self, text: str) -> int:
        if len(text) <= _SHORT_CHARS:
            return self._encode(text)
        return self.count(_TEXT + digest(utf8(text)), text)

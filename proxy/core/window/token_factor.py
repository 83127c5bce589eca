"""Counts a prompt before it is compared with a window.

``TokenFactor`` learns how a model's own count of a prompt compares with the proxy's, from the provider's reports and
refusals.

``ExactTokens`` counts tokens as the encoder does, without estimates or samples. Each text is counted once. The
planner's reader only estimates. That is enough to compare layouts and far cheaper, but repetitive code may have
half as many tokens again as the estimate.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw

from proxy.core.digest import digest
from proxy.core.request.element import Element, ToolReader
from proxy.core.request.message import Message, MessageReader
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.wire.json_body import utf8

LEAST, MOST = 0.7, 2.1
_STEP = 0.05
_LEAST_TOKENS = 500
_MILLION = 1_000_000
_MEMORY = 16
_Packed = tuple[int, bool, list[tuple[int, float]]]


class TokenFactor:
    """``value`` is the factor for the proxy's count, in steps. It is the largest ratio of the last reports. So it rises
    at once and falls late, and does not move a conversation's cut with every report. Only prompts that are at least
    half as long as the longest one count: nothing is left out of short prompts, and the tokens that a provider counts
    besides the messages are a larger share of them. Before the first report the value is 1.

    If a refusal does not name the prompt's tokens, the value is a guess until the next report. Processes share the
    factor under its ``name``. ``version`` grows with each change: the factor with the larger version knows more.
    """

    __slots__ = ("_reports", "is_guess", "name", "version")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_guess = False
        self.version = 0
        self._reports: deque[tuple[int, float]] = deque(maxlen=_MEMORY)

    @property
    def measured(self) -> float:
        longest = max(self._reports, default=(0, 1.0))[0]
        ratio = max((ratio for counted, ratio in self._reports if 2 * counted >= longest), default=1.0)
        return min(MOST, max(LEAST, round(math.ceil(round(ratio / _STEP, 6)) * _STEP, 2)))

    @property
    def value(self) -> float:
        return MOST if self.is_guess else self.measured

    def learn(self, counted_tokens: int, reported_tokens: int) -> None:
        """Learn from a prompt that the proxy and the provider have counted. A short prompt says little, and is skipped.
        If the counts differ by more than those of any tokenizer, it was another prompt, and counts as the bound."""
        if self.is_guess or counted_tokens >= _LEAST_TOKENS:
            self._take(counted_tokens, reported_tokens)

    def refused(self, counted_tokens: int, named_tokens: int | None) -> None:
        """Learn from a prompt that the provider has refused as too large. ``named_tokens`` are the prompt's tokens
        according to the provider; None: it does not name them."""
        if named_tokens is not None and named_tokens > self.value * counted_tokens:
            self._take(counted_tokens, named_tokens)
        elif named_tokens is None and counted_tokens:
            self.is_guess, self.version = True, self.version + 1

    def _take(self, counted: int, reported: int) -> None:
        if 0 < reported < _MILLION * counted:
            if self.is_guess:
                self._reports.clear()
            self._reports.append((counted, reported / counted))
            self.is_guess, self.version = False, self.version + 1

    def packed(self) -> Mapping[str, bytes]:
        return {self.name: msgspec.json.encode((self.version, self.is_guess, list(self._reports)))}

    def names(self) -> list[str]:
        return [self.name]

    def is_known(self) -> bool:
        return self.version > 0

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        """Take over what another process knows, if it is newer. Unreadable values are skipped."""
        with suppress(msgspec.DecodeError, KeyError):
            version, is_guess, reports = msgspec.json.decode(blobs[self.name], type=_Packed)
            if version > self.version:
                self.version, self.is_guess, self._reports = version, is_guess, deque(reports, _MEMORY)


# A text up to this length is not remembered, because it is counted about as fast as it is looked up.
_SHORT_CHARS = 256
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
        return self._encode(text) if len(text) <= _SHORT_CHARS else self.count(_TEXT + digest(utf8(text)), text)

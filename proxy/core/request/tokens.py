"""Token counts, counted once per digest."""

from collections.abc import Callable

from proxy.core.lru import LastUsed
from proxy.core.request.token_estimate import estimate, even_slices

Encode = Callable[[str], int]

# Message framing in OpenAI's chat format: about four tokens a message (OpenAI cookbook, "How to count tokens").
MESSAGE_OVERHEAD_TOKENS = 4
# A low-detail image costs 85 tokens, a 1024 x 1024 one at high detail 765 (OpenAI, "Images and vision").
IMAGE_TOKENS = 765


def bytes_over_four(text: str) -> int:
    """The estimate if no encoding is at hand: UTF-8 bytes / 4."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


# A text longer than this is counted by samples.
_WHOLE_CHARS = 1_000
_SLICE_CHARS = 200
# A slice begins and ends within a token, so its count has about half a token too many at each end.
_EDGE_TOKENS = 1.0


def quick(encode: Encode) -> Encode:
    """The way in which the request path counts: ordinary text is estimated. Any other long text is counted by evenly
    spaced slices. On recorded prompts the error is 3 % at the median and 9 % at the 95th percentile of texts, at a
    tenth of the work. The provider's own tokeniser differs by more than that."""

    def count(text: str) -> int:
        found, length = estimate(text), len(text)
        if found is not None:
            return found
        if length <= _WHOLE_CHARS:
            return encode(text)
        slices = even_slices(text, _SLICE_CHARS)
        tokens = sum(map(encode, slices)) - _EDGE_TOKENS * len(slices)
        return max(1, round(tokens * length / (len(slices) * _SLICE_CHARS)))

    return count


class TokenCounter:
    """Counts a text once and remembers the count by its digest. The least recently used counts are dropped first."""

    def __init__(
        self, encode: Encode = bytes_over_four, *, capacity: int = 200_000, base: "TokenCounter | None" = None
    ) -> None:
        """``base`` is asked for counts that are not known here. It is read, never written."""
        self._encode = encode
        self._capacity = capacity
        self._base = base
        self._counts: LastUsed[bytes, int] = LastUsed(capacity)

    def fork(self) -> "TokenCounter":
        """A counter that knows what this one knows and may be used in another thread; see ``merge``."""
        return TokenCounter(self._encode, capacity=self._capacity, base=self)

    def merge(self, other: "TokenCounter") -> None:
        for digest, count in other._counts.items():
            self._counts.put(digest, count)

    def known(self, digest: bytes) -> int | None:
        """Tokens of the text with this digest; None if they have not been counted."""
        return self._counts.find(digest)

    def count(self, digest: bytes, text: str) -> int:
        """Tokens of ``text``, whose digest is ``digest``."""
        return self.counted(digest, lambda: self._encode(text))

    def counted(self, key: bytes, count: Callable[[], int]) -> int:
        """The count that is remembered under this key. If there is none, it is made."""
        known = self._counts.find(key)
        if known is not None:
            return known
        before = self._base._counts.get(key) if self._base is not None else None
        tokens = count() if before is None else before
        self._counts.put(key, tokens)
        return tokens

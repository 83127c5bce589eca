"""Token counts: tokens of ordinary text are estimated from the kinds of its characters, and each text is counted once.

A tokeniser looks up every word in a table of tens of megabytes, which does not fit into the processor's caches: this
took a sixth of the layout's time. The estimate deletes one kind of characters after another and compares the lengths,
which needs no table. The weights are a least-squares fit to o200k_base's counts on recorded prompts, source code,
markup and prose, plain and in JSON, 8,000 texts of 30 to 60,000 characters. The error is 4 % at the median and 15 % at
the 95th percentile of texts above 100 tokens, and 1 % over all texts. Providers' own tokenisers differ by more.
"""

import re
from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase, digits, punctuation

from msgspec import Raw

from proxy.kit.lru import LastUsed
from proxy.kit.value import digest
from proxy.protocol.wire.json_body import Members, elements, join_members, members_of, raw_text, utf8, value

_KINDS = [kind.encode() for kind in (ascii_lowercase, ascii_uppercase, digits, punctuation)]
# Pairs of characters that mostly are one token.
_PAIRS = (b'("', b'",', b"):", b"()", b"--", b"==", b'":')

# Beyond these shares, a text is unlike the texts to which the weights were fitted: keys, hashes, tables of numbers,
# drawings, other scripts.
_MOST_UPPER = 0.4
_MOST_DIGITS = 0.2
_MOST_WIDE = 0.02
_MOST_PUNCTUATION = 0.42

# A text longer than this is judged by slices of it.
_WHOLLY_SEEN_CHARS = 1_200
_SEEN_SLICE_CHARS = 300
_SAMPLE_SHARE = 16
_MIN_SLICES = 4


def estimate(text: str) -> int | None:
    """About how many tokens a text has; None for a text that is not ordinary."""
    seen = text if len(text) <= _WHOLLY_SEEN_CHARS else "".join(even_slices(text, _SEEN_SLICE_CHARS))
    data = seen.encode("utf-8", "surrogatepass")
    size = len(data)
    wide = size - len(seen)
    lower, upper, numbers, marks = [size - len(data.translate(None, kind)) for kind in _KINDS]
    is_dense = numbers > _MOST_DIGITS * size or wide > _MOST_WIDE * size or marks > _MOST_PUNCTUATION * size
    if is_dense or upper > _MOST_UPPER * lower:
        return None
    count = data.count
    tokens = (
        0.751
        + 0.137 * lower
        + 0.232 * upper
        + 0.844 * numbers
        + 0.682 * marks
        + 0.429 * count(b" ")
        - 0.849 * count(b"  ")
        + 0.363 * count(b"\n")
        + 1.232 * count(b"\n ")
        + 0.443 * wide
        - 0.190 * count(b"\\")
        + 1.949 * count(b"\\n ")
        - 1.079 * sum([count(pair) for pair in _PAIRS])
    )
    return max(1, round(tokens * len(text) / len(seen) if len(seen) < len(text) else tokens))


def even_slices(text: str, chars: int) -> list[str]:
    """Evenly spaced slices of ``chars`` characters each: a sixteenth of a long text in all, and at least four
    slices."""
    count = max(_MIN_SLICES, len(text) // (chars * _SAMPLE_SHARE))
    step = len(text) / count
    margin = (step - chars) / 2
    return [text[start : start + chars] for start in [int(i * step + margin) for i in range(count)]]


Encode = Callable[[str], int]

# Message framing in OpenAI's chat format: about four tokens a message (OpenAI cookbook, "How to count tokens").
MESSAGE_OVERHEAD_TOKENS = 4
# A low-detail image costs 85 tokens, a 1024 x 1024 one at high detail 765 (OpenAI, "Images and vision").
IMAGE_TOKENS = 765


_MEDIA = frozenset({
    "image_url", "image", "input_image", "input_audio", "audio_url", "video_url", "video",
    "file", "input_file", "document",
})  # fmt: skip
THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
"""The types of parts that hold a model's thinking."""
_CALL = "function_call"
_BESIDE = ("thinking_blocks", "reasoning_details", "reasoning_content", "reasoning", _CALL)
# What is signed or encrypted is no text, and has about as many tokens as the text that stands beside it.
_SEAL = re.compile(rb'"(?:signature|data|encrypted_content)"\s*:\s*"[^"]*",?')
_NULL = Raw(b"null")


def read_as_text(raw: Raw, members: Members) -> tuple[bytes, int]:
    """The JSON that a model reads as text of a part of a message, and how many images, sounds and files the part has,
    also in its own content, as a result of a tool has them. Their data has no tokens. Raises Unreadable."""
    if _is_medium(members):
        return b"", 1
    content = members.get("content", _NULL)
    inner = elements(content) if bytes(memoryview(content)[:1]) == b"[" else ()
    kept = [bytes(one) for one in inner if bytes(memoryview(one)[:1]) != b"{" or not _is_medium(members_of(one))]
    if len(kept) == len(inner):
        is_thinking = value(members.get("type", _NULL)) in THOUGHTS
        return _SEAL.sub(b"", bytes(raw)) if is_thinking else bytes(raw), 0
    return join_members(members, {"content": b"[" + b",".join(kept) + b"]"}), len(inner) - len(kept)


def _is_medium(members: Members) -> bool:
    """Whether a part is an image, a sound or a file. A document whose source is a text is none."""
    kind = value(members.get("type", _NULL))
    if not isinstance(kind, str) or kind not in _MEDIA:
        return False
    source = members.get("source", _NULL)
    is_given = bytes(memoryview(source)[:1]) == b"{" and "type" in (of := members_of(source))
    return not (is_given and value(of["type"]) in ("text", "content"))


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
        for key, count in other._counts.items():
            self._counts.put(key, count)

    def known(self, digest: bytes) -> int | None:
        """Tokens of the text with this digest; None if they have not been counted."""
        return self._counts.find(digest)

    def count(self, digest: bytes, text: str) -> int:
        """Tokens of ``text``, whose digest is ``digest``."""
        known = self._counts.find(digest)  # most texts were counted before
        return self.counted(digest, self._encode, text) if known is None else known

    def counted(self, key: bytes, count: Callable[..., int], *counted: object) -> int:
        """The count that is remembered under this key. If there is none, it is made of what is ``counted``."""
        known = self._counts.find(key)
        if known is not None:
            return known
        before = self._base._counts.get(key) if self._base is not None else None
        tokens = count(*counted) if before is None else before
        self._counts.put(key, tokens)
        return tokens

    def beside(self, members: Members) -> int:
        """Tokens of what a message says beside its content and its list of calls: a call in OpenAI's first form, and
        the thinking that clients send back. Some of them send the same thinking in several forms, of which the model
        reads one."""
        said = {name: bytes(members[name]) for name in _BESIDE if members.get(name, _NULL) != _NULL}
        texts = {name: raw_text(_SEAL.sub(b"", raw)) for name, raw in said.items()}
        sizes = {name: self.count(digest(b"beside", utf8(text)), text) for name, text in texts.items()}
        return sizes.pop(_CALL, 0) + max(sizes.values(), default=0)

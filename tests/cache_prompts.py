"""Prompts of (content, tokens) blocks for tests of cache models."""

from collections.abc import Sequence
from hashlib import sha256

from proxy.protocol.caches import Bill, Life, PromptPositions


def prompt(
    blocks: Sequence[tuple[str, int]],
    marks: dict[int, Life] | None = None,
    *,
    runs: Sequence[int] | None = None,
    scope: bytes = b"account/model",
    endings: Sequence[int] = (),
    head_end: int = -1,
) -> PromptPositions:
    """A prompt of (content, tokens) blocks."""
    hashes, ends, state, total = [], [], b"", 0
    for text, tokens in blocks:
        state = sha256(state + text.encode()).digest()[:16]
        total += tokens
        hashes.append(state)
        ends.append(total)
    numbers = tuple(runs or range(len(blocks)))
    return PromptPositions(scope, tuple(hashes), tuple(ends), numbers, marks or {}, tuple(endings), head_end)


def line(count: int, tokens: int = 100, label: str = "b") -> list[tuple[str, int]]:
    """``count`` blocks of equal size."""
    return [(f"{label}{i}", tokens) for i in range(count)]


def parts(bill: Bill) -> tuple[int, int, int, int]:
    """The tokens of a bill: read, written for the long life, written for the short life, plain."""
    return bill.read, bill.write_1h, bill.write_5m, bill.plain

"""A prompt as a provider's cache sees it, and the bill for the prompt."""

from collections.abc import Mapping
from typing import Literal, Protocol

from proxy.core.value import dataclass, field

Life = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The positions of a prompt, in the provider's own order: tools, then system, then messages.

    ``hashes[i]`` is the chained digest of everything up to and including position i (16 bytes or more); two prompts
    share a prefix up to i exactly when their ``hashes[i]`` are equal. ``ends[i]`` is the number of prompt tokens up to
    and including position i (so ``ends[-1]`` is the prompt's length in tokens). ``marks`` maps a position to the life
    of the cache marker that stands on it. ``runs[i]`` numbers the position for look-back counting: positions with equal
    numbers (a run of tool calls or of tool results within one message) count once. ``scope`` identifies the account,
    the model, and the settings that render into the prompt; the provider keeps different scopes apart. It is empty if
    nothing is cached.

    ``endings`` and ``head_end`` are for providers that set boundaries of their own. ``endings`` are the positions,
    ascending, at which the messages end that are eligible for a boundary (users' messages, and the last tool output of
    a group). ``head_end`` is the position at which the opening instructions end. They are empty and -1 if the provider
    sets no boundaries, or was told not to.
    """

    scope: bytes
    hashes: tuple[bytes, ...]
    ends: tuple[int, ...]
    runs: tuple[int, ...]
    marks: Mapping[int, Life] = field(default_factory=dict)
    endings: tuple[int, ...] = ()
    head_end: int = -1

    @property
    def total(self) -> int:
        return self.ends[-1] if self.ends else 0


class Parts(Protocol):
    """A prompt's tokens by the rate at which they are billed: a ``Bill`` or a ``Usage``."""

    @property
    def read(self) -> int: ...
    @property
    def write_5m(self) -> int: ...
    @property
    def write_1h(self) -> int: ...
    @property
    def plain(self) -> int: ...
    @property
    def total(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Bill:
    """The tokens of one prompt by the rate at which they are billed. The four counts add up to the prompt's tokens.

    ``hit`` is the position up to which the prompt was read (-1: nothing was read).
    """

    read: int
    write_5m: int
    write_1h: int
    plain: int
    hit: int = -1

    @property
    def write(self) -> int:
        return self.write_5m + self.write_1h

    @property
    def total(self) -> int:
        return self.read + self.write_5m + self.write_1h + self.plain


@dataclass(slots=True)
class BillSum:
    """The sum of several bills."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    plain: int = 0

    @property
    def prompt(self) -> int:
        return self.read + self.write_5m + self.write_1h + self.plain

    def add(self, bill: Parts) -> None:
        """Add one more bill."""
        self.read += bill.read
        self.write_5m += bill.write_5m
        self.write_1h += bill.write_1h
        self.plain += bill.plain

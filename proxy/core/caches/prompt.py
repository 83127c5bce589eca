"""A prompt as a provider's cache sees it, and the bill for it."""

from collections.abc import Mapping
from typing import Literal, Protocol

from proxy.core.value import dataclass, field

Life = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Positions in the provider's own order: tools, then system, then messages.

    ``hashes[i]`` is the chained digest of everything up to and including position i (16 bytes or more); two prompts
    share a prefix up to i exactly when their ``hashes[i]`` are equal. ``ends[i]`` is the number of prompt tokens up to
    and including position i (so ``ends[-1]`` is the prompt's length in tokens). ``marks`` maps a position to the life
    of the cache marker that stands on it. ``runs[i]`` numbers the position for look-back counting: positions with equal
    numbers (a run of tool calls or of tool results within one message) count once. ``scope`` names what the provider
    keeps apart: account, model, and the settings that render into the prompt; empty where nothing is cached.

    For providers that set boundaries of their own: ``endings`` are the positions, ascending, at which messages end that
    are eligible for one (users', and the last tool output of a group), ``head_end`` is where the opening instructions
    end. Empty and -1 where the provider sets none, or was told not to.
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
    """A prompt's tokens by the rate they are billed at: a ``Bill`` or a ``Usage``."""

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
    """Tokens of one prompt by the rate they are billed at; the four add up to the prompt's tokens.

    ``hit`` is the position that was read up to (-1: nothing was read).
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
    """Bills, added up."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    plain: int = 0

    @property
    def prompt(self) -> int:
        return self.read + self.write_5m + self.write_1h + self.plain

    def add(self, bill: Parts) -> None:
        """Count one more."""
        self.read += bill.read
        self.write_5m += bill.write_5m
        self.write_1h += bill.write_1h
        self.plain += bill.plain

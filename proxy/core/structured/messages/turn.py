"""A message of the client's, and what is read of it."""

from dataclasses import dataclass
from functools import cached_property

from proxy.core.digest import digest
from proxy.core.request.message import SYSTEM_ROLES
from proxy.core.request.tokens import TokenCounter
from proxy.core.structured.messages.markers import unmarked
from proxy.core.wire.json_body import Members, Unreadable, members_of, value

_RESULT_ROLES = frozenset({"tool", "function"})


@dataclass(frozen=True)
class Turn:
    """A message as it came. It has no slots, so that what is read of it is kept: each is read once, by whoever asks
    first."""

    raw: bytes

    @cached_property
    def members(self) -> Members:
        """The members of the message. Raises Unreadable where it is no JSON object."""
        return members_of(self.raw)

    @cached_property
    def role(self) -> str:
        """The role; empty where the message names none."""
        try:
            role = value(self.members["role"]) if "role" in self.members else None
        except Unreadable:
            return ""
        return role if isinstance(role, str) else ""

    @cached_property
    def bare(self) -> bytes:
        """The message without markers. A client moves its markers from turn to turn: only without them does a message
        stay the same for as long as its content does."""
        return unmarked(self.raw)

    @cached_property
    def digest(self) -> bytes:
        """The digest of the message without markers."""
        return digest(self.bare)

    def tokens(self, counter: TokenCounter) -> int:
        """The tokens of the message without markers: what is frozen goes by it."""
        return counter.count(self.digest, self.bare.decode("utf-8", "replace"))

    @property
    def without_marks(self) -> "Turn":
        """The message without markers, as a turn."""
        return self if self.bare is self.raw else Turn(self.bare)

    @property
    def is_system(self) -> bool:
        """Whether it is a system or developer message."""
        return self.role in SYSTEM_ROLES

    @property
    def is_result(self) -> bool:
        """Whether it answers a call of the message in front of it, or of an earlier one of the same run."""
        return self.role in _RESULT_ROLES

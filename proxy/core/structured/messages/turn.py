"""A message of the client's, and what is read of it."""

from msgspec import Struct

from proxy.core.digest import digest
from proxy.core.request.message import SYSTEM_ROLES
from proxy.core.request.tokens import TokenCounter
from proxy.core.structured.messages.markers import unmarked
from proxy.core.wire.json_body import Members, Unreadable, members_of, value

_RESULT_ROLES = frozenset({"tool", "function"})
_RESULT_PART = b'"tool_result"'


class Turn(Struct, frozen=True, gc=False):
    """A message as it came, and what is read of it, once. (A struct, not a dataclass: a request has thousands.)

    ``role`` is empty where the message names none. ``bare`` is the message without markers, and ``digest`` the digest
    of that: a client moves its markers from turn to turn, and only without them does a message stay the same for as
    long as its content does. ``has_results``: it answers calls of a message in front of it, by its role, or by a part
    of its content, as some clients write it into a user message. ``parsed`` are its members, None where it is no JSON
    object."""

    raw: bytes
    role: str
    bare: bytes
    digest: bytes
    has_results: bool
    parsed: Members | None

    @classmethod
    def of(cls, raw: bytes) -> "Turn":
        """The message, read. What is no JSON object is a message without a role."""
        try:
            parsed = members_of(raw)
            role = value(parsed["role"]) if "role" in parsed else None
        except Unreadable:
            parsed, role = None, None
        role, bare = role if isinstance(role, str) else "", unmarked(raw)
        has_results = role in _RESULT_ROLES or (role == "user" and _RESULT_PART in raw)
        return cls(raw, role, bare, digest(bare), has_results, parsed)

    def __hash__(self) -> int:
        return hash(self.raw)

    @property
    def members(self) -> Members:
        """The members of the message. Raises Unreadable where it is no JSON object."""
        if self.parsed is None:
            raise Unreadable("no JSON object")
        return self.parsed

    @property
    def is_system(self) -> bool:
        """Whether it is a system or developer message."""
        return self.role in SYSTEM_ROLES

    @property
    def is_result(self) -> bool:
        """Whether it is a message of its own that answers a call, by its role."""
        return self.role in _RESULT_ROLES

    def tokens(self, counter: TokenCounter) -> int:
        """The tokens of the message without markers: what is frozen goes by it."""
        return counter.count(self.digest, self.bare.decode("utf-8", "replace"))

"""What a client says of single messages of its conversation."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What shall become of a message."""

    ACTIVE = "active"
    """It is sent as it came."""
    SUMMARIZED = "summarized"
    """Its short form is sent in place of its content."""
    DELETED = "deleted"
    """It is not sent."""
    DETACHED = "detached"
    """It is not sent: the client shows it elsewhere, as in a panel."""


@dataclass(frozen=True, slots=True)
class MessageMeta:
    """The status of one message. ``tl_dr`` is the short form of a summarized one, and empty for all others."""

    status: Status
    tl_dr: str = ""

    @property
    def is_sent(self) -> bool:
        """Whether the message is sent in some form."""
        return self.status in (Status.ACTIVE, Status.SUMMARIZED)


@dataclass(frozen=True, slots=True)
class DetachTerms:
    """When the oldest part of a conversation is frozen: it has at least so many messages and tokens, and so many of
    either stay behind it. The defaults are those of the original of these rules.

    Clients and operators ask for it by the name ``detach``, as the original calls it. What the proxy does is called
    freezing, and what comes of it a chunk. A message of the status ``detached`` is another matter: the client itself
    shows it elsewhere."""

    chunk_messages: int = 25
    chunk_tokens: int = 5_000
    keep_messages: int = 25
    keep_tokens: int = 7_500

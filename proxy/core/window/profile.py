"""Capability profiles: each has its own budget, and shares nothing with another one by accident."""

from dataclasses import dataclass
from enum import StrEnum


class Capability(StrEnum):
    """What a profile's requests are, which decides what is shortened and in which order."""

    COMPLETION = "completion"
    EDIT = "edit"
    CHAT = "chat"
    CHAT_OPS = "chat_ops"


class OverBudget(StrEnum):
    """What becomes of a request that the upstream refuses as too large."""

    EMPTY = "empty"
    """The client gets an empty, valid completion."""
    RETRY = "retry"
    """It is sent again with a smaller budget; where that does not help, it is an error."""
    ERROR = "error"
    """The client gets ``context_length_exceeded``."""


@dataclass(frozen=True, slots=True)
class PartCaps:
    """The most tokens of single parts; None: no cap of its own."""

    system: int | None = None
    instruction: int | None = None
    selection: int | None = None
    prefix: int | None = None
    suffix: int | None = None
    summary: int | None = None


@dataclass(frozen=True, slots=True)
class CapabilityProfile:
    """The budget of one kind of request, in tokens. ``window_tokens`` None: that of the model. ``output_tokens`` are
    reserved for the answer where the request names no maximum. ``tail_messages`` is how many messages of the
    conversation are sent at most; None: as many as fit. ``template`` is the id of the prompt that is composed as the
    system text of the profile ("": none)."""

    name: str
    capability: Capability
    window_tokens: int | None = None
    output_tokens: int = 4_096
    margin_tokens: int = 256
    caps: PartCaps = PartCaps()
    tail_messages: int | None = None
    may_shorten_system: bool = False
    template: str = ""
    over_budget: OverBudget = OverBudget.ERROR

"""One recorded call of a model, whatever log it comes from."""

from dataclasses import dataclass
from enum import StrEnum

from proxy.core.diagnosis.record import PromptRecord
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage


class Wire(StrEnum):
    """The form of a request body."""

    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


class Gap(StrEnum):
    """What a log does not hold of a call."""

    NO_REQUEST = "request"
    REDACTED = "redacted"
    CUT = "cut"
    NO_USAGE = "usage"
    NO_TIME = "time"
    NO_PROMPT_START = "prompt-start"
    """The provider keeps the beginning of the conversation, and the request holds only what was new."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """``line`` is where it stands in its file. ``at`` are unix seconds; None where the log does not tell. ``client`` is
    whose prompt it is, as well as the log can tell, and ``session`` a name of its conversation, empty where there is
    none. ``body`` are the bytes of the request, None where the log does not hold them, and ``record`` the same by
    digests, where the log has those. ``provider`` is LiteLLM's name of it and ``profile`` that of the cache's rules,
    empty where the log does not tell. ``cause`` is what the provider itself says of a miss
    (``proxy.core.response.miss_diagnostics``). ``is_compacted``: the client has just put a summary in the place of its
    conversation."""

    line: int
    log: str
    at: float | None
    client: str
    session: str
    model: str
    wire: Wire
    body: bytes | None
    usage: Usage | None
    gaps: frozenset[Gap] = frozenset()
    provider: str = ""
    cause: str = UNTOLD
    profile: str = ""
    record: PromptRecord | None = None
    is_compacted: bool = False

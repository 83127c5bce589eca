"""One recorded call of a model from a log of any product, and the problems with log records that are not calls."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from proxy.core.diagnosis.record import PromptRecord
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass

LineSigns = Mapping[int, str]
"""The evident kind of a line of a text ("time", "date", "random", "counter"), by line number; 0: the whole text."""


CutSizes = Sequence[tuple[str, str, bytes, int]]
"""The parts of a text that a recogniser knows: key, kind, digest and length in characters."""


class Gap(StrEnum):
    """A part of a call that a log does not hold. ``NO_PROMPT_START``: the provider keeps the beginning of the
    conversation, and the request holds only the new part."""

    NO_REQUEST = "request"
    REDACTED = "redacted"
    CUT = "cut"
    NO_USAGE = "usage"
    NO_TIME = "time"
    NO_PROMPT_START = "prompt-start"


class Call(Struct, frozen=True, array_like=True, kw_only=True):
    """``line`` is the call's line in its file. ``at`` is the time in unix seconds; None if the log does not tell it.
    ``client`` is the client that sent the prompt, as well as the log can tell, and ``session`` is a name of its
    conversation. ``provider`` is LiteLLM's name of the provider, and ``profile`` is the name of the cache rules.
    ``body`` holds the bytes of the request, and ``record`` the same request as digests; both are None if the log does
    not hold them. ``cause`` is the cause of a miss that the provider itself reports
    (``proxy.core.response.miss_diagnostics``). ``is_chat``: a chat completion was asked for. ``is_compacted``: the
    client has just replaced its conversation by a summary. ``signs`` are the signs of the system texts, by the texts'
    digests. ``cuts`` are the parts of texts that a recogniser knows, also by the texts' digests. ``continues``: the
    provider keeps the conversation in front of the prompt."""

    line: int
    at: float | None
    client: str
    session: str
    model: str
    is_chat: bool = True
    provider: str = ""
    profile: str = ""
    body: bytes | None = None
    record: PromptRecord | None = None
    usage: Usage | None = None
    cause: str = UNTOLD
    gaps: frozenset[Gap] = frozenset()
    is_compacted: bool = False
    signs: Mapping[bytes, LineSigns] = {}
    cuts: Mapping[bytes, CutSizes] = {}
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that was left out of a file: ``count`` records for the same reason, the first at ``line`` (0: the whole
    file). ``text`` is a sentence whose subject is the line, or the file."""

    file: str = ""
    line: int
    count: int = 1
    text: str

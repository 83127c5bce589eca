"""One recorded call of a model, whatever log it comes from, and what stands in a log and is none."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from proxy.core.diagnosis.record import PromptRecord
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass

LineSigns = Mapping[int, str]
"""What a line of a text evidently is ("time", "date", "random", "counter"), by its number; 0: the text as a whole."""


CutSizes = Sequence[tuple[str, str, bytes, int]]
"""A text that a recogniser knows, by its parts: key, kind, digest and length in characters."""


class Gap(StrEnum):
    """A part of a call that a log does not hold. ``NO_PROMPT_START``: the provider keeps the beginning of the
    conversation, and the request holds only what was new."""

    NO_REQUEST = "request"
    REDACTED = "redacted"
    CUT = "cut"
    NO_USAGE = "usage"
    NO_TIME = "time"
    NO_PROMPT_START = "prompt-start"


class Call(Struct, frozen=True, array_like=True, kw_only=True):
    """``line`` is where it stands in its file. ``at`` are unix seconds; None where the log does not tell. ``client`` is
    whose prompt it is, as well as the log can tell, and ``session`` a name of its conversation. ``provider`` is
    LiteLLM's name of it and ``profile`` that of the cache's rules. ``body`` are the bytes of the request, and
    ``record`` the same by digests; None where the log does not hold them. ``cause`` is what the provider itself says of
    a miss (``proxy.core.response.miss_diagnostics``). ``is_chat``: a chat completion was asked for. ``is_compacted``:
    the client has just put a summary in the place of its conversation. ``signs`` are those of the system texts by their
    digests, ``cuts`` the parts of texts that a recogniser knows likewise, and ``continues``: the provider keeps what
    stands in front of the prompt."""

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
    """Something that was left out of a file: ``count`` records for the same reason, the first at ``line`` (0: the
    file). ``text`` is a sentence whose subject is the line, or the file."""

    file: str = ""
    line: int
    count: int = 1
    text: str

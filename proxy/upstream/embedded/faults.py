"""Failures on demand, from ``Deployment.params["faults"]`` or the request header ``x-embedded-fault``.

A fault is ``kind[;n=1][;seconds=2][;after=3][;status=503]``. ``n`` is how many requests of an account have the fault
(all requests if it is not given; faults of the same text share their count). ``seconds`` is a wait or a retry-after,
and ``after`` is the number of chunks that are sent before the fault.

- ``rate-limit``: 429 with ``retry-after``.
- ``error``: 500, or ``status``.
- ``slow-headers``, ``slow-first-byte``: a wait before the answer, or before its first byte.
- ``cut``: the connection breaks in the middle of the answer.
- ``empty-stream``: a 200 with only ``[DONE]``; ``no-bytes``: a 200 without a byte.
- ``refuse-rewrite``: a 400 if any cache marker is present.
"""

from collections.abc import Iterable
from enum import StrEnum

from proxy.core.value import dataclass
from proxy.errors import UpstreamRejected

FAULT_HEADER = "x-embedded-fault"


class FaultKind(StrEnum):
    """A kind of failure."""

    RATE_LIMIT = "rate-limit"
    ERROR = "error"
    SLOW_HEADERS = "slow-headers"
    SLOW_FIRST_BYTE = "slow-first-byte"
    CUT = "cut"
    EMPTY_STREAM = "empty-stream"
    NO_BYTES = "no-bytes"
    REFUSE_REWRITE = "refuse-rewrite"


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure. ``text`` is the text in which it was written; it identifies the fault."""

    kind: FaultKind
    text: str
    n: int | None = None
    seconds: float = 1.0
    after: int = 3
    status: int = 500


def parse_fault(text: str) -> Fault:
    """A fault from its text. Raises ValueError."""
    kind, *pairs = (part.strip() for part in text.split(";"))
    options = dict(pair.partition("=")[::2] for pair in pairs if pair)
    return Fault(
        kind=FaultKind(kind),
        text=text,
        n=int(options["n"]) if "n" in options else None,
        seconds=float(options.get("seconds", 1.0)),
        after=int(options.get("after", 3)),
        status=int(options.get("status", 500)),
    )


def parse_faults(texts: object) -> list[Fault]:
    """Faults as they are written in a configuration file: one text, or a list of texts. Raises ValueError."""
    if texts is None:
        return []
    if isinstance(texts, str):
        return [parse_fault(texts)]
    if not isinstance(texts, Iterable):
        raise ValueError(f"faults must be a text or a list of texts; got {texts!r}")
    return [parse_fault(str(text)) for text in texts]


def rejection(fault: Fault, body: bytes) -> UpstreamRejected | None:
    """The error answer of a fault, if the fault is an error answer."""
    match fault.kind:
        case FaultKind.RATE_LIMIT:
            return UpstreamRejected(
                "Rate limit reached for requests. Please try again later.",
                status=429,
                error_type="requests",
                code="rate_limit_exceeded",
                headers={"retry-after": f"{fault.seconds:g}", "x-ratelimit-remaining-requests": "0"},
            )
        case FaultKind.ERROR:
            return UpstreamRejected(
                "The server had an error while processing your request.",
                status=fault.status,
                error_type="server_error",
            )
        case FaultKind.REFUSE_REWRITE if b'"cache_control"' in body or b'"prompt_cache_breakpoint"' in body:
            return UpstreamRejected(
                "Cache markers are not accepted.", status=400, error_type="invalid_request_error", param="messages"
            )
        case _:
            return None

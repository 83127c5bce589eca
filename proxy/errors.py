"""Every error a client can see, and the one builder of its JSON.

    ProxyError
    ├── InvalidRequest        400 invalid_request_error  (code per case: invalid_json, missing_messages, ...)
    │   ├── PayloadTooLarge   413 invalid_request_error  request_too_large
    │   ├── HeadersTooLarge   431 invalid_request_error  headers_too_large
    │   └── RequestTimeout    408 invalid_request_error  request_timeout
    ├── Unauthorized          401 invalid_request_error  invalid_api_key
    ├── Forbidden             403 invalid_request_error  model_not_allowed
    ├── NotFound              404 invalid_request_error  not_found
    │   └── UnknownModel      404 invalid_request_error  model_not_found
    ├── Conflict              409 invalid_request_error  conflict
    ├── MethodNotAllowed      405 invalid_request_error  method_not_allowed
    ├── BudgetExceeded        429 insufficient_quota     insufficient_quota   (+ x-should-retry: false)
    ├── RateLimited           429 requests | tokens      rate_limit_exceeded  (+ retry-after)
    ├── BudgetUnavailable     503 server_error           budget_unavailable
    ├── UpstreamError         502 server_error           upstream_error
    │   ├── UpstreamUnavailable  502 server_error        upstream_unavailable
    │   ├── UpstreamTimeout      504 server_error        upstream_timeout
    │   ├── CircuitOpen          503 server_error        circuit_open         (+ retry-after)
    │   └── UpstreamRejected     (the provider's own status, type, code and param)
    ├── NotReady              503 server_error           not_ready
    ├── ShuttingDown          503 server_error           shutting_down        (+ retry-after)
    └── InternalError         500 server_error           internal_error

The shape is OpenAI's: ``{"error": {"message", "type", "param", "code"}}``.
"""

from collections.abc import Mapping
from typing import ClassVar

import orjson


class ProxyError(Exception):
    """An error with a status and an OpenAI-shaped body. ``message`` says what to change; it never holds prompt text."""

    status: int = 500
    type: ClassVar[str] = "server_error"
    code: str | None = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code
        self.headers = dict(headers or {})


class InvalidRequest(ProxyError):
    """The client's request cannot be read."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class PayloadTooLarge(InvalidRequest):
    """The body is larger than the configured limit."""

    status = 413
    code = "request_too_large"


class HeadersTooLarge(InvalidRequest):
    """The headers are larger, or more, than the configured limit."""

    status = 431
    code = "headers_too_large"


class RequestTimeout(InvalidRequest):
    """The request did not arrive in time."""

    status = 408
    code = "request_timeout"


class Unauthorized(ProxyError):
    """No key, or a key that is not known here."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class Forbidden(ProxyError):
    """The key is known and may not do this."""

    status = 403
    type = "invalid_request_error"
    code = "model_not_allowed"


class NotFound(ProxyError):
    """Nothing is served under this path."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class UnknownModel(NotFound):
    """No entry of the model list serves this name."""

    code = "model_not_found"


class Conflict(ProxyError):
    """What shall be made is there already, or belongs to the configuration."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class MethodNotAllowed(ProxyError):
    """The path is served, with another method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class BudgetExceeded(ProxyError):
    """A hard budget is spent. Clients must not retry."""

    status = 429
    type = "insufficient_quota"
    code = "insufficient_quota"

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, headers={**(headers or {}), "x-should-retry": "false"})


class RateLimited(ProxyError):
    """A key's or a team's limit of requests or tokens in a time is reached. ``kind`` is what there were too many of."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, kind: str, retry_after_s: int) -> None:
        super().__init__(message, headers={"retry-after": str(retry_after_s)})
        self.kind = kind


class BudgetUnavailable(ProxyError):
    """What a team has spent cannot be read, and the config says to refuse then."""

    status = 503
    code = "budget_unavailable"


class UpstreamError(ProxyError):
    """Something behind the proxy failed."""

    status = 502
    code: str | None = "upstream_error"


class UpstreamUnavailable(UpstreamError):
    """No connection, or the line broke."""

    code = "upstream_unavailable"


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time."""

    status = 504
    code = "upstream_timeout"


class CircuitOpen(UpstreamError):
    """The upstream failed again and again; it is not called for a moment."""

    status = 503
    code = "circuit_open"


class UpstreamRejected(UpstreamError):
    """The provider's own refusal, seen through a library: its status, type and code pass."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        error_type: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, param=param, headers=headers)
        self.code = code
        self.status = status
        self.error_type = error_type


class NotReady(ProxyError):
    """The proxy is up and should not be sent traffic yet."""

    status = 503
    code = "not_ready"


class ShuttingDown(ProxyError):
    """The proxy was told to stop, and its patience is at an end."""

    status = 503
    code = "shutting_down"


class InternalError(ProxyError):
    """A surprise of our own."""


def error_body(error: ProxyError) -> bytes:
    """The JSON body for an error."""
    match error:
        case UpstreamRejected():
            kind = error.error_type
        case RateLimited():
            kind = error.kind
        case _:
            kind = error.type
    return orjson.dumps({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})


def sse_error(error: ProxyError) -> bytes:
    """The error as a server-sent event, for a stream that has begun. No ``[DONE]`` follows it."""
    return b"data: " + error_body(error) + b"\n\n"

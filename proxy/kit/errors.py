"""Every error that a client can see, and the one function that builds its JSON.

    ProxyError
    ├── InvalidRequest        400 invalid_request_error  (code per case: invalid_json, missing_messages, ...)
    │   ├── PayloadTooLarge   413 invalid_request_error  request_too_large
    │   ├── ContextTooLong    400 invalid_request_error  context_length_exceeded
    │   ├── HeadersTooLarge   431 invalid_request_error  headers_too_large
    │   └── RequestTimeout    408 invalid_request_error  request_timeout
    ├── Unauthorized          401 invalid_request_error  invalid_api_key
    ├── Forbidden             403 invalid_request_error  model_not_allowed
    ├── NotFound              404 invalid_request_error  not_found
    │   └── UnknownModel      404 invalid_request_error  model_not_found
    ├── Conflict              409 invalid_request_error  conflict
    │   └── MissingContent    409 invalid_request_error  missing_content      (+ x-should-retry: false, "missing")
    ├── MethodNotAllowed      405 invalid_request_error  method_not_allowed
    ├── BudgetExceeded        429 insufficient_quota     insufficient_quota   (+ x-should-retry: false)
    ├── RateLimited           429 requests | tokens      rate_limit_exceeded  (+ retry-after)
    ├── BudgetUnavailable     503 server_error           budget_unavailable
    ├── StoreUnavailable      503 server_error           store_unavailable
    ├── UpstreamError         502 server_error           upstream_error
    │   ├── UpstreamUnavailable  502 server_error        upstream_unavailable
    │   ├── UpstreamTimeout      504 server_error        upstream_timeout
    │   ├── CircuitOpen          503 server_error        circuit_open         (+ retry-after)
    │   ├── UpstreamLoading      503 server_error        upstream_loading     (+ retry-after)
    │   └── UpstreamRejected     (the provider's own status, type, code and param)
    ├── NotReady              503 server_error           not_ready
    ├── ShuttingDown          503 server_error           shutting_down        (+ retry-after)
    ├── PromptInvalid         500 server_error           prompt_invalid
    └── InternalError         500 server_error           internal_error

The shape is OpenAI's: ``{"error": {"message", "type", "param", "code"}}``; on Anthropic's paths (``/messages``) it is
Anthropic's: ``{"type": "error", "error": {"type", "message", ...}}`` (https://docs.anthropic.com/en/api/errors).
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self

import orjson


class ErrorForm(StrEnum):
    """How an error is written."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def type_of_status(status: int, of_server: str = "server_error") -> str:
    """The type of an error that has only a status, as Anthropic names types. ``of_server`` is the type of all failures
    of a server that have no name of their own."""
    return _TYPES.get(status, "invalid_request_error" if status < 500 else of_server)


class ProxyError(Exception):
    """An error with a status and an OpenAI-shaped body. ``message`` says what to change; it never holds prompt text."""

    status: int = 500
    type: str = "server_error"
    code: str | None = "internal_error"

    def __init_subclass__(cls, status: int | None = None, type: str = "", code: str = "") -> None:
        """A subclass states only what differs from its base: its status, its type or its code."""
        super().__init_subclass__()
        cls.status, cls.type, cls.code = status or cls.status, type or cls.type, code or cls.code

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


class InvalidRequest(ProxyError, status=400, type="invalid_request_error", code="invalid_request"):
    """The client's request cannot be read."""


class PayloadTooLarge(InvalidRequest, status=413, code="request_too_large"):
    """The body is larger than the configured limit."""


class HeadersTooLarge(InvalidRequest, status=431, code="headers_too_large"):
    """The headers have more bytes than the configured limit, or there are more headers than it allows."""


class ContextTooLong(InvalidRequest, code="context_length_exceeded"):
    """The request does not fit the context window, even without the parts that may be left out. ``sizes`` are the
    counted tokens of each component. The message states them, and no text of the prompt."""

    def __init__(self, message: str, *, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__(message, param="messages")
        self.sizes = dict(sizes or {})


class RequestTimeout(InvalidRequest, status=408, code="request_timeout"):
    """The request did not arrive in time."""


class Unauthorized(ProxyError, status=401, type="invalid_request_error", code="invalid_api_key"):
    """The request has no key, or a key that this proxy does not know."""


class Forbidden(ProxyError, status=403, type="invalid_request_error", code="model_not_allowed"):
    """The key is known, but it may not do this."""


class NotFound(ProxyError, status=404, type="invalid_request_error", code="not_found"):
    """Nothing is served under this path."""


class UnknownModel(NotFound, code="model_not_found"):
    """No entry of the model list serves this name."""


class Conflict(ProxyError, status=409, type="invalid_request_error", code="conflict"):
    """The object to be made exists already, or belongs to the configuration."""


class OutOfDate(Conflict):
    """Somebody else has changed what the request goes by."""


class MissingContent(Conflict, code="missing_content"):
    """The request names contents by digests that are not in this process's memory. ``missing`` are those digests, each
    once, in the order of the request. The OpenAI SDK repeats a 409 by itself. That would not help here: the request
    must be sent again with these contents."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            "the request names contents by digest that are not in the memory of this worker: send it again with the"
            " contents of the digests in 'missing'",
            param="stratiform",
            headers={"x-should-retry": "false"},
        )
        self.missing = tuple(missing)


class MethodNotAllowed(ProxyError, status=405, type="invalid_request_error", code="method_not_allowed"):
    """The path is served, but with another method."""


class BudgetExceeded(ProxyError, status=429, type="insufficient_quota", code="insufficient_quota"):
    """A hard budget is spent. Clients must not retry."""

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, headers={**(headers or {}), "x-should-retry": "false"})


class RateLimited(ProxyError, status=429, code="rate_limit_exceeded"):
    """A key or a team has reached its limit of requests or tokens in a time. ``kind`` says which of the two it is."""

    def __init__(self, message: str, *, kind: str, retry_after_s: int) -> None:
        super().__init__(message, headers={"retry-after": str(retry_after_s)})
        self.type = self.kind = kind


class BudgetUnavailable(ProxyError, status=503, code="budget_unavailable"):
    """The team's spend cannot be read, and the configuration says that the request is then refused."""


class StoreUnavailable(ProxyError, status=503, code="store_unavailable"):
    """The store does not answer, and it holds the data that decides about the request."""


class UpstreamError(ProxyError, status=502, code="upstream_error"):
    """Something behind the proxy failed. ``may_bill``: the upstream may have got the request and did not refuse it, so
    it bills the work that it did. A request counts as arrived unless it is known that it did not arrive."""

    may_bill = True

    def unreached(self) -> Self:
        """The same error, for an upstream that has not seen the request."""
        self.may_bill = False
        return self


class UpstreamUnavailable(UpstreamError, code="upstream_unavailable"):
    """The proxy got no connection, or the connection broke."""


class UpstreamTimeout(UpstreamError, status=504, code="upstream_timeout"):
    """The upstream did not answer in time."""


class CircuitOpen(UpstreamError, status=503, code="circuit_open"):
    """The upstream failed repeatedly, so it is not called for a moment."""

    may_bill = False


class UpstreamLoading(UpstreamError, status=503, code="upstream_loading"):
    """The code that calls the upstream is still being loaded. Other models are served meanwhile."""

    may_bill = False


class UpstreamRejected(UpstreamError):
    """The provider's own refusal, as a library reports it. Its status, type and code are passed on."""

    may_bill = False

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
        self.type = self.error_type = error_type


class NotReady(ProxyError, status=503, code="not_ready"):
    """The proxy is up, but should not get traffic yet."""


class ShuttingDown(ProxyError, status=503, code="shutting_down"):
    """The proxy was told to stop, and the time that open requests have is over."""


class PromptInvalid(ProxyError, code="prompt_invalid"):
    """The operator's prompts cannot be composed for this request."""


class InternalError(ProxyError):
    """The proxy met an error of its own."""


def error_form(path: str) -> ErrorForm:
    """The form in which clients of a path expect errors. ``path`` starts behind ``/v1``."""
    first = path.split("?", 1)[0].lower().split("/", 2)[1:2]
    return ErrorForm.ANTHROPIC if first == ["messages"] else ErrorForm.OPENAI


def error_body(error: ProxyError, form: ErrorForm = ErrorForm.OPENAI) -> bytes:
    """The JSON body for an error. Anthropic's form also has our code and param, beside the members of Anthropic's own
    errors."""
    body: dict[str, object] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, MissingContent):
        body["missing"] = error.missing
    if form is ErrorForm.OPENAI:
        return _json({"error": body})
    return _json({"type": "error", "error": {**body, "type": type_of_status(error.status, "api_error")}})


def _json(body: object) -> bytes:
    """The body as JSON. A message that quotes a client's text may hold half of a surrogate pair, which is written as an
    escape."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        return json.dumps(body).encode()


def sse_error(error: ProxyError, form: ErrorForm = ErrorForm.OPENAI) -> bytes:
    """The error as a server-sent event, for a stream that has begun. No ``[DONE]`` follows it."""
    name = b"" if form is ErrorForm.OPENAI else b"event: error\n"
    return name + b"data: " + error_body(error, form) + b"\n\n"


class StoreError(Exception):
    """The store could not be read or written. No request fails because of that, unless a budget says so."""

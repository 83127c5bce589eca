"""Errors as clients read them: in OpenAI's form, and on Anthropic's paths in Anthropic's."""

import json

import pytest

from proxy.kit.errors import (
    ErrorForm,
    Forbidden,
    InternalError,
    InvalidRequest,
    MissingContent,
    NotFound,
    PayloadTooLarge,
    ProxyError,
    RateLimited,
    ShuttingDown,
    Unauthorized,
    UpstreamRejected,
    UpstreamTimeout,
    error_body,
    error_form,
    sse_error,
)
from tests.examples import for_every


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/chat/completions", ErrorForm.OPENAI),
        ("/messages", ErrorForm.ANTHROPIC),
        ("/messages/", ErrorForm.ANTHROPIC),
        ("/Messages/batches?limit=1", ErrorForm.ANTHROPIC),
        ("/threads/t/messages", ErrorForm.OPENAI),
        ("/messagesx", ErrorForm.OPENAI),
        ("", ErrorForm.OPENAI),
    ],
)
def test_the_form_follows_the_path(path: str, form: ErrorForm) -> None:
    assert error_form(path) is form


@for_every(
    [
        (InvalidRequest("m"), "invalid_request_error"),
        (Unauthorized("m"), "authentication_error"),
        (Forbidden("m"), "permission_error"),
        (NotFound("m"), "not_found_error"),
        (PayloadTooLarge("m"), "request_too_large"),
        (RateLimited("m", kind="tokens", retry_after_s=1), "rate_limit_error"),
        (InternalError("m"), "api_error"),
        (ShuttingDown("m"), "api_error"),
        (UpstreamTimeout("m"), "timeout_error"),
        (UpstreamRejected("m", status=529, error_type="t"), "overloaded_error"),
    ]
)
def test_anthropics_form_has_anthropics_types(error: ProxyError, kind: str) -> None:
    body = json.loads(error_body(error, ErrorForm.ANTHROPIC))
    assert body == {"type": "error", "error": {"message": "m", "type": kind, "param": error.param, "code": error.code}}
    event = sse_error(error, ErrorForm.ANTHROPIC)
    assert event == b"event: error\ndata: " + error_body(error, ErrorForm.ANTHROPIC) + b"\n\n"
    assert json.loads(error_body(error)).keys() == {"error"}


@pytest.mark.parametrize("form", ErrorForm)
def test_missing_contents_are_named_and_not_retried_by_an_sdk(form: ErrorForm) -> None:
    error = MissingContent(["0" * 64, "f" * 64])
    assert (error.status, error.code, error.headers) == (409, "missing_content", {"x-should-retry": "false"})
    body = json.loads(error_body(error, form))["error"]
    assert body["missing"] == ["0" * 64, "f" * 64]
    assert (body["type"], body["code"], body["param"]) == ("invalid_request_error", "missing_content", "stratiform")
    assert "missing" not in json.loads(error_body(InvalidRequest("m"), form))["error"]

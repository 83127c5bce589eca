"""The pure parts of the litellm transport: arguments, translated exceptions, rendered answers, the lazy import."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest

from proxy.kit.errors import (
    InvalidRequest,
    ProxyError,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.kit.secrets import client_key
from proxy.models import Deployment, Transport
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.response.event_format import event_of
from proxy.upstream import litellm_library as library
from proxy.upstream.litellm_ import ErrorMap, StreamAnswer, StreamEndedEarly, render, strip_secrets, translate
from proxy.upstream.litellm_library import EMBEDDING_FIELDS, Library, LitellmRoute, call_arguments
from tests.examples import for_every
from tests.waiting import until_async

OPENAI = LitellmRoute(
    "openai", frozenset({"temperature", "max_tokens"}), extra_body=True, owned=frozenset({"api_base"})
)
CLAUDE = LitellmRoute("anthropic", frozenset({"temperature"}), extra_body=False, owned=frozenset({"api_base", "cache"}))
MESSAGES = [{"role": "user", "content": "hi"}]


def deployment(**further: Any) -> Deployment:
    values = {"base_url": "http://127.0.0.1:1", "api_key": "sk-operator-0123", **further}
    return Deployment("alias", "anthropic/claude", Transport.LITELLM, ANTHROPIC, **values)


def arguments(body: Mapping[str, Any], route: LitellmRoute = OPENAI, **further: Any) -> dict[str, Any]:
    return call_arguments(deployment(**further), {"model": "alias", "messages": MESSAGES, **body}, route)


# Arguments


def test_the_deployment_names_model_address_key_and_time() -> None:
    made = arguments({"temperature": 1}, timeout_s=7.0)
    assert made == {
        "model": "anthropic/claude",
        "messages": MESSAGES,
        "temperature": 1,
        "api_base": "http://127.0.0.1:1",
        "api_key": "sk-operator-0123",
        "timeout": 7.0,
        "num_retries": 0,
        "_skip_mcp_handler": True,
    }


def test_the_operators_parameters_are_defaults_and_never_retries() -> None:
    made = arguments({"temperature": 1}, params={"temperature": 0, "top_p": 0.5, "num_retries": 5})
    assert (made["temperature"], made["top_p"], made["num_retries"]) == (1, 0.5, 0)


def test_what_litellm_does_not_translate_goes_into_the_body() -> None:
    made = arguments({"seed": 1, "new": None, "api_base": "x"}, params={"extra_body": {"kept": 1, "new": 2}})
    assert made["extra_body"] == {"kept": 1, "seed": 1, "new": None, "api_base": "x"}
    assert made["api_base"] == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "params",
    [{"drop_params": True}, {"allowed_openai_params": ["seed"]}, {"additional_drop_params": ["seed"]}],
)
def test_what_the_operator_has_ruled_litellm_sees(params: dict[str, object]) -> None:
    made = arguments({"seed": 1}, params=params)
    assert made["seed"] == 1
    assert "extra_body" not in made


@for_every(
    [
        ("messages", "hi", "an array of objects"),
        ("messages", None, "an array of objects"),
        ("messages", [{}, 1], "an array of objects"),
        ("tools", {}, "an array of objects"),
        ("response_format", "json", "an object"),
        ("stream_options", [], "an object"),
        ("temperature", "hot", "a number"),
        ("max_tokens", True, "a number"),
        ("stream", 1, "true or false"),
    ]
)
def test_a_wrong_shape_is_refused_before_litellm_fails_on_it(name: str, value: object, wanted: str) -> None:
    with pytest.raises(InvalidRequest, match=wanted) as caught:
        arguments({name: value})
    assert (caught.value.param, caught.value.code) == (name, "invalid_type")


def test_null_is_as_good_as_nothing() -> None:
    assert arguments({"tools": None, "stop": None, "temperature": None})["temperature"] is None


def test_a_native_provider_gets_unknown_fields_as_arguments() -> None:
    made = arguments({"top_k": 3, "seed": 1, "cache_control": {"type": "ephemeral"}}, CLAUDE)
    assert (made["top_k"], made["seed"], made["cache_control"]) == (3, 1, {"type": "ephemeral"})
    assert "extra_body" not in made


# From LiteLLM's own list of what a request body must not set (proxy/auth/auth_utils.py), and more of the kind.
HOSTILE = (
    "api_base base_url user_config aws_sts_endpoint aws_web_identity_token aws_role_name aws_profile_name "
    "aws_session_name aws_bedrock_runtime_endpoint aws_bedrock_project_id aws_workspace_id vertex_credentials "
    "vertex_project vertex_ai_credentials azure_ad_token s3_endpoint_url sagemaker_base_url deployment_url "
    "anthropic-workspace-id api_key organization_key x_headers success_callback _litellm_strip_stream_usage cache "
    "user_provider_credentials client_secret tenant_id aws_region_name"
)


@for_every(HOSTILE.split())
def test_a_native_provider_gets_no_setting_from_a_client(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        arguments({name: "x"}, CLAUDE)
    assert (caught.value.param, caught.value.code, caught.value.status) == (name, "unknown_parameter", 400)


def test_of_metadata_a_native_provider_gets_the_user_id() -> None:
    assert arguments({"metadata": {"user_id": "u", "callbacks": ["x"]}}, CLAUDE)["metadata"] == {"user_id": "u"}
    assert "metadata" not in arguments({"metadata": {"session": "s"}}, CLAUDE)
    assert arguments({"metadata": {"session": "s"}})["extra_body"] == {"metadata": {"session": "s"}}


def test_headers_are_the_operators_and_a_few_of_the_clients() -> None:
    sent = [("Authorization", "Bearer k"), ("anthropic-beta", "b"), ("x-api-key", "k"), ("X-Team", "red")]
    chosen = deployment(headers=(("X-Team", "blue"),), params={"extra_headers": {"X-Org": "o"}})
    made = call_arguments(chosen, {"messages": MESSAGES}, CLAUDE, headers=sent)
    assert made["extra_headers"] == {"X-Org": "o", "anthropic-beta": "b", "X-Team": "blue"}


def test_embeddings_have_their_own_fields() -> None:
    body = {"input": "a", "dimensions": 3, "messages": MESSAGES}
    route = LitellmRoute("openai", frozenset({"dimensions"}), extra_body=True, owned=frozenset())
    made = call_arguments(deployment(), body, route, fields=EMBEDDING_FIELDS)
    assert (made["input"], made["dimensions"], made["extra_body"]) == ("a", 3, {"messages": MESSAGES})


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ((("Authorization", "Bearer abc"),), "abc"), ((("authorization", "bearer  abc "),), "abc"),
        ((("authorization", "Basic abc"),), None), ((("authorization", "Bearer "),), None), ((), None),
    ],
)  # fmt: skip
def test_client_key(headers: tuple[tuple[str, str], ...], key: str | None) -> None:
    assert client_key(headers) == key


# Exceptions

REQUEST = httpx.Request("POST", "http://user:pass@127.0.0.1:1/v1?key=abc")


def provider_said(status: int, body: object, **headers: str) -> Exception:
    """An exception of some library whose cause is the provider's answer, as litellm raises it."""
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    response = httpx.Response(status, content=raw, headers=headers, request=REQUEST)
    return caused(RuntimeError("wrapped"), httpx.HTTPStatusError("no", request=REQUEST, response=response))


def caused(outer: Exception, cause: BaseException) -> Exception:
    outer.__cause__ = cause
    return outer


def as_error(exc: Exception, *secrets: str) -> ProxyError:
    with pytest.raises(ProxyError) as caught, ErrorMap(secrets):
        raise exc
    assert caught.value.__cause__ is exc
    return caught.value


@for_every(
    [
        ({"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}, ("m", "t", "p", "c")),
        ({"type": "error", "error": {"type": "t", "message": "m"}}, ("m", "t", None, None)),
        ({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}, ("m", "INVALID_ARGUMENT", None, None)),
        ([{"error": {"message": "m"}}], ("m", "invalid_request_error", None, None)),
        ({"error": "m", "code": "c"}, ("m", "invalid_request_error", None, "c")),
        ({"message": "m"}, ("m", "invalid_request_error", None, None)),
        ("<html>", ("the provider answered with status 418", "invalid_request_error", None, None)),
        ("[]", ("the provider answered with status 418", "invalid_request_error", None, None)),
        ("7", ("the provider answered with status 418", "invalid_request_error", None, None)),
    ]
)
def test_the_providers_words_in_every_dialect(body: object, said: tuple[str | None, ...]) -> None:
    error = as_error(provider_said(418, body))
    assert isinstance(error, UpstreamRejected)
    assert (error.status, (error.message, error.error_type, error.param, error.code)) == (418, said)


def test_of_the_providers_headers_those_pass_that_help_a_client() -> None:
    sent = {"Retry-After": "3", "X-RateLimit-Remaining-Tokens": "0", "Set-Cookie": "a=b", "Request-Id": "r"}
    error = as_error(provider_said(429, {}, **sent))
    assert error.headers == {"retry-after": "3", "x-ratelimit-remaining-tokens": "0", "request-id": "r"}


def test_the_providers_answer_wins_over_what_else_is_in_the_chain() -> None:
    """A 408 of the provider is a refusal with that status, though libraries call it a timeout."""
    exc = caused(openai.APITimeoutError(REQUEST), provider_said(408, {"error": {"message": "slow"}}))
    error = as_error(exc)
    assert isinstance(error, UpstreamRejected)
    assert error.status == 408


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (httpx.ReadTimeout("t"), UpstreamTimeout),
        (TimeoutError(), UpstreamTimeout),
        (openai.APITimeoutError(REQUEST), UpstreamTimeout),
        (httpx.ConnectError("127.0.0.1 refused"), UpstreamUnavailable),
        (ConnectionResetError("127.0.0.1"), UpstreamUnavailable),
        (StopAsyncIteration(), StreamEndedEarly),
        (KeyError("a part of the prompt"), UpstreamError),
    ],
)
def test_causes_by_kind(cause: BaseException, kind: type[ProxyError]) -> None:
    error = as_error(caused(ValueError("litellm says"), cause))
    assert type(error) is kind
    assert "127.0.0.1" not in error.message
    assert "prompt" not in error.message


def test_the_first_cause_may_be_hidden_behind_a_context() -> None:
    def provoke() -> None:
        try:
            raise httpx.ConnectError("refused")
        except httpx.ConnectError:
            raise RuntimeError("a library forgot its `from`")  # noqa: B904

    with pytest.raises(RuntimeError) as caught:
        provoke()
    assert isinstance(translate(caught.value), UpstreamUnavailable)


def test_chains_with_a_loop_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert type(translate(first)) is UpstreamError


class UnsupportedParamsError(Exception):
    """As litellm's: a refusal of litellm's own, without an answer of a provider."""

    status_code = 400
    message = "litellm.UnsupportedParamsError: claude does not support parameters: ['seed']"


class ContextWindowExceededError(Exception):
    """As litellm's, without an answer of a provider."""

    status_code = 400
    message = "litellm.ContextWindowExceededError: the words of a provider"


class APIConnectionError(Exception):
    """As litellm's: the class for what it does not know; its message ends in a traceback."""

    status_code = 500
    message = "litellm.APIConnectionError: 'content'\nTraceback (most recent call last): the prompt"


def test_a_refusal_of_litellms_own_keeps_its_words_without_its_name() -> None:
    error = as_error(UnsupportedParamsError())
    assert isinstance(error, UpstreamRejected)
    assert (error.status, error.code) == (400, "unsupported_parameter")
    assert error.message == "claude does not support parameters: ['seed']"


def test_a_refusal_that_litellm_knows_to_be_for_the_context_window_has_openais_code() -> None:
    error = as_error(ContextWindowExceededError())
    assert isinstance(error, UpstreamRejected)
    assert (error.status, error.code, error.message) == (400, "context_length_exceeded", "the words of a provider")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limit_error"), (504, "timeout_error"), (529, "overloaded_error"), (500, "server_error")],
)
def test_an_error_without_a_type_has_that_of_its_status(status: int, kind: str) -> None:
    refusal = UnsupportedParamsError()
    refusal.status_code = status
    error = as_error(refusal)
    assert isinstance(error, UpstreamRejected)
    assert (error.status, error.error_type) == (status, kind)


def test_the_traceback_of_a_surprise_is_not_shown() -> None:
    error = as_error(caused(APIConnectionError(), KeyError("content")))
    assert (error.status, error.message) == (502, "litellm could not carry out the call (KeyError)")


class OpenAIError(Exception):
    """As litellm's: its own status and words."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code = status
        self.message = message


@pytest.mark.parametrize(
    ("status", "message", "cause", "is_answering"),
    [
        (500, "Invalid response object Traceback: the answer", KeyError("the answer"), False),
        (422, "Error converting to valid response block=x. Got=the answer", ValueError("the answer"), False),
        (400, "KeyError: 'delta', Got unexpected response from OpenRouter: the answer", KeyError("delta"), True),
        (500, "Empty or invalid response from LLM endpoint. Received: the answer", OpenAIError(500, ""), False),
        (500, "litellm.APIError: Unexpected response from Azure: the answer", OpenAIError(500, ""), False),
    ],
)
def test_an_answer_that_litellm_cannot_read_is_not_shown(
    status: int, message: str, cause: Exception, *, is_answering: bool
) -> None:
    if isinstance(cause, OpenAIError):
        cause.message = message
    error = translate(caused(OpenAIError(status, message), cause), is_answering=is_answering)
    assert type(error) is UpstreamError
    assert error.may_bill
    assert error.message == f"litellm could not read the provider's answer ({type(cause).__name__})"


def test_a_request_that_litellm_cannot_translate_is_refused_in_its_words() -> None:
    error = as_error(caused(OpenAIError(400, "Image url not in expected format"), ValueError("a part of the prompt")))
    assert (error.status, error.message, error.may_bill) == (400, "Image url not in expected format", False)


def test_our_own_errors_and_cancellation_pass() -> None:
    with pytest.raises(InvalidRequest, match="ours"), ErrorMap():
        raise InvalidRequest("ours")
    with pytest.raises(asyncio.CancelledError), ErrorMap():
        raise asyncio.CancelledError


@for_every(
    [
        ("Incorrect API key provided: sk-ant-api03-abcDEF_123. Try", "Incorrect API key provided: [redacted]. Try"),
        ("got the header Bearer abc.def-123=", "got the header Bearer [redacted]"),
        ("POST https://me:secret@host.example/v1/x failed", "POST https://host.example/v1/x failed"),
        ("https://host.example/v1?key=abc&alt=sse: 400", "https://host.example/v1 400"),
        ('{"api_key": "abcdef"}', '{"api_key": "[redacted]"}'),
        ("the key hunter2hunter2 is wrong", "the key [redacted] is wrong"),
        ("Basic dXNlcjpwYXNzd29yZA==", "Basic [redacted]"),
        ("no secret: task-list, key-value, basic shapes", "no secret: task-list, key-value, basic shapes"),
    ]
)
def test_strip_secrets(text: str, stripped: str) -> None:
    assert strip_secrets(text, ["hunter2hunter2"]) == stripped


# Answers


class Model:
    """Enough of a pydantic model: what litellm returns is rendered by ``model_dump(exclude_none=True)``."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    def model_dump(self, *, exclude_none: bool, warnings: bool) -> dict[str, Any]:
        assert exclude_none
        assert not warnings  # pydantic's quote what they warn of
        return self._body


def test_a_message_without_text_keeps_its_null() -> None:
    rendered = json.loads(render(Model({"choices": [{"message": {"role": "assistant", "tool_calls": []}}]})))
    assert rendered["choices"][0] == {
        "message": {"role": "assistant", "tool_calls": [], "content": None},
        "finish_reason": None,
    }


@pytest.mark.parametrize("stream", [SimpleNamespace(), SimpleNamespace(chunks=[SimpleNamespace(usage="a"), None])])
def test_a_stream_of_another_kind_tells_no_usage(stream: object) -> None:
    assert StreamAnswer(stream, None, ErrorMap(())).usage_so_far() == {}


@for_every(["a\ud83d", 1 << 70, "word"])
def test_all_that_json_holds_is_rendered(found: object) -> None:
    assert json.loads(render(Model({"choices": [], "found": found}))) == {"choices": [], "found": found}


def test_a_chunk_is_one_event() -> None:
    raw = event_of(render(Model({"choices": [{"delta": {"content": "a\n\nb"}}]})))
    assert raw.startswith(b"data: {")
    assert raw.endswith(b"}\n\n")
    assert raw.count(b"\n\n") == 1
    assert json.loads(raw[6:])["choices"][0]["finish_reason"] is None


# The import


async def test_concurrent_first_calls_import_once(monkeypatch: pytest.MonkeyPatch) -> None:
    release, imports = threading.Event(), []

    def slow_import() -> object:
        imports.append(threading.current_thread())
        assert release.wait(60)
        return object()

    monkeypatch.setattr(library, "_import_litellm", slow_import)
    lazy = Library()
    waiting = [asyncio.ensure_future(lazy.module()) for _ in range(5)]
    await until_async(lambda: imports)
    release.set()  # the loop went on while the import ran
    modules = await asyncio.gather(*waiting)
    assert len({id(module) for module in modules}) == 1
    assert await lazy.module() is modules[0]
    assert len(imports) == 1
    assert imports[0] is not threading.main_thread()


@pytest.mark.slow
def test_the_transport_can_be_loaded_without_litellm() -> None:
    code = (
        "import sys; from proxy.upstream.litellm_ import LitellmUpstream; LitellmUpstream(); "
        "print(sorted({'litellm', 'openai', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"

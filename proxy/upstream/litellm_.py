"""The litellm transport: every provider that litellm supports.

litellm translates the requests: a chat request becomes one ``litellm.acompletion`` call, and its answer becomes OpenAI
JSON or server-sent events again. This transport promises equal JSON, not equal bytes.

``litellm_library`` has the only import of litellm, which is lazy because it takes seconds of CPU, and turns a client's
body into arguments. Here is the only translator of litellm's exceptions to ours. litellm raises its own classes, and
chooses their status and message. The real error is further down the chain of causes: the provider's HTTP response (413
and 529 become 400 and 500 in litellm), or the broken connection. So the chain is searched, for the most specific cause
first. Behind the translator come the call and its answer as bytes.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

from proxy.engine.exchange import Call
from proxy.engine.ports import Answer
from proxy.engine.upstream_answer import WholeAnswer
from proxy.kit.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    ProxyError,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
    error_body,
    type_of_status,
)
from proxy.kit.secrets import Redaction, client_key, without_keys
from proxy.models import Headers
from proxy.protocol.response.event_format import DONE, event_of
from proxy.protocol.wire.json_body import Unreadable, dumps, text_value
from proxy.upstream.litellm_library import CHAT_FIELDS, EMBEDDING_FIELDS, Library, call_arguments, dumped, mapping

if TYPE_CHECKING:
    import httpx


_MESSAGE_CHARS = 2000
# Queries of addresses may contain keys, and litellm quotes whole addresses.
_ADDRESS_QUERY = re.compile(r"(\w{1,32}://[^\s?\"']{1,256})\?[^\s\"']+")

# Texts that litellm puts around a provider's message.
_DECORATION = re.compile(
    r"^(litellm\.\w+:\s*|(?:[A-Z]\w*)?(?:Error|Exception|Timeout):\s*|[A-Z]\w*(?:Exception|Error) - )+"
    r"|(?<!\s)\s*+Handle with `litellm\.\w++`\.?$"
)

# Messages about an answer that litellm cannot read.
_QUOTING = re.compile(r"Empty or invalid response from LLM endpoint|Unexpected response from Azure")

_WRAPPERS = frozenset({"APIConnectionError", "MidStreamFallbackError"})

_PASSED_HEADERS = re.compile(
    r"(?i)^(retry-after(-ms)?|x-should-retry|x-ratelimit-.+|anthropic-ratelimit-.+|x-request-id|request-id"
    r"|openai-processing-ms|openai-version|cf-ray)$"
)


class StreamEndedEarly(UpstreamUnavailable):
    """The provider closed a stream without an error before it was complete."""


class ErrorMap:
    """A context manager: every exception of litellm inside it is raised as a ProxyError, without ``secrets`` in its
    message. A cancellation passes unchanged."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        # Whether the provider has taken the call, and its answer is being read.
        self.is_answering = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: type[BaseException] | None, exc: BaseException | None, _tb: TracebackType | None) -> None:
        if isinstance(exc, Exception) and not isinstance(exc, ProxyError):
            raise translate(exc, self._secrets, is_answering=self.is_answering) from exc


def translate(exc: Exception, secrets: Iterable[str] = (), *, is_answering: bool = False) -> ProxyError:
    """The ProxyError for an exception that came out of litellm."""
    import httpx
    import openai

    chain = tuple(_chain(exc))
    for cause in chain:
        if isinstance(cause, httpx.HTTPStatusError):
            return _rejected(cause.response, secrets)
    # The reason that Python's UTF-8 encoder gives for half of a surrogate pair.
    if any(isinstance(cause, UnicodeEncodeError) and cause.reason == "surrogates not allowed" for cause in chain):
        return InvalidRequest(
            "A text of the request holds half of a surrogate pair (such as \\ud83d alone), which is no character. "
            "litellm cannot send it to this provider: leave it out, or have the model served by the http transport.",
            code="invalid_unicode",
        )
    unreached = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    is_unreached = any(isinstance(cause, unreached) for cause in chain)
    if any(isinstance(cause, (httpx.TimeoutException, openai.APITimeoutError, TimeoutError)) for cause in chain):
        late = UpstreamTimeout("the provider did not answer in time")
        return late.unreached() if is_unreached else late
    for cause in chain:
        if isinstance(cause, (httpx.TransportError, OSError)):
            broken = UpstreamUnavailable(f"the connection to the provider failed ({type(cause).__name__})")
            return broken.unreached() if is_unreached else broken
    if any(isinstance(cause, StopAsyncIteration) for cause in chain):
        return StreamEndedEarly("the provider ended the stream before it was complete")
    return _refused_by_litellm(chain, secrets, is_answering=is_answering)


def strip_secrets(message: str, secrets: Iterable[str] = ()) -> str:
    """The message without keys, credentials in addresses, and queries of addresses."""
    message = without_keys(Redaction(secrets).text(message), keeps_runs=True)
    return _ADDRESS_QUERY.sub(r"\1", message)[:_MESSAGE_CHARS]


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The provider's headers that a client can use: when to retry, the rest of rate limits, and the id of the
    request."""
    return {name.lower(): value for name, value in headers.items() if _PASSED_HEADERS.match(name)}


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__


def _rejected(response: "httpx.Response", secrets: Iterable[str]) -> UpstreamRejected:
    """The provider's own refusal."""
    status = response.status_code
    said = _said(response)
    message = said.get("message") or f"the provider answered with status {status}"
    return UpstreamRejected(
        strip_secrets(str(message), secrets),
        status=status,
        error_type=_text(said.get("type"), secrets) or _text(said.get("status"), secrets) or type_of_status(status),
        code=_text(said.get("code"), secrets),
        param=_text(said.get("param"), secrets),
        headers=passed_headers(response.headers),
    )


def _said(response: "httpx.Response") -> Mapping[str, Any]:
    """The error object in a provider's body: OpenAI's and Anthropic's ``error``, or the body itself."""
    import httpx

    try:
        body = orjson.loads(response.content)
    except (orjson.JSONDecodeError, httpx.StreamError):
        return {}
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return {}
    error = body.get("error", body)
    if isinstance(error, Mapping):
        return error
    return {"message": error, "code": body.get("code")} if isinstance(error, str) else {}


def _refused_by_litellm(chain: tuple[BaseException, ...], secrets: Iterable[str], *, is_answering: bool) -> ProxyError:
    """The error for all other cases: litellm's own refusal, an error event in a stream, or an unexpected error.

    The classes in which litellm wraps unknown errors have a traceback as their message, so their message is not shown.
    Neither is a message about an answer that litellm cannot read, because it quotes the answer.
    """
    for cause in reversed(chain):
        status = getattr(cause, "status_code", None)
        said = mapping(getattr(cause, "body", None))
        shown = isinstance(status, int) and 400 <= status < 600 and type(cause).__name__ not in _WRAPPERS
        if not shown and not said.get("message"):
            continue
        status = status if isinstance(status, int) and shown else 502
        message = str(said.get("message") or getattr(cause, "message", "") or "the request was refused")
        # For an answer, litellm makes up the status 422 or 500.
        is_unread = not (said or hasattr(chain[-1], "status_code") or hasattr(chain[-1], "body")) and (
            is_answering or status == 422 or status >= 500
        )
        if is_unread or _QUOTING.match(_DECORATION.sub("", message)):
            return UpstreamError(f"litellm could not read the provider's answer ({type(chain[-1]).__name__})")
        refusal = UpstreamRejected(
            strip_secrets(_DECORATION.sub("", message).strip(), secrets),
            status=status,
            error_type=_text(said.get("type"), secrets) or type_of_status(status),
            code=_code(chain, said, secrets),
            param=_text(said.get("param"), secrets),
        )
        # No answer of the provider says so: it may have answered what litellm could not read.
        refusal.may_bill = status >= 500
        return refusal
    return UpstreamError(f"litellm could not carry out the call ({type(chain[-1]).__name__})")


def _code(chain: tuple[BaseException, ...], said: Mapping[str, Any], secrets: Iterable[str]) -> str | None:
    """The provider's code, or OpenAI's code for the class of litellm's exception."""
    classes = {type(cause).__name__ for cause in chain}
    if "UnsupportedParamsError" in classes:
        return "unsupported_parameter"
    code = _text(said.get("code"), secrets)
    return "context_length_exceeded" if code is None and "ContextWindowExceededError" in classes else code


def _text(value: object, secrets: Iterable[str]) -> str | None:
    return strip_secrets(value, secrets) if isinstance(value, str) and value else None


_FIELDS = {"/chat/completions": CHAT_FIELDS, "/embeddings": EMBEDDING_FIELDS}


class LitellmUpstream:
    """Serves a deployment through litellm. litellm is imported by the first call, or by
    ``Library.warm``."""

    def __init__(self) -> None:
        self.library = Library()
        self.aclose = self.library.aclose

    async def open(self, call: Call) -> Answer:
        """Make the call. A streamed answer is open as soon as its first chunk has arrived. A refusal is also an
        Answer."""
        if (fields := _FIELDS.get(call.path)) is None:
            raise NotFound(
                f"/v1{call.path} needs the http transport: the litellm transport serves chat and embeddings",
                code="unknown_path",
            )
        body = await _read(call)
        litellm = await self.library.module()
        deployment = call.deployment
        key = client_key(call.headers) if deployment.api_key is None else None
        errors = ErrorMap((*deployment.secrets, key or ""))
        try:
            with errors:
                route = self.library.route(deployment)
                if call.forwards_key and (key is None or not route.takes_key):
                    # litellm would use the operator's key instead.
                    raise Forbidden(
                        "This model is not served with keys of the provider's own, only with keys of this proxy.",
                        code="client_key_not_accepted",
                    )
                if key and not call.forwards_key:
                    # The client's key serves where litellm does not find the provider's credentials in the environment.
                    known = litellm.validate_environment(model=deployment.model)["keys_in_environment"]
                    key = key if route.takes_key and not known else None
                arguments = call_arguments(deployment, body, route, fields=fields, headers=call.headers, api_key=key)
                ask = litellm.acompletion if fields is CHAT_FIELDS else litellm.aembedding
                response = await ask(**arguments)
                if hasattr(response, "__anext__"):
                    return await _opened(response, errors)
                return WholeAnswer(200, (_JSON, *_provider_headers(response)), render(response))
        except UpstreamRejected as error:
            if error.may_bill and not call.stream:
                raise
            return WholeAnswer(error.status, (_JSON, *error.headers.items()), error_body(error))


async def _opened(stream: Any, errors: ErrorMap) -> Answer:
    """Wait for the first chunk. A call may be refused or end only then, and that must be known before the client gets
    bytes."""
    is_open = False
    errors.is_answering = True
    try:
        with errors:
            first = await anext(stream, None)
        # If the provider sent nothing, litellm makes a chunk that says "stop" (_finalize_completed_stream).
        is_made_up = first is not None and getattr(stream, "received_finish_reason", "") is None
        is_open = first is not None and not (is_made_up and any(choice.finish_reason for choice in first.choices))
        if is_open:
            return StreamAnswer(stream, first, errors)
    except StreamEndedEarly:
        pass
    finally:
        if not is_open:
            await stream.aclose()
    return WholeAnswer(200, (_SSE, *_provider_headers(stream)), b"")


async def _read(call: Call) -> dict[str, Any]:
    """The parsed body. Halves of surrogate pairs are kept, because litellm sends them unchanged to most providers."""
    raw = call.body if isinstance(call.body, bytes) else b"".join([part async for part in call.body])
    try:
        body = text_value(raw)
    except Unreadable as error:
        raise InvalidRequest("the body is not JSON", code="invalid_json") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the body is not a JSON object", code="invalid_json")
    return body


_JSON = ("content-type", "application/json")
_SSE = ("content-type", "text/event-stream; charset=utf-8")
_PREFIX = "llm_provider-"


class StreamAnswer:
    """A streamed answer whose first chunk has arrived. ``stream`` is litellm's CustomStreamWrapper."""

    status = 200

    def __init__(self, stream: Any, first: Any, errors: ErrorMap) -> None:
        self.headers: Headers = (_SSE, *_provider_headers(stream))
        self._stream = stream
        self._first = first
        self._errors = errors
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Server-sent events, ``[DONE]`` last. Raises ProxyError if the stream breaks."""
        chunk = self._first
        while chunk is not None:
            # If the provider reports no usage, litellm counts one itself, which lacks what the model thought.
            if chunk.choices or getattr(chunk, "usage", None) is None or self.usage_so_far():
                yield event_of(render(chunk))
            with self._errors:
                chunk = await anext(self._stream, None)
        if not self._closed:
            yield DONE

    def usage_so_far(self) -> Mapping[str, object]:
        """The usage that the provider has reported so far. litellm holds it back until the last chunk, although
        Anthropic reports the prompt's usage first."""
        told = [dumped(getattr(chunk, "usage", None)) for chunk in getattr(self._stream, "chunks", ())]
        return next(filter(None, reversed(told)), {})

    async def aclose(self) -> None:
        """Close the provider's response. A call that is still running is cancelled."""
        self._closed = True
        await self._stream.aclose()


def render(response: Any) -> bytes:
    """A response, or a chunk of a response, as JSON. Members that are None in litellm are left out, except those that
    OpenAI sends as null."""
    body: dict[str, Any] = response.model_dump(exclude_none=True, warnings=False)
    for choice in body.get("choices", ()):
        choice.setdefault("finish_reason", None)
        if isinstance(choice.get("message"), dict):
            choice["message"].setdefault("content", None)
    return dumps(body, str)


def _provider_headers(response: object) -> Headers:
    """The provider's own headers that are passed on. litellm keeps them under a prefix."""
    hidden = getattr(response, "_hidden_params", None)
    kept = hidden.get("additional_headers") if isinstance(hidden, Mapping) else None
    if not isinstance(kept, Mapping):
        return ()
    own = {str(name)[len(_PREFIX) :]: str(value) for name, value in kept.items() if str(name).startswith(_PREFIX)}
    return tuple(passed_headers(own).items())

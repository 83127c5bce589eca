"""The litellm transport as an Upstream."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from proxy.core.response.event_format import DONE, event_of
from proxy.core.secrets.credentials import client_key
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.engine.answers.upstream_answer import WholeAnswer
from proxy.errors import Forbidden, InvalidRequest, NotFound, UpstreamRejected, error_body
from proxy.ports import Answer, Call, Headers
from proxy.upstream.litellm_.arguments import CHAT_FIELDS, EMBEDDING_FIELDS, call_arguments
from proxy.upstream.litellm_.errors import ErrorMap, StreamEndedEarly, passed_headers
from proxy.upstream.litellm_.library import Library, Route, dumped, keys_in_environment
from proxy.upstream.redacted import secrets_of

_FIELDS = {"/chat/completions": CHAT_FIELDS, "/embeddings": EMBEDDING_FIELDS}


class LitellmUpstream:
    """Serves a deployment through litellm. litellm is imported by the first call, or by ``warm``."""

    def __init__(self) -> None:
        self._library = Library()
        self.warm, self.aclose = self._library.warm, self._library.aclose

    async def open(self, call: Call) -> Answer:
        """Make the call. A streamed answer is open as soon as its first chunk has arrived. A refusal is also an
        Answer."""
        if (fields := _FIELDS.get(call.path)) is None:
            raise NotFound(
                f"/v1{call.path} needs the http transport: the litellm transport serves chat and embeddings",
                code="unknown_path",
            )
        body = await _read(call)
        litellm = await self._library.module()
        deployment = call.deployment
        key = client_key(call.headers) if deployment.api_key is None else None
        errors = ErrorMap(secrets_of(deployment, key))
        try:
            with errors:
                route = self._library.route(deployment)
                if call.forwards_key:
                    _check_forwards(key, route)
                elif key and (not route.takes_key or keys_in_environment(litellm, deployment.model)):
                    key = None
                arguments = call_arguments(deployment, body, route, fields=fields, headers=call.headers, api_key=key)
                ask = litellm.acompletion if fields is CHAT_FIELDS else litellm.aembedding
                response = await ask(**arguments)
                return await _opened(response, errors) if hasattr(response, "__anext__") else _whole(response)
        except UpstreamRejected as error:
            return WholeAnswer(error.status, (_JSON, *error.headers.items()), error_body(error))


async def _opened(stream: Any, errors: ErrorMap) -> Answer:
    """Wait for the first chunk. A call may be refused or end only then, and that must be known before the client gets
    bytes."""
    is_open = False
    try:
        with errors:
            first = await anext(stream, None)
        is_open = first is not None and not _is_made_up(stream, first)
        return StreamAnswer(stream, first, errors) if is_open else empty_stream(stream)
    except StreamEndedEarly:
        return empty_stream(stream)
    finally:
        if not is_open:
            await stream.aclose()


def _is_made_up(stream: Any, first: Any) -> bool:
    """Whether the provider sent nothing. Then litellm makes a chunk that says "stop" (_finalize_completed_stream)."""
    finished = any(choice.finish_reason for choice in first.choices)
    return finished and getattr(stream, "received_finish_reason", "") is None


def _check_forwards(key: str | None, route: Route) -> None:
    """Refuse a call without the client's key, because litellm would use the operator's key instead. Raises
    Forbidden."""
    if key is None or not route.takes_key:
        raise Forbidden(
            "This model is not served with keys of the provider's own, only with keys of this proxy.",
            code="client_key_not_accepted",
        )


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


def _whole(response: Any) -> WholeAnswer:
    """A chat completion or a list of embeddings."""
    return WholeAnswer(200, (_JSON, *_provider_headers(response)), render(response))


def empty_stream(stream: Any) -> WholeAnswer:
    """A stream that ended well without a chunk."""
    return WholeAnswer(200, (_SSE, *_provider_headers(stream)), b"")


def render(response: Any) -> bytes:
    """A response, or a chunk of a response, as JSON. Members that are None in litellm are left out, except those that
    OpenAI sends as null."""
    body: dict[str, Any] = response.model_dump(exclude_none=True, warnings=False)
    for choice in body.get("choices", ()):
        choice.setdefault("finish_reason", None)
        if isinstance(choice.get("message"), dict):
            choice["message"].setdefault("content", None)
    return orjson.dumps(body, default=str)


def _provider_headers(response: object) -> Headers:
    """The provider's own headers that are passed on. litellm keeps them under a prefix."""
    hidden = getattr(response, "_hidden_params", None)
    kept = hidden.get("additional_headers") if isinstance(hidden, Mapping) else None
    if not isinstance(kept, Mapping):
        return ()
    own = {str(name)[len(_PREFIX) :]: str(value) for name, value in kept.items() if str(name).startswith(_PREFIX)}
    return tuple(passed_headers(own).items())

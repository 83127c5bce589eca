"""litellm's objects as response bytes: OpenAI's JSON, or its server-sent events."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from proxy.engine.answers.whole_answer import WholeAnswer
from proxy.errors import ProxyError, error_body
from proxy.ports import Headers
from proxy.upstream.litellm_.errors import ErrorMap, passed_headers

_JSON = ("content-type", "application/json")
_SSE = ("content-type", "text/event-stream; charset=utf-8")
_DONE = b"data: [DONE]\n\n"
_PREFIX = "llm_provider-"


class StreamAnswer:
    """A streamed answer whose first chunk has arrived; ``stream`` is litellm's CustomStreamWrapper."""

    status = 200

    def __init__(self, stream: Any, first: Any, errors: ErrorMap) -> None:
        self.headers: Headers = (_SSE, *_provider_headers(stream))
        self._stream = stream
        self._first = first
        self._errors = errors
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Server-sent events, ``[DONE]`` last. Raises ProxyError where the stream breaks."""
        chunk = self._first
        while chunk is not None:
            yield render_chunk(chunk)
            with self._errors:
                chunk = await anext(self._stream, None)
        if not self._closed:
            yield _DONE

    def usage_so_far(self) -> Mapping[str, object]:
        """What the provider has told of the usage. litellm keeps it back until the last chunk, although Anthropic tells
        the prompt's usage first."""
        told = [chunk.usage for chunk in self._stream.chunks if getattr(chunk, "usage", None) is not None]
        found: dict[str, object] = told[-1].model_dump(exclude_none=True, warnings=False) if told else {}
        return found

    async def aclose(self) -> None:
        """Close the provider's response: a call that is still running is cancelled."""
        self._closed = True
        await self._stream.aclose()


def whole(response: Any) -> WholeAnswer:
    """A chat completion or a list of embeddings."""
    return WholeAnswer(200, (_JSON, *_provider_headers(response)), render(response))


def refusal(error: ProxyError) -> WholeAnswer:
    """A provider's refusal, in OpenAI's shape and with the provider's status."""
    return WholeAnswer(error.status, (_JSON, *error.headers.items()), error_body(error))


def empty_stream(stream: Any) -> WholeAnswer:
    """A stream that ended well without a chunk."""
    return WholeAnswer(200, (_SSE, *_provider_headers(stream)), b"")


def render(response: Any) -> bytes:
    """A response, or a chunk of one, as JSON. Members that litellm left None are left out, but for those that OpenAI
    sends as null."""
    body: dict[str, Any] = response.model_dump(exclude_none=True, warnings=False)
    for choice in body.get("choices", ()):
        choice.setdefault("finish_reason", None)
        if isinstance(choice.get("message"), dict):
            choice["message"].setdefault("content", None)
    return orjson.dumps(body, default=str)


def render_chunk(chunk: Any) -> bytes:
    """A chunk as a server-sent event."""
    return b"data: " + render(chunk) + b"\n\n"


def _provider_headers(response: object) -> Headers:
    """The provider's own headers, which litellm keeps under a prefix, as far as they pass."""
    hidden = getattr(response, "_hidden_params", None)
    kept = hidden.get("additional_headers") if isinstance(hidden, Mapping) else None
    if not isinstance(kept, Mapping):
        return ()
    own = {str(name)[len(_PREFIX) :]: str(value) for name, value in kept.items() if str(name).startswith(_PREFIX)}
    return tuple(passed_headers(own).items())

"""A sample session: the requests that a client would send, with their times.

The client that sends them is like any other: the real ``openai`` SDK, pointed at the proxy by its base URL
(``usages``). ``RequestRecorder`` remembers the requests that reached the provider, so that the demo can compare them
with the client's requests.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import orjson
from openai import AsyncOpenAI

from proxy.clock import TIME_HEADER
from proxy.core.response.usage import Usage, usage_of
from proxy.core.value import dataclass
from proxy.engine.headers import get
from proxy.ports import Answer, Call, Upstream
from proxy.replay.trace import Step, Trace

MODEL = "claude-sonnet-4-5"
# 2026-11-21 09:00:00 UTC: the sessions' own time, so that minutes between turns pass at once.
BEGIN = 1_795_251_600.0

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``body`` is in the form in which a client gives it to its SDK. ``at`` is in unix seconds of the
    session's own time."""

    at: float
    body: dict[str, Any]

    @property
    def raw(self) -> bytes:
        """The body as the SDK sends it."""
        members = {name: value for name, value in self.body.items() if name != "extra_body"}
        return orjson.dumps(members | self.body.get("extra_body", {}))


@dataclass(frozen=True, slots=True)
class Sample:
    """A session with a name, and a short description of the kind of client."""

    name: str
    client: str
    requests: Sequence[Request]

    def trace(self) -> Trace:
        """The session in the form of a recorded one."""
        return Trace(self.name, [Step(request.at, self.name, request.raw) for request in self.requests])


def system(text: str) -> Message:
    """A system message."""
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    """A user's message."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A model's message."""
    return {"role": "assistant", "content": text}


def chat(messages: Sequence[Message], *, stream: bool, **options: Any) -> dict[str, Any]:
    """A request's body. A stream asks for its usage, so that the demo can show what the provider reported."""
    body = {"model": MODEL, "messages": list(messages), **options}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


class RequestRecorder:
    """An upstream in front of another one. ``bodies`` are the request bodies that arrived, by key, in their order."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self.bodies: dict[str, list[bytes]] = {}

    async def open(self, call: Call) -> Answer:
        """Note the body and pass the call on."""
        if isinstance(call.body, bytes):
            key = (get(call.headers, "authorization") or "").removeprefix("Bearer ")
            self.bodies.setdefault(key, []).append(call.body)
        return await self._inner.open(call)

    async def aclose(self) -> None:
        """Close the other upstream."""
        await self._inner.aclose()


_TIMEOUT_S = 30.0


async def usages(
    base_url: str, key: str, requests: Iterable[Request], headers: Mapping[str, str]
) -> AsyncIterator[Usage]:
    """Send one session, and yield the usage that each answer reports. Each session has its own key, so that the proxy
    and the provider keep the sessions apart. ``headers`` go with every request. Raises openai.OpenAIError."""
    async with AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=_TIMEOUT_S) as client:
        for request in requests:
            timed = {**headers, TIME_HEADER: f"{request.at:.3f}"}
            answer = await client.chat.completions.create(**request.body, extra_headers=timed)
            report = answer.usage if not request.body.get("stream") else None
            if request.body.get("stream"):
                async for chunk in answer:
                    report = chunk.usage or report
            usage = usage_of({"usage": report.model_dump()}) if report is not None else None
            if usage is None:
                raise ValueError("an answer came without usage")
            yield usage

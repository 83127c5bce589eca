"""A sample session: the requests that a client would send, with their times."""

from collections.abc import Sequence
from typing import Any

import orjson

from proxy.core.value import dataclass
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


@dataclass(frozen=True, slots=True)
class Sample:
    """A session with a name, and a short description of the kind of client."""

    name: str
    client: str
    requests: Sequence[Request]

    def trace(self) -> Trace:
        """The session in the form of a recorded one."""
        steps = [Step(request.at, self.name, orjson.dumps(request.body)) for request in self.requests]
        return Trace(self.name, steps)


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

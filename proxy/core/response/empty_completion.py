"""A chat completion in which the model says nothing, as one JSON body or as a stream of events. Pure.

The form is OpenAI's (https://platform.openai.com/docs/api-reference/chat/object). No provider has written it: its usage
is nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

_MOST_ANSWERS = 128
"""OpenAI's own bound of ``n``."""
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@dataclass(frozen=True, slots=True)
class EmptyCompletion:
    """The empty completion of one request. ``created`` is in unix seconds; ``answers`` is how many were asked for."""

    id: str
    model: str
    created: int
    answers: int = 1

    def body(self) -> bytes:
        """The one JSON body."""
        said = {"role": "assistant", "content": ""}
        choices = [
            {"index": index, "message": said, "logprobs": None, "finish_reason": "stop"} for index in self._indices()
        ]
        return orjson.dumps({**self._head("chat.completion"), "choices": choices, "usage": _NO_USAGE})

    def events(self, *, has_usage: bool) -> bytes:
        """The whole stream. ``has_usage``: the client asked for a chunk with the usage."""
        opened = [_choice(index, {"role": "assistant", "content": ""}, None) for index in self._indices()]
        closed = [_choice(index, {}, "stop") for index in self._indices()]
        chunks: list[Mapping[str, object]] = [{"choices": opened}, {"choices": closed}]
        if has_usage:
            chunks.append({"choices": [], "usage": _NO_USAGE})
        head = self._head("chat.completion.chunk")
        events = [b"data: " + orjson.dumps({**head, **chunk}) + b"\n\n" for chunk in chunks]
        return b"".join([*events, b"data: [DONE]\n\n"])

    def _indices(self) -> range:
        return range(max(1, min(self.answers, _MOST_ANSWERS)))

    def _head(self, kind: str) -> dict[str, object]:
        # What clients choose may hold half of a surrogate pair, which is no JSON.
        model = self.model.encode("utf-8", "replace").decode()
        return {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": model}


def _choice(index: int, delta: Mapping[str, str], finish: str | None) -> dict[str, object]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}

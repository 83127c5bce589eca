"""Makes a completion in which the model says nothing, as one JSON body or as a stream of events. Pure.

The forms are OpenAI's (https://platform.openai.com/docs/api-reference/chat/object, .../completions/object). No provider
has written it, so its usage is zero.
"""

from collections.abc import Mapping

import orjson

from proxy.core.response.event_format import DONE, event_of
from proxy.core.value import dataclass

_MOST_ANSWERS = 128
"""OpenAI's own upper bound for ``n``."""
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@dataclass(frozen=True, slots=True)
class EmptyCompletion:
    """The empty completion of one request. ``created`` is in unix seconds. ``answers`` is how many were asked for. If
    it ``is_chat``, it has messages; otherwise it has texts."""

    id: str
    model: str
    created: int
    answers: int = 1
    is_chat: bool = True

    def body(self) -> bytes:
        """The one JSON body."""
        said = {"message": {"role": "assistant", "content": ""}} if self.is_chat else {"text": ""}
        choices = [_choice(index, said, "stop") for index in self._indices()]
        return orjson.dumps({**self._head("chat.completion"), "choices": choices, "usage": _NO_USAGE})

    def events(self, *, has_usage: bool) -> bytes:
        """The whole stream. ``has_usage``: the client asked for a chunk with the usage."""
        said: Mapping[str, object] = {"delta": {"role": "assistant", "content": ""}} if self.is_chat else {"text": ""}
        opened = [_choice(index, said, None) for index in self._indices()]
        closed = [_choice(index, {"delta": {}} if self.is_chat else said, "stop") for index in self._indices()]
        usage: list[Mapping[str, object]] = [{"choices": [], "usage": _NO_USAGE}] if has_usage else []
        head = self._head("chat.completion.chunk")
        chunks = [{**head, **chunk} for chunk in ({"choices": opened}, {"choices": closed}, *usage)]
        return b"".join([*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE])

    def _indices(self) -> range:
        return range(max(1, min(self.answers, _MOST_ANSWERS)))

    def _head(self, kind: str) -> dict[str, object]:
        # A name that a client chooses may hold half of a surrogate pair, which cannot be written as JSON.
        model = self.model.encode("utf-8", "replace").decode()
        begins, form = ("chatcmpl", kind) if self.is_chat else ("cmpl", "text_completion")
        return {"id": f"{begins}-{self.id}", "object": form, "created": self.created, "model": model}


def _choice(index: int, said: Mapping[str, object], finish: str | None) -> dict[str, object]:
    return {"index": index, **said, "logprobs": None, "finish_reason": finish}

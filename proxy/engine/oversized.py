"""Handles a request that the upstream refuses as too large for the context window, as its capability profile says.

The first refusal shows how the model counts tokens. The request is fitted again with that count, and sent once more if
it has become smaller. Then the profile decides. Until then, nothing of any answer has reached the client. All attempts
share one reservation, and refused attempts are not billed.

Makes a completion in which the model says nothing, as one JSON body or as a stream of events. Pure.

The forms are OpenAI's (https://platform.openai.com/docs/api-reference/chat/object, .../completions/object). No provider
has written it, so its usage is zero.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import orjson

from proxy.core.response.event_format import DONE, event_of
from proxy.core.response.refusal import ContextRefusalOutcome, Refusal, named_tokens
from proxy.core.value import dataclass
from proxy.core.window.profile import OverBudget
from proxy.engine.attempts import Outgoing
from proxy.engine.bodies import Raw
from proxy.engine.conclusion import Conclusion
from proxy.engine.exchange import Exchange, ExchangeOutcome
from proxy.engine.ports import Client, Windows
from proxy.engine.relay import note_context_refusal, own_headers
from proxy.errors import ContextTooLong, UpstreamRejected

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


T = TypeVar("T", bound=Outgoing | Raw)
"""A request as it is sent."""


@dataclass(slots=True, repr=False)
class Oversized(Generic[T]):
    """The refusals of one exchange. ``shares`` are the shares of the budget that are still to be tried."""

    exchange: Exchange
    client: Client
    conclusion: Conclusion
    resize: Callable[[float], Awaitable[T]]
    """Fits the request to that share of its budget. Raises ContextTooLong."""
    windows: Windows | None
    shares: Sequence[float] = (1.0, 0.75, 0.5)

    async def smaller(self, refused: T, said: Refusal) -> T | None:
        """The request that replaces the one that was refused with this text. None: the client already has its answer.
        Raises UpstreamRejected."""
        exchange, profile = self.exchange, self.exchange.window
        assert profile is not None
        fitted, deployment = exchange.fitted, exchange.deployment
        sizes = fitted.sizes if fitted is not None else {}
        if self.windows is not None and fitted is not None and deployment is not None:
            self.windows.refused(deployment, fitted, named_tokens(said), scope=exchange.admitted.scope)
        outgoing = await self._next(refused)
        if profile.over_budget is not OverBudget.RETRY:
            self.shares = ()
        if outgoing is not None:
            note_context_refusal(exchange, ContextRefusalOutcome.RETRIED, sizes)
            return outgoing
        if profile.over_budget is OverBudget.EMPTY:
            note_context_refusal(exchange, ContextRefusalOutcome.EMPTY, sizes)
            await self._answer_empty()
            return None
        note_context_refusal(exchange, ContextRefusalOutcome.ERROR, sizes)
        raise UpstreamRejected(
            "the upstream refuses the request as too large for the model's context window: send fewer or shorter"
            " messages, or ask for a shorter answer",
            status=400,
            error_type="invalid_request_error",
            code="context_length_exceeded",
            param="messages",
        )

    async def _next(self, refused: T) -> T | None:
        """The next smaller request. A request that is as large as the refused one would be refused, too."""
        while self.shares:
            share, self.shares = self.shares[0], self.shares[1:]
            try:
                outgoing = await self.resize(share)
            except ContextTooLong:
                return None
            if outgoing.size < refused.size:
                return outgoing
        return None

    async def _answer_empty(self) -> None:
        """Send an empty completion, in the form in which the client has asked for one."""
        exchange, client, asked = self.exchange, self.client, self.exchange.requested
        created, is_chat = int(exchange.arrival.now), exchange.arrival.is_chat
        made = EmptyCompletion(exchange.arrival.id, asked.model, created, asked.demand.answers, is_chat)
        body = made.events(has_usage=asked.wants_usage) if asked.stream else made.body()
        kind = "text/event-stream" if asked.stream else "application/json"
        exchange.answer.status = 200
        exchange.ending = ExchangeOutcome.HUNG_UP if client.has_left else ExchangeOutcome.COMPLETED
        await self.conclusion.book(exchange)
        await client.start(200, [("content-type", kind), *own_headers(exchange)])
        exchange.answer.sent_bytes += len(body)
        await client.end(body)

"""Handles a request that the upstream refuses as too large for the context window, as its capability profile says.

The first refusal shows how the model counts tokens. The request is fitted again with that count, and sent once more if
it has become smaller. Then the profile decides. Until then, nothing of any answer has reached the client. All attempts
share one reservation, and refused attempts are not billed.

A profile may ask for a completion in which the model says nothing. Its forms are OpenAI's
(https://platform.openai.com/docs/api-reference/chat/object, .../completions/object). No provider has written it, so its
usage is zero.
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


def empty_completion(exchange: Exchange) -> bytes:
    """A completion in which the model says nothing, in the form in which the client has asked for one: one JSON body,
    or a stream of events. A chat's completion has messages; any other has texts."""
    asked, arrival, is_chat = exchange.requested, exchange.arrival, exchange.arrival.is_chat
    begins, form = ("chatcmpl", "chat.completion") if is_chat else ("cmpl", "text_completion")
    # A name that a client chooses may hold half of a surrogate pair, which cannot be written as JSON.
    head = {
        "id": f"{begins}-{arrival.id}",
        "object": form,
        "created": int(arrival.now),
        "model": asked.model.encode("utf-8", "replace").decode(),
    }

    def choices(said: Mapping[str, object], finish: str | None) -> list[Mapping[str, object]]:
        count = max(1, min(asked.demand.answers, _MOST_ANSWERS))
        return [{"index": index, **said, "logprobs": None, "finish_reason": finish} for index in range(count)]

    said = {"role": "assistant", "content": ""}
    if not asked.stream:
        whole = choices({"message": said} if is_chat else {"text": ""}, "stop")
        return orjson.dumps({**head, "choices": whole, "usage": _NO_USAGE})
    if is_chat:
        head["object"] = f"{form}.chunk"
    opened = choices({"delta": said} if is_chat else {"text": ""}, None)
    closed = choices({"delta": {}} if is_chat else {"text": ""}, "stop")
    usage: list[Mapping[str, object]] = [{"choices": [], "usage": _NO_USAGE}] if asked.wants_usage else []
    chunks = [{**head, **chunk} for chunk in ({"choices": opened}, {"choices": closed}, *usage)]
    return b"".join([*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE])


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
            client, body = self.client, empty_completion(exchange)
            kind = "text/event-stream" if exchange.requested.stream else "application/json"
            exchange.answer.status = 200
            exchange.ending = ExchangeOutcome.HUNG_UP if client.has_left else ExchangeOutcome.COMPLETED
            await self.conclusion.book(exchange)
            await client.start(200, [("content-type", kind), *own_headers(exchange)])
            exchange.answer.sent_bytes += len(body)
            await client.end(body)
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

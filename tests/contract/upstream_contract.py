"""What the engine relies on in every transport (``proxy.engine.interfaces.Upstream``).

A transport's test module makes a subclass named ``Test...`` that says how to open one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from proxy.engine.interfaces import Answer, Call, Upstream
from proxy.kit.errors import ProxyError
from proxy.models.deployment import Deployment

QUESTION = [{"role": "user", "content": "What is a stratum?"}]


@dataclass(frozen=True)
class Subject:
    """An upstream with a provider behind it that answers chat requests.

    ``refusing`` is a body that this provider answers with an error of its own, ``paced`` a deployment whose answers
    take time between chunks.
    """

    upstream: Upstream
    deployment: Deployment
    paced: Deployment
    refusing: dict[str, Any]

    def call(self, *, stream: bool = False, **body: Any) -> Call:
        """A chat call."""
        request = {"model": self.deployment.model, "messages": QUESTION, "stream": stream, **body}
        headers = [("authorization", "Bearer contract"), ("content-type", "application/json")]
        return Call(self.deployment, "POST", "/chat/completions", headers, orjson.dumps(request), stream, 1000.0)

    async def reading(self) -> tuple[Answer, asyncio.Future[bytes]]:
        """An answer that has begun, and who waits for more of it."""
        answer = await self.upstream.open(replace(self.call(stream=True), deployment=self.paced))
        chunks = answer.chunks()
        await anext(chunks)
        reading = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        return answer, reading


async def body_of(answer: Answer) -> bytes:
    """The whole body, the answer closed."""
    try:
        return b"".join([chunk async for chunk in answer.chunks()])
    finally:
        await answer.aclose()


def events_of(body: bytes) -> list[Any]:
    """The events of a complete stream."""
    data = [line.removeprefix(b"data: ") for line in body.replace(b"\r\n", b"\n").split(b"\n\n") if line.strip()]
    assert data[-1] == b"[DONE]"
    return [orjson.loads(line) for line in data[:-1]]


class UpstreamContract:
    """Subclass, and open the transport."""

    def principal(self) -> AbstractAsyncContextManager[Subject]:
        """A fresh upstream and its deployments."""
        raise NotImplementedError

    def run(self, scenario: Any) -> None:
        async def main() -> None:
            async with self.principal() as principal:
                await scenario(principal)

        asyncio.run(main())

    def test_a_json_answer(self) -> None:
        async def scenario(principal: Subject) -> None:
            answer = await principal.upstream.open(principal.call())
            headers = {name.lower(): value for name, value in answer.headers}
            body = orjson.loads(await body_of(answer))
            assert answer.status == 200
            assert headers["content-type"].startswith("application/json")
            assert body["object"] == "chat.completion"
            assert body["choices"][0]["message"]["content"]
            assert body["usage"]["prompt_tokens"] > 0

        self.run(scenario)

    def test_a_stream(self) -> None:
        async def scenario(principal: Subject) -> None:
            call = principal.call(stream=True, stream_options={"include_usage": True})
            answer = await principal.upstream.open(call)
            assert dict(answer.headers)["content-type"].startswith("text/event-stream")
            *events, last = events_of(await body_of(answer))
            assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
            assert last["usage"]["completion_tokens"] > 0

        self.run(scenario)

    def test_no_usage_event_that_was_not_asked_for(self) -> None:
        async def scenario(principal: Subject) -> None:
            answer = await principal.upstream.open(principal.call(stream=True))
            assert not any(event.get("usage") for event in events_of(await body_of(answer)))

        self.run(scenario)

    def test_a_body_that_arrives_in_pieces(self) -> None:
        async def scenario(principal: Subject) -> None:
            call = principal.call()

            async def pieces() -> AsyncIterator[bytes]:
                assert isinstance(call.body, bytes)
                for i in range(0, len(call.body), 7):
                    yield call.body[i : i + 7]

            answer = await principal.upstream.open(replace(call, body=pieces()))
            assert orjson.loads(await body_of(answer))["choices"]

        self.run(scenario)

    def test_the_upstreams_own_error_is_an_answer(self) -> None:
        async def scenario(principal: Subject) -> None:
            answer = await principal.upstream.open(principal.call(**principal.refusing))
            error = orjson.loads(await body_of(answer))["error"]
            assert 400 <= answer.status < 500
            assert error["message"]

        self.run(scenario)

    def test_closing_twice(self) -> None:
        async def scenario(principal: Subject) -> None:
            answer = await principal.upstream.open(principal.call())
            await body_of(answer)
            await answer.aclose()
            await answer.aclose()

        self.run(scenario)

    def test_closing_unread_and_going_on(self) -> None:
        async def scenario(principal: Subject) -> None:
            unread = await principal.upstream.open(principal.call(stream=True))
            await unread.aclose()
            answer = await principal.upstream.open(principal.call())
            assert orjson.loads(await body_of(answer))["choices"]

        self.run(scenario)

    def test_giving_up_wakes_the_reader(self) -> None:
        async def scenario(principal: Subject) -> None:
            answer, reading = await principal.reading()
            await answer.aclose()
            with pytest.raises(ProxyError):
                await asyncio.wait_for(reading, 60)

        self.run(scenario)

    def test_cancelling_the_reader(self) -> None:
        async def scenario(principal: Subject) -> None:
            answer, reading = await principal.reading()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await answer.aclose()

        self.run(scenario)

    def test_calls_side_by_side(self) -> None:
        async def scenario(principal: Subject) -> None:
            answers = await asyncio.gather(*(principal.upstream.open(principal.call(stream=True)) for _ in range(8)))
            bodies = await asyncio.gather(*(body_of(answer) for answer in answers))
            assert len({events_of(body)[0]["id"] for body in bodies}) == 8

        self.run(scenario)

    def test_a_closed_upstream_says_so(self) -> None:
        async def scenario(principal: Subject) -> None:
            await principal.upstream.aclose()
            await principal.upstream.aclose()
            with pytest.raises(ProxyError):
                await principal.upstream.open(principal.call())

        self.run(scenario)

"""The litellm transport against providers on loopback: refusals, silence, streams that break off, and hanging up."""

import asyncio
import json

import pytest

from proxy.engine.ports import Answer, TellsUsage
from proxy.kit.errors import UpstreamError, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.protocol.response.usage import Usage, usage_of
from tests.contract.litellm_calls import (
    CLAUDE,
    FAMILIES,
    HELLO,
    KEY,
    LITELLM,
    begun,
    call,
    read,
    serving,
)
from tests.contract.litellm_fakes import REQUEST_ID, named_event

pytestmark = LITELLM


async def keep(answer: Answer, came: list[bytes]) -> None:
    async for chunk in answer.chunks():
        came.append(chunk)


def refusal(model: str, status: int) -> object:
    said = {"type": "rate_limit_error" if status == 429 else "some_error", "message": f"no, not with {KEY}"}
    if model == CLAUDE:
        return {"type": "error", "error": said, "request_id": REQUEST_ID}
    return {"error": {**said, "param": "messages", "code": "some_code"}}


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
async def test_a_refusal_keeps_the_providers_status_and_words(model: str, stream: bool) -> None:
    headers = {"retry-after": "7", "request-id": REQUEST_ID, "x-ratelimit-remaining-requests": "0", "set-cookie": "a=b"}
    own = (None, None) if model == CLAUDE else ("messages", "some_code")
    async with serving(headers=headers) as (fake, upstream):
        for count, status in enumerate((400, 401, 403, 404, 413, 422, 429, 500, 503, 529), 1):
            fake.status, fake.error = status, refusal(model, status)
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": stream}))
            error = json.loads(await read(answer))["error"]
            assert answer.status == status
            assert error["type"] == ("rate_limit_error" if status == 429 else "some_error")
            assert error["message"].startswith("no, not with ")
            assert KEY not in error["message"]
            assert (error["param"], error["code"]) == own
            passed = dict(answer.headers)
            assert (passed["retry-after"], passed["request-id"]) == ("7", REQUEST_ID)
            assert passed["x-ratelimit-remaining-requests"] == "0"
            assert "set-cookie" not in passed
            assert len(fake.seen) == count, "litellm must not retry"


@pytest.mark.parametrize("ending", ["cut", "hold"])
@FAMILIES
async def test_what_the_provider_told_of_the_usage_is_known_of_a_stream_that_is_not_whole(
    model: str, ending: str
) -> None:
    """Whether the line breaks, or the client leaves."""
    async with serving(events=begun(model), ending=ending) as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        assert isinstance(answer, TellsUsage)
        chunks = answer.chunks()
        if ending == "hold":
            await anext(chunks)
        else:
            with pytest.raises(UpstreamUnavailable):
                _ = [chunk async for chunk in chunks]
        await answer.aclose()
        told = usage_of(answer.usage_so_far())
        assert told == (Usage(2098, 1, read=1800, write_5m=200, write_1h=48) if model == CLAUDE else None)


@FAMILIES
async def test_a_refusal_that_is_no_json_is_still_an_openai_error(model: str) -> None:
    async with serving(status=502, error="<html>bad gateway</html>") as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, HELLO))
        error = json.loads(await read(answer))["error"]
        assert (answer.status, error["type"]) == (502, "server_error")


UNREADABLE = {
    "a page": "<html>log in</html>",
    "a list": [1, 2],
    "no choices": {"choices": None, "content": None},
    "no message": {"id": "x", "choices": [{"index": 0, "message": None}], "content": [None]},
    "half a token": {"id": "x", "choices": [], "content": [], "usage": {"prompt_tokens": 10.5, "input_tokens": {}}},
}


@pytest.mark.parametrize("said", UNREADABLE.values(), ids=UNREADABLE)
@FAMILIES
async def test_an_answer_that_litellm_cannot_read_may_be_billed(model: str, said: object) -> None:
    async with serving(status=201, error=said) as (fake, upstream):
        with pytest.raises(UpstreamError) as caught:
            await upstream.open(call(model, fake.base, HELLO))
        assert caught.value.status >= 500
        assert caught.value.may_bill
        assert len(fake.seen) == 1


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
async def test_silence_is_a_timeout(model: str, stream: bool) -> None:
    async with serving(silent=True) as (fake, upstream):
        with pytest.raises(UpstreamTimeout):
            await upstream.open(call(model, fake.base, {**HELLO, "stream": stream}, timeout_s=0.2))
        await fake.gone.wait()


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
async def test_a_closed_port_is_unavailable(model: str, stream: bool) -> None:
    async with serving() as (_, upstream):
        with pytest.raises(UpstreamUnavailable) as caught:
            await upstream.open(call(model, "http://127.0.0.1:9", {**HELLO, "stream": stream}))
        assert "127.0.0.1" not in caught.value.message


@pytest.mark.parametrize("ending", ["cut", "done"])
@FAMILIES
async def test_a_stream_that_breaks_off_raises_after_what_came(model: str, ending: str) -> None:
    async with serving(events=begun(model), ending=ending) as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        came = []
        with pytest.raises(UpstreamUnavailable):
            await keep(answer, came)
        assert b'"hel"' in b"".join(came)
        assert b"[DONE]" not in b"".join(came)
        await answer.aclose()


def overloaded(model: str) -> str:
    """An error event, in the model's dialect."""
    error = {"type": "overloaded_error", "message": "Overloaded"}
    if model == CLAUDE:
        return named_event({"type": "error", "error": error})
    return f"data: {json.dumps({'error': error})}\n\n"


@FAMILIES
async def test_an_error_event_in_a_stream_raises_the_providers_words(model: str) -> None:
    async with serving(events=[*begun(model), overloaded(model)]) as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        with pytest.raises(UpstreamRejected, match="Overloaded"):
            await read(answer)
        await answer.aclose()


@FAMILIES
async def test_an_error_event_before_anything_else_is_a_refusal(model: str) -> None:
    async with serving(events=[overloaded(model)]) as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        assert answer.status >= 500
        assert json.loads(await read(answer))["error"]["message"] == "Overloaded"


@FAMILIES
async def test_a_stream_without_a_chunk_is_an_empty_answer(model: str) -> None:
    async with serving(events=[]) as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        assert answer.status == 200
        assert await read(answer) == b""


# Hanging up


@FAMILIES
async def test_closing_a_stream_hangs_up_on_the_provider(model: str) -> None:
    async with serving(events=begun(model), ending="hold") as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        async for chunk in answer.chunks():
            if b"hel" in chunk:
                break
        assert not fake.gone.is_set()
        await answer.aclose()
        await fake.gone.wait()
        await answer.aclose()


@FAMILIES
async def test_closing_while_a_chunk_is_awaited_hangs_up_on_the_provider(model: str) -> None:
    async with serving(events=begun(model), ending="hold") as (fake, upstream):
        answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
        reading = asyncio.ensure_future(read(answer))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await answer.aclose()
        await fake.gone.wait()


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
async def test_cancelling_a_call_that_waits_hangs_up_on_the_provider(model: str, stream: bool) -> None:
    async with serving(silent=True) as (fake, upstream):
        opening = asyncio.ensure_future(upstream.open(call(model, fake.base, {**HELLO, "stream": stream})))
        await fake.asked.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await fake.gone.wait()


async def test_cancelling_before_the_first_chunk_hangs_up_on_the_provider() -> None:
    async with serving(events=[], ending="hold") as (fake, upstream):
        opening = asyncio.ensure_future(upstream.open(call(CLAUDE, fake.base, {**HELLO, "stream": True})))
        await fake.asked.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await fake.gone.wait()

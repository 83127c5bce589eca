"""Errors that are no error objects, and the usage of a request in its answer."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine import upstream_answer
from proxy.engine.exchange import Exchange
from proxy.engine.upstream_answer import BodyAddition, ReadAhead, with_refusal_read
from proxy.kit.errors import ProxyError, UpstreamUnavailable
from proxy.models import Headers
from proxy.protocol.response.refusal import NO_WORDS
from tests.examples import for_every
from tests.unit.engine.parts import (
    BODY,
    DONE,
    JSON,
    ROLE,
    SSE,
    USAGE,
    WORD,
    Bench,
    MemoryClient,
    Script,
    answers,
    chat_body,
    code,
    event,
)

HTML = [("content-type", "text/html"), ("x-request-id", "r1"), ("content-length", "17")]
PAGE = b"<html>oops</html>"


@for_every(
    product(
        [
            (500, "server_error", "(Internal Server Error)"),
            (413, "invalid_request_error", "("),
            (599, "server_error", "599"),
        ],
        [True, False],
    )
)
def test_a_chat_gets_an_error_object_for_a_page(said: tuple[int, str, str], stream: bool) -> None:
    status, kind, phrase = said
    bench = Bench(answers(PAGE, status=status, headers=HTML))
    client = bench.chat(MemoryClient(chat_body(stream=stream)))
    error = orjson.loads(client.answer)["error"]
    assert (client.status, error["type"], error["code"], error["param"]) == (status, kind, "upstream_error", None)
    assert phrase in error["message"]
    assert "oops" not in error["message"]
    sent = client.answer_headers
    assert (sent["content-type"], sent["x-request-id"]) == ("application/json", "r1")
    assert sent["content-length"] == str(len(client.answer))
    assert bench.ledger.ended[0].answer.status == status


def test_plain_text_is_quoted() -> None:
    bench = Bench(answers(b"404 page\n not found", b"!" * 1000, status=404, headers=[("content-type", "text/plain")]))
    message = orjson.loads(bench.chat(MemoryClient(chat_body())).answer)["error"]["message"]
    assert message.startswith("the upstream answered 404 (Not Found), without an error object: 404 page not found!!!")
    assert len(message) < 300


def test_compressed_text_is_not_quoted() -> None:
    headers = [("content-type", "text/plain"), ("content-encoding", "gzip")]
    client = Bench(answers(gzip.compress(b"no"), status=502, headers=headers)).chat(MemoryClient(chat_body()))
    assert orjson.loads(client.answer)["error"]["message"].endswith("error object")
    assert "content-encoding" not in client.answer_headers


@pytest.mark.parametrize("kind", [[], [("content-type", "text/plain")]])
def test_an_object_that_is_not_called_one_passes(kind: list[tuple[str, str]]) -> None:
    client = Bench(answers(b'{"error"', b":{}}", status=400, headers=kind)).chat(MemoryClient(chat_body()))
    assert (client.answer, client.answer_headers["content-type"]) == (b'{"error":{}}', "application/json")


def test_a_page_that_breaks_off_or_does_not_end() -> None:
    for steps in ((b"<html>", UpstreamUnavailable("cut")), (b"x" * 70_000, None), ()):
        client = Bench(answers(*steps, status=503, headers=HTML)).chat(MemoryClient(chat_body()))
        assert (client.status, orjson.loads(client.answer)["error"]["code"]) == (503, "upstream_error")


@pytest.mark.parametrize("headers", [JSON, SSE])
def test_an_error_that_claims_a_content_type_of_the_api_passes_as_it_is(headers: list[tuple[str, str]]) -> None:
    client = Bench(answers(b"no", status=500, headers=headers)).chat(MemoryClient(chat_body()))
    assert client.answer == b"no"


def test_other_paths_get_what_came() -> None:
    client = Bench(answers(PAGE, status=500, headers=HTML)).relay(MemoryClient(chat_body(), path="/embeddings"))
    assert (client.answer, client.answer_headers["content-type"]) == (PAGE, "text/html")


class Slow:
    """An answer that goes on when it is told to. A wait for it can be given up, as one for the network."""

    def __init__(self, *steps: bytes | ProxyError | None, status: int = 400, headers: Headers = ()) -> None:
        self.status, self.headers, self.steps = status, headers, list(steps)
        self.go_on = asyncio.Event()
        self.is_closed = False

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.steps[:1] == [None]:
            await self.go_on.wait()
            self.steps.pop(0)
        if not self.steps:
            raise StopAsyncIteration
        step = self.steps.pop(0)
        if isinstance(step, ProxyError):
            raise step
        assert step is not None
        return step

    async def aclose(self) -> None:
        self.is_closed = True


async def rest_of(answer: ReadAhead) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


async def test_what_comes_late_is_passed_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_answer, "_MOST_S", 0.01)

    slow = Slow(b"one ", None, b"two ", b"three")
    ahead = ReadAhead(slow)
    assert await ahead.read() == b"one "
    slow.go_on.set()
    assert await rest_of(ahead) == b"one two three"
    await ahead.aclose()
    assert slow.is_closed


async def test_a_break_is_passed_on_behind_what_came() -> None:
    ahead = ReadAhead(Slow(b"one", UpstreamUnavailable("broken")))
    assert await ahead.read() == b"one"
    chunks = ahead.chunks()
    assert await anext(chunks) == b"one"
    with pytest.raises(UpstreamUnavailable):
        await anext(chunks)


@for_every([(200, ()), (404, ()), (500, ()), (400, [("content-encoding", "gzip")])])
def test_other_answers_are_not_read(status: int, headers: Headers) -> None:
    answer = Slow(None, status=status, headers=headers)
    found, said = asyncio.run(with_refusal_read(answer))
    assert (found is answer, said) == (True, NO_WORDS)


ASKED = {"stratiform": {"return_usage": True}}


class Reports:
    """Says what the exchange was booked with."""

    def of(self, exchange: Exchange) -> Awaitable[Mapping[str, object]]:
        async def report() -> Mapping[str, object]:
            settled = exchange.settlement
            assert settled is not None
            assert settled.usage is not None
            return {"prompt": settled.usage.prompt, "team": "t"}

        return report()


class Broken:
    def of(self, exchange: Exchange) -> Awaitable[Mapping[str, object]]:
        raise RuntimeError


def asked(script: Script, reports: Any = None, **more: object) -> MemoryClient:
    bench = Bench(script, usage_reports=(reports or Reports()).of)
    client = bench.chat(MemoryClient(chat_body(**{**ASKED, **more})))
    assert client.has_ended
    assert all("stratiform" not in orjson.loads(body) for body in bench.upstream.bodies)
    return client


def last_chunk(client: MemoryClient) -> Any:
    *_, chunk, done, rest = client.answer.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return orjson.loads(chunk.removeprefix(b"data: "))


@for_every([({}, b""), ({"stream_options": {"include_usage": True}}, USAGE)])
def test_the_last_chunk_of_a_stream_says_it_behind_that_of_usage(more: dict[str, object], told: bytes) -> None:
    client = asked(answers(ROLE, WORD, USAGE + DONE), stream=True, **more)
    assert client.answer.startswith(ROLE + WORD + told + b"data: ")
    chunk = last_chunk(client)
    assert (chunk["choices"], chunk["object"], chunk["model"]) == ([], "chat.completion.chunk", "m")
    assert chunk["stratiform"] == {"token_usage": {"prompt": 7, "team": "t"}}


@for_every(product([True, False], [len(BODY), 1]))
def test_a_body_says_it_once_behind_what_the_upstream_said(has_length: bool, step: int) -> None:
    headers = [*JSON, ("content-length", str(len(BODY)))] if has_length else JSON
    client = asked(answers(*(BODY[at : at + step] for at in range(0, len(BODY), step)), headers=headers))
    assert client.answer.startswith(BODY[:-1])
    assert client.answer.count(b"token_usage") == 1
    assert orjson.loads(client.answer)["stratiform"] == {"token_usage": {"prompt": 4, "team": "t"}}
    assert "content-length" not in client.answer_headers


@for_every(
    [
        (answers(b'{"error":{"message":"no"}}', status=400, headers=JSON), False),
        (answers(b"\x1f\x8b\x08}", headers=[*SSE, ("content-encoding", "gzip")]), True),
        (answers(b"[{}]", headers=JSON), False),
        (answers(b'{"choices":[{"finish', headers=JSON), False),
        (answers(WORD, event({"error": {"message": "overloaded"}}), DONE), True),
    ]
)
def test_what_is_no_whole_answer_passes_as_it_is(script: Script, is_stream: bool) -> None:
    expected = b"".join(step for step in script.steps if isinstance(step, bytes))
    assert asked(script, stream=is_stream).answer == expected


def test_a_report_that_fails_costs_no_answer() -> None:
    assert asked(answers(BODY, headers=JSON), Broken()).answer == BODY
    assert asked(answers(WORD, USAGE, DONE), Broken(), stream=True).answer == WORD + DONE


@for_every([("return_usage", False), *((name, None) for name in ("prompts", "window", "return_usage", "return_break"))])
def test_null_and_false_are_the_same_as_nothing_and_reach_no_provider(name: str, said: object) -> None:
    bench = Bench(answers(BODY, headers=JSON), usage_reports=Reports().of)
    client = bench.chat(MemoryClient(chat_body(stratiform={name: said})))
    assert (client.status, client.answer, bench.upstream.bodies) == (200, BODY, [chat_body()])


@for_every(product(["return_usage", "return_break"], [1, "true", [], {}]))
def test_what_is_no_boolean_is_refused(name: str, said: object) -> None:
    client = Bench().chat(MemoryClient(chat_body(stratiform={name: said})))
    assert (client.status, code(client)) == (400, "invalid_type")
    assert orjson.loads(client.answer)["error"]["param"] == f"stratiform.{name}"


OBJECTS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(st.integers() | st.text(alphabet='}{"\\ a', max_size=5), lambda one: st.lists(one)),
)


@given(OBJECTS, st.sampled_from(["", " ", "\r\n"]), st.data())
def test_a_member_is_added_to_any_object_however_it_is_cut(
    value: dict[str, Any], space: str, data: st.DataObject
) -> None:
    body = (json.dumps(value, indent=data.draw(st.sampled_from([None, 1]))) + space).encode()
    addition, out, left = BodyAddition(), b"", body
    while left:
        size = data.draw(st.integers(1, len(left)))
        out, left = out + addition.feed(left[:size]), left[size:]
    assert body.startswith(out)
    out += addition.end(b"", b'"ours":1')
    assert json.loads(out) == {**value, "ours": 1}
    assert len(out) - len(body) in (len(b'"ours":1'), len(b',"ours":1'))

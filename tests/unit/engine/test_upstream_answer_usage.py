"""What a request used, in its answer, where the client asks for it."""

import json
from collections.abc import Awaitable, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.exchange import Exchange
from proxy.engine.upstream_answer import BodyAddition
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


def test_the_last_chunk_of_a_stream_says_it() -> None:
    client = asked(answers(ROLE, WORD, USAGE + DONE), stream=True)
    assert client.answer.startswith(ROLE + WORD + b"data: ")
    chunk = last_chunk(client)
    assert chunk["choices"] == []
    assert (chunk["object"], chunk["model"]) == ("chat.completion.chunk", "m")
    assert chunk["stratiform"] == {"token_usage": {"prompt": 7, "team": "t"}}


def test_the_chunk_of_usage_still_comes_to_a_client_that_asks_for_it() -> None:
    client = asked(answers(WORD, USAGE + DONE), stream=True, stream_options={"include_usage": True})
    assert client.answer.startswith(WORD + USAGE)
    assert last_chunk(client)["stratiform"]["token_usage"]["prompt"] == 7


@pytest.mark.parametrize("length", [True, False])
def test_a_body_says_it_behind_what_the_upstream_said(*, length: bool) -> None:
    headers = [*JSON, ("content-length", str(len(BODY)))] if length else JSON
    client = asked(answers(BODY, headers=headers))
    assert client.answer.startswith(BODY[:-1])
    assert orjson.loads(client.answer)["stratiform"] == {"token_usage": {"prompt": 4, "team": "t"}}
    assert "content-length" not in client.answer_headers


def test_a_body_that_comes_in_pieces_says_it_once() -> None:
    client = asked(answers(*(BODY[place : place + 1] for place in range(len(BODY))), headers=JSON))
    assert client.answer.count(b"token_usage") == 1
    assert {**orjson.loads(BODY), "stratiform": {"token_usage": {"prompt": 4, "team": "t"}}} == orjson.loads(
        client.answer
    )


@pytest.mark.parametrize(
    ("script", "is_stream"),
    [
        (answers(b'{"error":{"message":"no"}}', status=400, headers=JSON), False),
        (answers(b"\x1f\x8b\x08}", headers=[*SSE, ("content-encoding", "gzip")]), True),
        (answers(b"[{}]", headers=JSON), False),
        (answers(b'{"choices":[{"finish', headers=JSON), False),
        (answers(WORD, event({"error": {"message": "overloaded"}}), DONE), True),
    ],
)
def test_what_is_no_whole_answer_passes_as_it_is(script: Script, *, is_stream: bool) -> None:
    expected = b"".join(step for step in script.steps if isinstance(step, bytes))
    assert asked(script, stream=is_stream).answer == expected


def test_a_report_that_fails_costs_no_answer() -> None:
    assert asked(answers(BODY, headers=JSON), Broken()).answer == BODY
    assert asked(answers(WORD, USAGE, DONE), Broken(), stream=True).answer == WORD + DONE


@pytest.mark.parametrize("said", [None, False])
def test_nothing_is_added_where_nobody_asks(said: object) -> None:
    client = asked(answers(BODY, headers=JSON), stratiform={"return_usage": said})
    assert client.answer == BODY


@pytest.mark.parametrize("said", [1, "true", [], {}])
@pytest.mark.parametrize("name", ["return_usage", "return_break"])
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


@pytest.mark.parametrize("name", ["prompts", "window", "return_usage", "return_break"])
def test_null_is_the_same_as_nothing_and_reaches_no_provider(name: str) -> None:
    bench = Bench(answers(BODY, headers=JSON))
    assert bench.chat(MemoryClient(chat_body(stratiform={name: None}))).status == 200
    assert bench.upstream.bodies == [chat_body()]

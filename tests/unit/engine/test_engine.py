"""The life of a request, with an upstream in memory."""

import asyncio
import json
from dataclasses import replace
from itertools import product

import orjson
import pytest

from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC, NONE, OPENAI
from proxy.core.reasons import Reason
from proxy.core.request.tokens import bytes_over_four
from proxy.engine.exchange import ExchangeOutcome
from proxy.planning.planner_port import Planning
from proxy.ports import Principal
from tests.doubles import ModelList, make_deployment
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
    answers,
    chat_body,
    code,
    ended,
)


def test_a_json_answer_passes_with_its_length_and_is_settled() -> None:
    script = answers(BODY, headers=[*JSON, ("content-length", str(len(BODY))), ("x-request-id", "r1")])
    bench = Bench(script)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer, client.has_ended) == (200, BODY, True)
    exchange = ended(bench)
    assert client.answer_headers == {
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "x-request-id": "r1",
        "x-stratiform-id": exchange.arrival.id,
        "x-stratiform-mode": "passthrough",
        "x-stratiform-reason": "passthrough-mode",
    }
    assert exchange.ending is ExchangeOutcome.COMPLETED
    assert exchange.answer.outcome.usage is not None
    assert (
        exchange.answer.outcome.usage.prompt,
        exchange.answer.outcome.finish_reason,
        exchange.answer.sent_bytes,
    ) == (4, "stop", len(BODY))
    assert bench.planner.events == ["accepted", "completed"]
    assert script.closed == 1


def test_usage_is_asked_for_and_kept_from_a_client_that_did_not() -> None:
    bench = Bench(answers(ROLE, WORD, USAGE + DONE))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == ROLE + WORD + DONE
    assert orjson.loads(bench.upstream.bodies[0])["stream_options"] == {"include_usage": True}
    usage = ended(bench).answer.outcome.usage
    assert usage is not None
    assert usage.prompt == 7


def test_usage_is_passed_to_a_client_that_asked_for_it() -> None:
    bench = Bench(answers(ROLE, WORD, USAGE + DONE))
    asked = chat_body(stream=True, stream_options={"include_usage": True})
    assert bench.chat(MemoryClient(asked)).answer == ROLE + WORD + USAGE + DONE
    assert bench.upstream.bodies == [asked]


def test_a_stream_without_a_content_type_is_read_as_a_stream() -> None:
    bench = Bench(answers(WORD, USAGE, DONE, headers=[]))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == WORD + DONE


def test_a_virtual_key_is_not_sent_upstream() -> None:
    bench = Bench(answers(BODY, headers=JSON))
    bench.door.admit = lambda headers, now: Principal("s", virtual=True)  # type: ignore[method-assign]
    bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("authorization", "Bearer sk-ours")]))
    assert "sk-ours" not in str(bench.upstream.calls[0].headers)


def test_compressed_answers_pass_unread() -> None:
    bench = Bench(answers(b"\x1f\x8b\x08", headers=[*SSE, ("content-encoding", "gzip")]))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.answer, client.answer_headers["content-encoding"]) == (b"\x1f\x8b\x08", "gzip")
    assert ended(bench).answer.outcome.usage is None


def test_closing_the_engine_closes_its_upstreams() -> None:
    bench = Bench()
    asyncio.run(bench.engine.aclose())
    assert bench.upstream.is_closed


@pytest.mark.parametrize("is_chat", [True, False])
@pytest.mark.parametrize("name", [b'"model"', b'"mod\\u0065l"'])
def test_a_model_that_stands_twice_in_a_body_is_sent_once(name: bytes, *, is_chat: bool) -> None:
    models = ModelList({"cheap": make_deployment(name="cheap"), "dear": make_deployment(name="dear")})
    bench = Bench(answers(BODY, headers=JSON), models=models)
    body = b'{"model":"dear","messages":[{"role":"user","content":"hi"}],' + name + b':"cheap"}'
    if is_chat:
        bench.chat(MemoryClient(body))
    else:
        bench.relay(MemoryClient(body, path="/responses"))
    assert bench.upstream.calls[0].deployment.name == "cheap"
    assert b"dear" not in bench.upstream.bodies[0]
    assert orjson.loads(bench.upstream.bodies[0])["messages"] == [{"role": "user", "content": "hi"}]


def test_a_member_in_capitals_is_refused_where_a_server_could_take_it_for_another_one() -> None:
    client = Bench().chat(MemoryClient(chat_body(Model="dear")))
    assert (client.status, code(client)) == (400, "invalid_request")
    bench = Bench(answers(BODY, headers=JSON))
    assert bench.chat(MemoryClient(chat_body(Messages=[], topP=1))).status == 200


@for_every(
    product(
        [
            b"[" + b",".join([b'{"role":"user","content":"a"}'] * 10_001) + b"]",
            b'[{"role":"user","content":"half a smile: \\ud83d"}],"\\ud83d":1',
            b'[{"role":"user","content":"\\"model\\": \\"mine\\" \\ud83d"}],"\\ud83d":1',
        ],
        ["mine", "mine.*", 'mi"ne'],
    )
)
def test_a_body_that_is_not_taken_apart_still_goes_to_the_right_model(messages: bytes, name: str) -> None:
    models = ModelList({name: make_deployment(name=name, model="theirs", profile=ANTHROPIC)})
    bench = Bench(answers(BODY, headers=JSON), models=models, planner=Planning(TierPlanner(bytes_over_four, [])))
    client = bench.chat(MemoryClient(b'{"messages":' + messages + b', "model" : ' + orjson.dumps(name) + b"}"))
    assert client.status == 200
    sent = bench.upstream.bodies[0]
    assert messages in sent
    assert json.loads(sent)["model"] == "theirs"
    assert client.answer_headers["x-stratiform-reason"] == Reason.UNREADABLE


def test_a_client_that_marks_for_an_unknown_cache_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    found = (make_deployment(name=name, model="theirs", profile=NONE) for name in ("one", "two"))
    models = ModelList({each.name: replace(each, entry="*") for each in found})
    bench = Bench(*[answers(BODY, headers=JSON)] * 4, models=models, planner=Planning(TierPlanner(bytes_over_four, [])))
    marked = [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral"}}]
    for name in ("one", "two", "one"):
        body = {"model": name, "messages": [{"role": "system", "content": marked}, {"role": "user", "content": "q"}]}
        client = bench.chat(MemoryClient(orjson.dumps(body)))
        assert client.answer_headers["x-stratiform-reason"] == Reason.MARKS_WITHOUT_PROFILE
        assert b"cache_control" in bench.upstream.bodies[-1]
    bench.chat(MemoryClient(orjson.dumps({"model": "one", "messages": [{"role": "user", "content": "q"}]})))
    told = [line for line in caplog.messages if "model_info.cache_profile" in line]
    assert len(told) == 1
    assert told[0].startswith("model *: ")


@pytest.mark.parametrize("way", ["header", "body"])
def test_a_client_that_asks_is_told_what_breaks_its_cache(caplog: pytest.LogCaptureFixture, way: str) -> None:
    caplog.set_level("INFO", "stratiform")
    models = ModelList({"m": make_deployment(name="m", model="m", profile=OPENAI, mode=Mode.OBSERVE)})
    told = orjson.dumps({**orjson.loads(BODY), "usage": {"prompt_tokens": 9000, "completion_tokens": 1}})
    planner = Planning(TierPlanner(bytes_over_four, []), price_of=lambda deployment: Price.relative(0.1, 1.0, 1.0))
    bench = Bench(*[answers(told, headers=JSON)] * 4, models=models, planner=planner)
    rules = "\n".join(f"Rule {n} of the archive is to be kept." for n in range(900))

    def ask(day: str, *talk: str, wish: bool | None = None) -> str | None:
        headers = {"x-stratiform-break": "1" if wish else "off"} if way == "header" and wish is not None else {}
        turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(talk)]
        body: dict[str, object] = {
            "model": "m", "messages": [{"role": "system", "content": f"Today is {day}.\n{rules}"}, *turns],
        }  # fmt: skip
        if way == "body" and wish is not None:
            body["stratiform"] = {"return_break": wish}
        client = bench.chat(MemoryClient(orjson.dumps(body), headers=[*JSON, *headers.items()]))
        return client.answer_headers.get("x-stratiform-break")

    assert ask("Monday", "q1", wish=True) == "none"
    assert ask("Monday", "q1", "a1", "q2") is None
    found = ask("Tuesday", "q1", "a1", "q2", "a2", "q3", wish=True)
    assert found is not None
    assert found.startswith("changed; culprit=system:system; line=1; before=0; ")
    assert found.endswith("; waste=1")
    line = caplog.messages[-1]
    assert " break=changed culprit=system:system line=1 lost=" in line
    assert "Tuesday" not in line
    assert ask("Tuesday", "q1", "a1", "q2", "a2", "q3", "a3", "q4", wish=False) is None
    assert not any(b"stratiform" in body for body in bench.upstream.bodies)


def test_nothing_that_a_client_chose_begins_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stratiform")
    odd = "m\nERROR stratiform exchange id=forged\r\x1b[31m\u2028"
    bench = Bench(answers(BODY, headers=JSON), answers(BODY, headers=JSON))
    bench.chat(MemoryClient(chat_body(model=odd)))
    bench.relay(MemoryClient(b"{}", path="/x%0aERROR\nforged", method="GET"))
    assert len(caplog.messages) == 2
    for line in caplog.messages:
        assert line.startswith("exchange id=sx-")
        assert line.isprintable()


@pytest.mark.parametrize(("odd", "error"), [(b"1", "structured_form_unavailable"), (b"NaN", "invalid_json")])
def test_structured_context_that_cannot_be_assembled_is_refused_and_not_dropped(odd: bytes, error: str) -> None:
    bench = Bench(answers(BODY, headers=JSON))
    body = chat_body(stratiform={"files": []}, x=1).replace(b'"x":1', b'"x":' + odd)
    client = bench.chat(MemoryClient(body))
    assert (client.status, code(client), bench.upstream.bodies) == (400, error, [])
    assert bench.chat(MemoryClient(chat_body(stratiform={}))).status == 200


def test_a_request_does_not_get_rid_of_the_operators_reminder() -> None:
    deployment = make_deployment(name="m", model="m", profile=ANTHROPIC)
    for mode, asked, count in (
        (Mode.TIER, "passthrough", 1),
        (Mode.OBSERVE, "passthrough", 1),
        (Mode.PASSTHROUGH, "tier", 0),
    ):
        models = ModelList({"m": replace(deployment, mode=mode, reminder="Be brief.")})
        bench = Bench(answers(BODY, headers=JSON), models=models, planner=Planning(TierPlanner(bytes_over_four, [])))
        bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", asked)]))
        assert bench.upstream.bodies[0].count(b"Be brief.") == count

"""The life of a request, with an upstream in memory: also where it ends early, and where another layout is refused."""

import asyncio
import json
from dataclasses import replace
from itertools import product

import orjson
import pytest

from proxy.engine.exchange import Call, Exchange, ExchangeOutcome, Settlement
from proxy.engine.ports import Answer, PlanRequest
from proxy.kit.errors import UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.kit.modes import Mode, Reason
from proxy.kit.resilience import RetryPolicy
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan, PlanResult
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, NONE, OPENAI
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.planner_port import Planning
from tests.doubles import ModelList, RewritingPlanner, make_deployment
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
    ended,
    event,
    left,
)


def test_usage_is_asked_for_and_told_to_a_client_that_asked_alone() -> None:
    asked = chat_body(stream=True, stream_options={"include_usage": True})
    for body, told in ((chat_body(stream=True), b""), (asked, USAGE)):
        bench = Bench(answers(ROLE, WORD, USAGE + DONE))
        assert bench.chat(MemoryClient(body)).answer == ROLE + WORD + told + DONE
        assert orjson.loads(bench.upstream.bodies[0]) == orjson.loads(asked)
        assert not told or bench.upstream.bodies == [asked]
        usage = ended(bench).answer.outcome.usage
        assert usage is not None
        assert usage.prompt == 7


def test_compressed_answers_pass_unread() -> None:
    bench = Bench(answers(b"\x1f\x8b\x08", headers=[*SSE, ("content-encoding", "gzip")]))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.answer, client.answer_headers["content-encoding"]) == (b"\x1f\x8b\x08", "gzip")
    assert ended(bench).answer.outcome.usage is None


def test_closing_the_engine_closes_its_upstreams() -> None:
    bench = Bench()
    asyncio.run(bench.engine.aclose())
    assert bench.upstream.is_closed


@for_every(product([b'"model"', b'"mod\\u0065l"'], [True, False]))
def test_a_model_that_stands_twice_in_a_body_is_sent_once(name: bytes, is_chat: bool) -> None:
    models = ModelList({"cheap": make_deployment(name="cheap"), "dear": make_deployment(name="dear")})
    bench = Bench(answers(BODY, headers=JSON), models=models)
    body = b'{"model":"dear","messages":[{"role":"user","content":"hi"}],' + name + b':"cheap"}'
    bench.chat(MemoryClient(body)) if is_chat else bench.relay(MemoryClient(body, path="/responses"))
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


@for_every(
    [
        (UpstreamUnavailable("gone"), 502, "upstream_unavailable", []),
        (answers(ROLE, UpstreamTimeout("silent")), 504, "upstream_timeout", ["accepted"]),
    ]
)
def test_a_break_before_anything_was_sent_is_an_error_answer(
    script: Script | UpstreamUnavailable, status: int, error: str, events: list[str]
) -> None:
    bench = Bench(script, planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, code(client), bench.planner.events) == (status, error, events)
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert ended(bench).answer.why in ("gone", "silent")


def test_a_break_in_mid_stream_is_an_event_and_no_done() -> None:
    bench = Bench(answers(WORD, WORD[:9], UpstreamUnavailable("cut")))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    rest = client.answer.removeprefix(WORD)
    assert orjson.loads(rest.removeprefix(b"data: "))["error"]["code"] == "upstream_unavailable"
    assert not client.has_ended, "the line breaks behind the event"
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert bench.planner.events == ["accepted", "completed"]


CUT = UpstreamUnavailable("cut")


def noting_losses(bench: Bench) -> list[int]:
    """The attempts whose calls are lost from now on."""
    lost: list[int] = []

    def lose(exchange: Exchange) -> Settlement:
        lost.append(exchange.attempts)
        return Settlement()

    bench.ledger.lose = lose  # type: ignore[method-assign]
    return lost


@for_every(
    [
        *(([answers(CUT, status=status, headers=JSON)], []) for status in (400, 404, 429, 503)),
        *(([answers(CUT, status=status, headers=JSON)], [1]) for status in (408, 504, 524)),
        ([answers(CUT, status=504, headers=JSON), answers(CUT, status=504, headers=JSON)], [1, 2]),
        ([answers(CUT, headers=JSON)], [1]),
        ([CUT], [1]),
        ([UpstreamUnavailable("refused").unreached()], []),
    ]
)
def test_a_call_that_breaks_off_is_lost_once_and_a_refusal_never(
    scripts: list[Script | UpstreamUnavailable], lost: list[int]
) -> None:
    bench = Bench(*scripts, answers(BODY, headers=JSON), retries=RetryPolicy(retries=1, first_wait_s=0.0))
    found = noting_losses(bench)
    bench.chat(MemoryClient(chat_body()))
    assert found == lost


async def test_a_call_behind_a_refusal_is_billed_where_its_client_leaves() -> None:
    bench = Bench(answers(BODY, status=400, headers=JSON), answers(None), planner=RewritingPlanner())
    is_sent, opened = asyncio.Event(), bench.upstream.open

    async def open_(call: Call) -> Answer:
        if len(bench.upstream.calls) == 1:
            is_sent.set()
            await asyncio.sleep(60)
        return await opened(call)

    bench.upstream.open = open_  # type: ignore[method-assign]
    await left(bench, MemoryClient(chat_body()), is_sent)
    assert (ended(bench).ending, ended(bench).is_billed) == (ExchangeOutcome.HUNG_UP, True)


async def test_a_client_that_leaves_before_the_first_byte_changes_nothing() -> None:
    script = answers(None)
    bench, client, opened = Bench(script), MemoryClient(chat_body(stream=True)), asyncio.Event()

    async def started(status: int, headers: object) -> None:
        client.is_started = True
        opened.set()

    client.start = started  # type: ignore[method-assign,assignment]
    await left(bench, client, opened)
    assert (ended(bench).ending, script.closed, bench.planner.events) == (ExchangeOutcome.HUNG_UP, 1, [])


class ClumsyPlanner(RewritingPlanner):
    def on_accepted(self, plan: Plan, now: float) -> None:
        raise ZeroDivisionError("accepted")

    def refused(self, plan: Plan) -> None:
        raise ZeroDivisionError("refused")

    def on_completed(self, plan: Plan, usage: object, now: float) -> PlanResult:
        raise ZeroDivisionError("completed")


def test_bookkeeping_that_fails_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(answers(b"no", status=400), answers(BODY, headers=JSON), planner=ClumsyPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    assert ended(bench).ending is ExchangeOutcome.COMPLETED
    errors = [record.args[0] for record in caplog.records if record.args and record.levelname == "ERROR"]
    assert errors == ["planner.refused", "planner.on_accepted", "planner.on_completed"]
    assert "ZeroDivisionError at test_engine.py" in caplog.text


@for_every([400, 404, 413, 422, None])
def test_a_refused_rewrite_is_sent_again_as_the_client_wrote_it(status: int | None) -> None:
    """Without a status, a library raises the refusal."""
    refused, accepted = answers(b"{}", status=status or 0, headers=JSON), answers(BODY, headers=JSON)
    raised = UpstreamRejected("no markers", status=400, error_type="invalid_request_error")
    bench = Bench(refused if status else raised, accepted, planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    assert [b"rewritten" in body for body in bench.upstream.bodies] == [True, False]
    assert bench.upstream.bodies[1] == chat_body()
    assert bench.planner.events == ["refused", "accepted", "barred", "completed"]
    assert ended(bench).planned.was_retried
    assert client.answer_headers["x-stratiform-reason"] == Reason.BARRED
    assert (refused.closed, accepted.closed) == (bool(status), 1)


class AskedPlanner(RewritingPlanner):
    """Notes that it was asked."""

    async def plan(self, request: PlanRequest) -> Plan:
        self.events.append("planned")
        return await super().plan(request)


def test_signed_thinking_is_planned_in_passthrough_too() -> None:
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    messages = [{"role": "assistant", "content": "a", "thinking_blocks": [thought]}, {"role": "user", "content": "b"}]
    for body, is_planned in ((chat_body(), False), (chat_body(messages=messages), True)):
        bench = Bench(answers(BODY, headers=JSON), planner=AskedPlanner())
        bench.chat(MemoryClient(body, headers=[*JSON, ("x-stratiform-mode", "passthrough")]))
        assert bench.planner.events[:1] == (["planned"] if is_planned else ["accepted"])


class KeyedPlanner(RewritingPlanner):
    """Names a header with its plans."""

    async def plan(self, request: PlanRequest) -> Plan:
        return replace(await super().plan(request), headers=(("x-grok-conv-id", "st-1"),))


def test_a_plans_headers_go_with_its_body_alone_and_never_in_place_of_the_clients() -> None:
    refused, accepted = answers(b"{}", status=400, headers=JSON), answers(BODY, headers=JSON)
    bench = Bench(refused, accepted, planner=KeyedPlanner())
    bench.chat(MemoryClient(chat_body()))
    assert [dict(call.headers).get("x-grok-conv-id") for call in bench.upstream.calls] == ["st-1", None]
    bench = Bench(answers(BODY, headers=JSON), planner=KeyedPlanner())
    bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-grok-conv-id", "mine")]))
    assert [v for n, v in bench.upstream.calls[0].headers if n == "x-grok-conv-id"] == ["mine"]


def test_an_answer_that_began_before_it_was_refused_is_lost_once() -> None:
    refusal = UpstreamRejected("no markers", status=400, error_type="invalid_request_error")
    bench = Bench(Script(200, SSE, ROLE, refusal), answers(ROLE, WORD, USAGE, DONE), planner=RewritingPlanner())
    lost = noting_losses(bench)
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == ROLE + WORD + DONE
    assert (lost, ended(bench).attempts) == ([1], 2)


@for_every([401, 403, 429, 500, 503])
def test_upstream_errors_that_are_not_the_layouts_fault_pass(status: int) -> None:
    body = b'{"error": {"message": "theirs"}}'
    bench = Bench(answers(body, status=status, headers=[*JSON, ("retry-after", "7")]), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer, client.answer_headers["retry-after"]) == (status, body, "7")
    assert ended(bench).ending is ExchangeOutcome.REJECTED
    assert bench.planner.events == []


def test_a_refusal_of_the_clients_own_request_passes_and_is_not_retried() -> None:
    no, still_no = answers(b"no", status=400), answers(b"still no", status=400)
    for bench, said, events in (
        (Bench(no, still_no, planner=RewritingPlanner()), b"still no", ["refused"]),
        (Bench(no), b"no", []),
    ):
        client = bench.chat(MemoryClient(chat_body()))
        assert (client.status, client.answer, bench.planner.events) == (400, said, events)
        assert ended(bench).ending is ExchangeOutcome.REJECTED
        assert len(bench.upstream.calls) == 1 + len(events)


@pytest.mark.parametrize(
    "empty",
    [
        answers(),
        answers(DONE),
        answers(ROLE, DONE),
        answers(ROLE, USAGE, DONE),
        answers(event({"error": {"code": 400, "message": "no"}})),
    ],
)
def test_an_empty_stream_to_a_rewrite_is_retried(empty: object) -> None:
    bench = Bench(empty, answers(ROLE, WORD, DONE), planner=RewritingPlanner())  # type: ignore[arg-type]
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == ROLE + WORD + DONE
    assert bench.planner.events[-4:] == ["refused", "accepted", "barred", "completed"]
    assert ended(bench).planned.was_retried


def test_an_upstream_that_says_nothing_to_the_original_bars_no_plan() -> None:
    for bench in (
        Bench(answers(ROLE, DONE), answers(ROLE, DONE), planner=RewritingPlanner()),
        Bench(answers(ROLE, DONE)),
    ):
        assert bench.chat(MemoryClient(chat_body(stream=True))).answer == ROLE + DONE
        assert "barred" not in bench.planner.events


async def test_a_rewritten_stream_is_held_back_only_until_it_has_content() -> None:
    bench = Bench(answers(ROLE, WORD, WORD, None), planner=RewritingPlanner())
    client, two_words = MemoryClient(chat_body(stream=True)), asyncio.Event()
    client.on_send = lambda chunk: two_words.set() if client.answer == ROLE + WORD + WORD else None
    await left(bench, client, two_words)
    assert client.chunks == [ROLE + WORD, WORD]


def test_a_rewritten_stream_of_many_comments_is_not_held_back() -> None:
    comment = b": still here\n\n" * 3000
    bench = Bench(answers(comment, comment, ROLE, DONE), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == comment + comment + ROLE + DONE
    assert len(bench.upstream.calls) == 1

"""Exchanges that end early: an upstream that breaks off, a client that leaves, a surprise of the planner."""

import asyncio

import orjson
import pytest

from proxy.core.resilience import RetryPolicy
from proxy.engine.exchange import Exchange, ExchangeOutcome, Settlement
from proxy.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.ports import Answer, Call, Plan, PlanResult
from tests.doubles import RewritingPlanner
from tests.unit.engine.parts import (
    BODY,
    JSON,
    ROLE,
    WORD,
    Bench,
    BrokenPlanner,
    MemoryClient,
    Script,
    answers,
    chat_body,
    code,
    ended,
    event,
)


def test_an_upstream_that_cannot_be_reached_is_a_502() -> None:
    bench = Bench(UpstreamUnavailable("gone"))
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, code(client)) == (502, "upstream_unavailable")
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert bench.planner.events == []


def test_a_break_before_anything_was_sent_is_an_error_answer() -> None:
    bench = Bench(answers(ROLE, UpstreamTimeout("silent")), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, code(client)) == (504, "upstream_timeout")
    assert ended(bench).ending is ExchangeOutcome.BROKEN


def test_a_break_in_mid_stream_is_an_event_and_no_done() -> None:
    bench = Bench(answers(WORD, WORD[:9], UpstreamUnavailable("cut")))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    rest = client.answer.removeprefix(WORD)
    assert orjson.loads(rest.removeprefix(b"data: "))["error"]["code"] == "upstream_unavailable"
    assert not client.has_ended, "the line breaks behind the event"
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert bench.planner.events == ["accepted", "completed"]


CUT = UpstreamUnavailable("cut")


@pytest.mark.parametrize(
    ("scripts", "lost"),
    [
        ([answers(CUT, status=400, headers=JSON)], []),
        ([answers(CUT, status=404, headers=JSON)], []),
        ([answers(CUT, status=429, headers=JSON)], []),
        ([answers(CUT, status=503, headers=JSON)], []),
        ([answers(CUT, status=504, headers=JSON)], [1]),
        ([answers(CUT, status=504, headers=JSON), answers(CUT, status=504, headers=JSON)], [1, 2]),
        ([answers(CUT, headers=JSON)], [1]),
        ([CUT], [1]),
        ([UpstreamUnavailable("refused").unreached()], []),
    ],
)
def test_a_call_that_breaks_off_is_lost_once_and_a_refusal_never(
    scripts: list[Script | UpstreamUnavailable], lost: list[int]
) -> None:
    bench = Bench(*scripts, answers(BODY, headers=JSON), retries=RetryPolicy(retries=1, first_wait_s=0.0))
    found: list[int] = []

    def lose(exchange: Exchange) -> Settlement:
        found.append(exchange.attempts)
        return Settlement()

    bench.ledger.lose = lose  # type: ignore[method-assign]
    bench.chat(MemoryClient(chat_body()))
    assert found == lost


def test_a_call_behind_a_refusal_is_billed_where_its_client_leaves() -> None:
    bench = Bench(answers(BODY, status=400, headers=JSON), answers(None), planner=RewritingPlanner())
    client, is_sent = MemoryClient(chat_body()), asyncio.Event()
    opened = bench.upstream.open

    async def open_(call: Call) -> Answer:
        if len(bench.upstream.calls) == 1:
            is_sent.set()
            await asyncio.sleep(60)
        return await opened(call)

    bench.upstream.open = open_  # type: ignore[method-assign]
    cancelled(bench, client, is_sent)
    assert (ended(bench).ending, ended(bench).is_billed) == (ExchangeOutcome.HUNG_UP, True)


def test_an_error_event_of_the_upstream_passes_and_is_counted() -> None:
    broke = event({"error": {"message": "overloaded"}})
    bench = Bench(answers(WORD, broke))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == WORD + broke
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.error_code) == (ExchangeOutcome.BROKEN, "upstream_stream_error")


def cancelled(bench: Bench, client: MemoryClient, when: asyncio.Event) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(bench.engine.chat(client))
        await asyncio.wait_for(when.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bench.engine.aclose()

    asyncio.run(main())


def test_a_client_that_leaves_in_mid_stream_closes_the_upstream_and_is_settled() -> None:
    script = answers(ROLE, WORD, None)
    bench = Bench(script)
    client, seen = MemoryClient(chat_body(stream=True)), asyncio.Event()
    client.on_send = lambda chunk: seen.set() if chunk == WORD else None
    cancelled(bench, client, seen)
    assert script.closed == 1
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.status, exchange.answer.outcome.events) == (
        ExchangeOutcome.HUNG_UP,
        200,
        2,
    )
    assert bench.planner.events == ["accepted", "completed"]


def test_a_client_that_leaves_before_the_first_byte_changes_nothing() -> None:
    script = answers(None)
    bench, client, opened = Bench(script), MemoryClient(chat_body(stream=True)), asyncio.Event()

    async def started(status: int, headers: object) -> None:
        client.is_started = True
        opened.set()

    client.start = started  # type: ignore[method-assign,assignment]
    cancelled(bench, client, opened)
    assert script.closed == 1
    assert ended(bench).ending is ExchangeOutcome.HUNG_UP
    assert bench.planner.events == []


class ClumsyPlanner(RewritingPlanner):
    def on_accepted(self, plan: Plan, now: float) -> None:
        raise ZeroDivisionError("accepted")

    def refused(self, plan: Plan) -> None:
        raise ZeroDivisionError("refused")

    def on_completed(self, plan: Plan, usage: object, now: float) -> PlanResult:
        raise ZeroDivisionError("completed")


def test_a_surprise_of_the_planner_is_raised_and_settled() -> None:
    bench = Bench(planner=BrokenPlanner())
    with pytest.raises(ZeroDivisionError):
        bench.chat(MemoryClient(chat_body()))
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.status) == (ExchangeOutcome.FAILED, 500)


def test_bookkeeping_that_fails_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(answers(b"no", status=400), answers(BODY, headers=JSON), planner=ClumsyPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    assert ended(bench).ending is ExchangeOutcome.COMPLETED
    errors = [record.args[0] for record in caplog.records if record.args and record.levelname == "ERROR"]
    assert errors == ["planner.refused", "planner.on_accepted", "planner.on_completed"]
    assert "ZeroDivisionError at test_engine_breaks.py" in caplog.text

"""Requests that were sent in another layout: what is refused or stays empty is sent again as the client wrote it."""

import asyncio
from dataclasses import replace

import pytest

from proxy.core.reasons import Reason
from proxy.engine.exchange import Exchange, ExchangeOutcome, Settlement
from proxy.errors import UpstreamRejected
from proxy.ports import Plan, PlanRequest
from tests.doubles import RewritingPlanner
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
    ended,
    event,
)


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_refused_rewrite_is_sent_again_as_the_client_wrote_it(status: int) -> None:
    refused, accepted = answers(b"{}", status=status, headers=JSON), answers(BODY, headers=JSON)
    bench = Bench(refused, accepted, planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    assert [b"rewritten" in body for body in bench.upstream.bodies] == [True, False]
    assert bench.upstream.bodies[1] == chat_body()
    assert bench.planner.events == ["refused", "accepted", "barred", "completed"]
    exchange = ended(bench)
    assert exchange.planned.was_retried
    assert client.answer_headers["x-stratiform-reason"] == Reason.BARRED
    assert (refused.closed, accepted.closed) == (1, 1)


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


def test_a_refusal_that_a_library_raises_is_retried_too() -> None:
    error = UpstreamRejected("no markers", status=400, error_type="invalid_request_error")
    bench = Bench(error, answers(BODY, headers=JSON), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body())).status == 200
    assert len(bench.upstream.calls) == 2


def test_an_answer_that_began_before_it_was_refused_is_lost_once() -> None:
    refusal = UpstreamRejected("no markers", status=400, error_type="invalid_request_error")
    bench = Bench(Script(200, SSE, ROLE, refusal), answers(ROLE, WORD, USAGE, DONE), planner=RewritingPlanner())
    lost: list[int] = []

    def lose(exchange: Exchange) -> Settlement:
        lost.append(exchange.attempts)
        return Settlement()

    bench.ledger.lose = lose  # type: ignore[method-assign]
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == ROLE + WORD + DONE
    assert lost == [1]
    assert ended(bench).attempts == 2


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_upstream_errors_that_are_not_the_layouts_fault_pass(status: int) -> None:
    body = b'{"error": {"message": "theirs"}}'
    bench = Bench(answers(body, status=status, headers=[*JSON, ("retry-after", "7")]), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer, client.answer_headers["retry-after"]) == (status, body, "7")
    assert ended(bench).ending is ExchangeOutcome.REJECTED
    assert bench.planner.events == []


def test_a_refusal_of_the_clients_own_request_passes() -> None:
    bench = Bench(answers(b"no", status=400), answers(b"still no", status=400), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (400, b"still no")
    assert bench.planner.events == ["refused"]
    assert ended(bench).ending is ExchangeOutcome.REJECTED


def test_a_refusal_of_an_unchanged_request_is_not_retried() -> None:
    bench = Bench(answers(b"no", status=400))
    assert bench.chat(MemoryClient(chat_body())).status == 400
    assert len(bench.upstream.calls) == 1


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


def test_an_upstream_that_says_nothing_to_rewrite_and_original_bars_no_plan() -> None:
    bench = Bench(answers(ROLE, DONE), answers(ROLE, DONE), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == ROLE + DONE
    assert "barred" not in bench.planner.events


def test_an_empty_stream_to_the_clients_own_request_passes() -> None:
    bench = Bench(answers(ROLE, DONE))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == ROLE + DONE


async def test_a_rewritten_stream_is_held_back_only_until_it_has_content() -> None:
    bench = Bench(answers(ROLE, WORD, WORD, None), planner=RewritingPlanner())
    client = MemoryClient(chat_body(stream=True))

    two_words = asyncio.Event()
    client.on_send = lambda chunk: two_words.set() if client.answer == ROLE + WORD + WORD else None
    task = asyncio.ensure_future(bench.engine.chat(client))
    await asyncio.wait_for(two_words.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert client.chunks == [ROLE + WORD, WORD]


def test_a_rewritten_stream_of_many_comments_is_not_held_back() -> None:
    comment = b": still here\n\n" * 3000
    bench = Bench(answers(comment, comment, ROLE, DONE), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == comment + comment + ROLE + DONE
    assert len(bench.upstream.calls) == 1

"""The ledger entry is written before the client has all of its answer, and once, however the exchange ends."""

import asyncio
import json
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine import Breakers
from proxy.engine.attempts import ONE_TRY
from proxy.engine.custody import Custody
from proxy.engine.exchange import Exchange, ExchangeOutcome, Principal, Settlement
from proxy.kit.errors import ProxyError, RateLimited, UpstreamTimeout, UpstreamUnavailable
from proxy.kit.resilience import BreakerPolicy, RetryPolicy
from proxy.kit.value import replace
from proxy.models import Deployment, Headers
from proxy.storage.sqlite import MemoryStore
from tests.doubles import Ledger, ManualClock, ModelList, RewritingPlanner, make_deployment
from tests.examples import examples, for_every
from tests.exchanges import settled
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
    Telling,
    answers,
    awaited_under,
    chat_body,
    ended,
    left,
)  # fmt: skip

LENGTH = ("content-length", str(len(BODY)))


class Watched(Bench):
    """A bench that keeps what the client had, and what was known, when the exchange was settled."""

    def __init__(self, *scripts: Any, **more: Any) -> None:
        super().__init__(*scripts, **more)
        self.client = MemoryClient()
        self.had: list[tuple[bytes, bool]] = []
        self.booked: list[tuple[ExchangeOutcome | None, int | None]] = []
        settle = self.door.settle

        async def watching(exchange: Exchange) -> None:
            self.had.append((self.client.answer, self.client.has_ended))
            usage = settled(exchange).usage
            self.booked.append((exchange.ending, usage.prompt if usage is not None else None))
            await settle(exchange)

        self.door.settle = watching  # type: ignore[method-assign]

    def run(self, client: MemoryClient, *, relayed: bool = False) -> MemoryClient:
        self.client = client
        return self.relay(client) if relayed else self.chat(client)


CUT = UpstreamUnavailable("gone")


@for_every(
    [
        (answers(ROLE, WORD, USAGE + DONE), ROLE + WORD, ROLE + WORD + DONE, ExchangeOutcome.COMPLETED, 7),
        (answers(ROLE, WORD, CUT), ROLE + WORD, ROLE + WORD + b'data: {"error":', ExchangeOutcome.BROKEN, None),
        (CUT, b"", b'{"error":', ExchangeOutcome.BROKEN, None),
    ]
)
def test_a_stream_is_booked_before_the_client_hears_how_it_ends(
    script: Script | ProxyError, had: bytes, answer: bytes, ending: ExchangeOutcome, prompt: int | None
) -> None:
    bench = Watched(script)
    client = bench.run(MemoryClient(chat_body(stream=True)))
    assert (bench.had, bench.booked) == ([(had, False)], [(ending, prompt)])
    assert client.answer.startswith(answer)


async def test_done_goes_out_though_the_upstream_leaves_the_line_open() -> None:
    bench = Watched(answers(ROLE, WORD, USAGE, DONE, None))
    client, complete = MemoryClient(chat_body(stream=True)), asyncio.Event()
    client.on_send = lambda chunk: complete.set() if chunk == DONE else None
    await left(bench, client, complete)
    assert bench.booked == [(ExchangeOutcome.COMPLETED, 7)]


@for_every(product([1, 3, len(BODY)], [False, True]))
def test_a_body_of_known_length_is_booked_before_it_is_complete(cuts: int, relayed: bool) -> None:
    step = -(-len(BODY) // cuts)
    chunks = [BODY[i : i + step] for i in range(0, len(BODY), step)]
    bench = Watched(answers(*chunks, headers=[*JSON, LENGTH]))
    client = bench.run(MemoryClient(chat_body()), relayed=relayed)
    assert bench.had == [(b"".join(chunks[:-1]), False)]
    assert bench.booked == [(ExchangeOutcome.COMPLETED, 4)]
    assert client.answer == BODY


@for_every(
    [
        (answers(BODY, headers=JSON), BODY, BODY, 4, "/chat/completions"),
        (answers(WORD, USAGE, DONE, headers=SSE), WORD + USAGE, WORD + USAGE + DONE, 7, "/responses"),
    ]
)
def test_an_answer_without_a_length_is_booked_before_its_end_and_events_are_not_held_up_but_for_the_last(
    script: Script, had: bytes, answer: bytes, prompt: int, path: str
) -> None:
    bench = Watched(script)
    client = bench.run(MemoryClient(chat_body(stream=True), path=path), relayed=path == "/responses")
    assert (bench.had, bench.booked) == ([(had, False)], [(ExchangeOutcome.COMPLETED, prompt)])
    assert (client.answer, client.has_ended) == (answer, True)


def test_a_body_longer_than_it_said_passes_in_order() -> None:
    bench = Watched(answers(BODY, b"more", b"and more", headers=[*JSON, LENGTH]))
    assert bench.run(MemoryClient(chat_body())).answer == BODY + b"moreand more"


KINDS = ["application/json", "application/x-ndjson", "text/event-stream", "text/plain", ""]


@for_every(product(KINDS, ["", "gzip"], [0, 1, 40 * len(WORD)], [True, False]))
def test_of_an_answer_without_usage_its_size_is_booked(kind: str, coding: str, length: int, is_stream: bool) -> None:
    """Also if the client gets it as a whole, after it was booked. Each of its events has at least one token."""
    headers = [("content-type", kind), ("content-encoding", coding), ("content-length", str(length))]
    headers = [(name, value) for name, value in headers if value not in ("", "0")]
    for retries in (ONE_TRY, RetryPolicy(retries=1)):
        bench = Watched(answers(WORD * 20, WORD * 20, headers=headers), retries=retries)
        client = bench.run(MemoryClient(chat_body(stream=is_stream)))
        outcome = ended(bench).answer.outcome
        assert client.answer == 40 * WORD
        assert max(outcome.tokens, outcome.events) >= 40


KNOWN = {True: [WORD, USAGE, DONE], False: [BODY]}
ASKING = ["/chat/completions", "/completions", "/responses", "/messages"]


@for_every(product(["", "text/plain", "text/html; charset=utf-8", "application/octet-stream"], ASKING, [True, False]))
def test_the_answer_of_a_model_is_read_as_what_was_asked_for(kind: str, path: str, is_stream: bool) -> None:
    """Whatever its content type says, unless that names the other form."""
    bench = Watched(answers(*KNOWN[is_stream], headers=[("content-type", kind)] if kind else []))
    body = chat_body(stream=is_stream, stream_options={"include_usage": True})
    client = bench.run(MemoryClient(body, path=path), relayed=path != "/chat/completions")
    assert client.answer == b"".join(KNOWN[is_stream])
    assert bench.booked == [(ExchangeOutcome.COMPLETED, 7 if is_stream else 4)]


@for_every(product(["", "identity", "Identity", "none", "utf-8", "identity, none"], [True, False]))
def test_an_answer_is_read_if_no_coding_changes_its_bytes(coding: str, is_stream: bool) -> None:
    headers = [*(SSE if is_stream else JSON), ("content-encoding", coding)]
    bench = Watched(answers(*KNOWN[is_stream], headers=headers))
    client = bench.run(MemoryClient(chat_body(stream=is_stream, stream_options={"include_usage": True})))
    assert (client.answer, client.answer_headers["content-encoding"]) == (b"".join(KNOWN[is_stream]), coding)
    assert bench.booked == [(ExchangeOutcome.COMPLETED, 7 if is_stream else 4)]


def test_what_the_upstream_has_told_of_the_usage_is_booked_of_a_stream_that_breaks_and_only_of_that() -> None:
    bench = Watched(Telling(200, SSE, ROLE, WORD, UpstreamUnavailable("gone")))
    bench.run(MemoryClient(chat_body(stream=True)))
    assert bench.booked == [(ExchangeOutcome.BROKEN, 4321)]
    bench = Watched(Telling(200, SSE, ROLE, WORD, USAGE + DONE))
    bench.run(MemoryClient(chat_body(stream=True)))
    assert [prompt for _, prompt in bench.booked] == [7]


async def test_a_client_that_leaves_while_it_is_booked_does_not_stop_that() -> None:
    bench = Bench(answers(WORD, USAGE, DONE))
    asked, go = asyncio.Event(), asyncio.Event()
    settle = bench.door.settle

    async def slowly(exchange: Exchange) -> None:
        asked.set()
        await go.wait()
        await settle(exchange)

    bench.door.settle = slowly  # type: ignore[method-assign]
    task = asyncio.ensure_future(bench.engine.chat(MemoryClient(chat_body(stream=True))))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.door.settled == []
    go.set()
    await bench.engine.aclose()
    assert [name for name, _ in bench.door.settled] == [exchange.arrival.id for exchange in bench.ledger.ended]


def test_a_call_that_an_operators_limit_keeps_back_says_nothing_of_a_deployment_that_was_shut() -> None:
    states, now = list[str](), [0.0]
    policy = BreakerPolicy(allowed_fails=0, cooldown_s=5.0)
    breakers = Breakers(policy, on_change=lambda _, state: states.append(state), now=lambda: now[0])
    bench = Bench(UpstreamUnavailable("gone"), answers(BODY, headers=JSON), breakers=breakers)
    bench.chat(MemoryClient(chat_body()))
    now[0] = 6.0

    async def full(exchange: Exchange, deployment: Deployment) -> None:
        raise RateLimited("enough", kind="requests", retry_after_s=9)

    take_turn, bench.door.take_turn = bench.door.take_turn, full  # type: ignore[method-assign]
    assert bench.chat(MemoryClient(chat_body())).status == 429
    assert (states, len(bench.upstream.calls)) == (["open", "half-open"], 1)
    bench.door.take_turn = take_turn  # type: ignore[method-assign]
    assert bench.chat(MemoryClient(chat_body())).status == 200
    assert states[-1] == "closed"


@for_every(product([(True, True), (1, True), (False, False), (None, False)], [True, False]))
def test_under_a_hard_limit_a_stream_in_the_background_is_heard_to_its_end(
    said: tuple[object, bool], is_hard: bool
) -> None:
    background, runs_on = said
    body = {"model": "m", "input": "hi", "stream": True, "background": background}
    bench, client = Bench(answers(DONE)), MemoryClient(orjson.dumps(body), path="/responses")
    awaited = awaited_under(bench, client, is_hard=is_hard)
    bench.relay(client)
    assert awaited == [is_hard and runs_on]


class Counting(Ledger):
    """A meter that counts the calls which are billed."""

    def __init__(self) -> None:
        super().__init__()
        self.billed = 0

    def lose(self, exchange: Exchange) -> Settlement:
        self.billed += 1
        return super().lose(exchange)

    def price(self, exchange: Exchange) -> Settlement:
        self.billed += exchange.is_billed
        return super().price(exchange)


def billed_ways() -> list[Script | ProxyError]:
    """Each way in which a call can end that the provider bills."""
    gateways = [Script(status, JSON, b'{"error": {"message": "late"}}') for status in (408, 504, 524)]
    cut = Script(200, JSON, BODY[:9], UpstreamUnavailable("gone"))
    return [*gateways, cut, answers(DONE), UpstreamTimeout("late"), UpstreamUnavailable("gone")]


@given(st.lists(st.sampled_from(range(7)), min_size=1, max_size=3), st.integers(0, 60))
@settings(max_examples=examples(400, least=100), deadline=None)
def test_each_call_is_billed_once_whenever_the_client_leaves(ways: list[int], turns: int) -> None:
    scripts = [billed_ways()[way] for way in ways]
    bench = Bench(*scripts, answers(BODY, headers=JSON), planner=RewritingPlanner(), retries=RetryPolicy(3, 0.0))
    meter = Counting()
    bench.engine._conclusion._ports = replace(bench.engine._conclusion._ports, meter=meter)

    async def slowly(*_: object) -> None:
        await asyncio.sleep(0)

    bench.door.weigh = bench.door.take_turn = slowly  # type: ignore[method-assign]

    async def leave() -> None:
        task = asyncio.ensure_future(bench.engine.chat(MemoryClient(chat_body())))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await bench.engine.aclose()

    asyncio.run(leave())
    assert meter.billed == len(bench.upstream.calls), (ways, turns)


CHOSEN = ["bob", "\ud800", "sk-" + "a" * 40]
"""Names that a client may choose."""


@given(st.sampled_from(CHOSEN), st.none() | st.integers(0, 40))
@settings(max_examples=examples(200, least=60), deadline=None)
def test_a_background_response_is_deferred_whatever_it_names_and_nothing_is_left_unawaited(
    chosen: str, turns: int | None
) -> None:
    said = orjson.dumps({"id": "resp_1", "object": "response", "status": "in_progress", "background": True})
    deferred, store, models = list[str](), MemoryStore(), ModelList({"*": make_deployment(base_url="http://upstream")})
    custody = Custody(store, models, ManualClock(1000.0), lambda what: None)
    bench = Bench(answers(said, headers=JSON), models=models, custody=custody)

    def admit(headers: Headers, now: float) -> Principal:
        return Principal("scope", "blue")

    async def defer(exchange: Exchange) -> None:
        deferred.append(exchange.arrival.id)

    bench.door.admit, bench.door.defer = admit, defer  # type: ignore[method-assign]

    async def run() -> str:
        body = json.dumps({"model": chosen, "user": chosen, "input": "hi", "background": True}).encode()
        task = asyncio.ensure_future(bench.engine.relay(MemoryClient(body, path="/responses")))
        for _ in range(turns or 0):
            await asyncio.sleep(0)
        if turns is not None:  # the process ends: everything is cancelled
            for one in asyncio.all_tasks() - {asyncio.current_task()}:
                one.cancel()
        await asyncio.wait([task])
        return await store.take_bill("blue", "resp_1")

    bill = asyncio.run(run())
    if turns is None:
        assert (len(deferred), bool(bill)) == (1, True)
        assert CHOSEN[2] not in bill

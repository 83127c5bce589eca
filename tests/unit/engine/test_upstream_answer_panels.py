"""Calls of panels by the model: answered by the proxy, taken out of what the client gets, and billed once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.context import Conversation, StructuredContext
from proxy.context.blocks import Assembly, AssemblyKind
from proxy.context.session import AssembledChat, Dialogue
from proxy.engine import Breakers
from proxy.engine.exchange import Exchange, ExchangeOutcome, Principal, Settlement
from proxy.kit.errors import RateLimited, UpstreamTimeout, UpstreamUnavailable
from proxy.kit.resilience import BreakerPolicy, RetryPolicy
from proxy.models import Deployment
from proxy.planner.plan import Plan, PlanResult
from proxy.protocol.request import ParsedBody
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.usage import Usage
from tests.doubles import PassthroughPlanner
from tests.examples import for_every
from tests.unit.engine.parts import (
    DONE,
    JSON,
    SSE,
    Bench,
    MemoryClient,
    answers,
    awaited_under,
    chat_body,
    code,
    ended,
    event,
    left,
)

NAMED = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m-1"}
OURS = {"id": "call_1", "type": "function", "function": {"name": "dynamic_panel", "arguments": '{"id":"P1"}'}}
THEIRS = {"id": "call_2", "type": "function", "function": {"name": "grep", "arguments": '{"q":1}'}}


class PanelPlanner(PassthroughPlanner):
    """Takes every request as one with a panel, and remembers what it learns from."""

    def __init__(self) -> None:
        super().__init__()
        self.learnt: list[Usage | None] = []

    async def assemble(
        self, sent: ParsedBody, principal: Principal, now: float, own: ParsedBody | None = None
    ) -> AssembledChat:
        members = orjson.loads(sent.body)
        members.pop("stratiform")
        return AssembledChat(
            sent=sent,
            body=orjson.dumps(members),
            kind=AssemblyKind.FLAT,
            front=Assembly(()),
            assembly=Assembly(()),
            context=StructuredContext(),
            dialogue=Dialogue(Conversation()),
            scope="everybody",
            session="s",
            answers=lambda panel: f"text of {panel}" if panel == "P1" else f"There is no panel {panel!r}.",
        )

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        self.learnt.append(usage)
        return super().on_completed(plan, usage, now)


def choice(delta: dict[str, Any], finish: str | None = None, index: int = 0, names: dict[str, Any] = NAMED) -> bytes:
    return event({**names, "choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


def said(text: str, names: dict[str, Any] = NAMED) -> bytes:
    return choice({"content": text}, names=names)


def called(*calls: dict[str, Any], names: dict[str, Any] = NAMED) -> bytes:
    return choice({"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}, names=names)


def used(prompt: int, output: int, read: int = 0, names: dict[str, Any] = NAMED) -> dict[str, Any]:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read},
    }
    return {**names, "choices": [], "usage": usage}


def ends(finish: str, prompt: int, output: int, read: int = 0, names: dict[str, Any] = NAMED) -> list[bytes]:
    return [choice({}, finish, names=names), event(used(prompt, output, read, names)), DONE]


def body(text: str | None, *calls: dict[str, Any], finish: str = "", prompt: int = 10, output: int = 2) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if calls:
        message["tool_calls"] = list(calls)
    return orjson.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "choices": [
                {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}
            ],
            "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output},
            "odd": 1.50,
        }
    )


def streamed(*scripts: Any, planner: PanelPlanner | None = None, **more: Any) -> tuple[Bench, MemoryClient]:
    """One streamed request with a panel."""
    bench = Bench(*scripts, planner=planner or PanelPlanner())
    fields = {"stream": True, "stream_options": {"include_usage": True}, **more}
    return bench, bench.chat(MemoryClient(chat_body(stratiform={"panels": []}, **fields)))


def whole(*scripts: Any, planner: PanelPlanner | None = None, **more: Any) -> tuple[Bench, MemoryClient]:
    """One request for a JSON body, with a panel."""
    bench = Bench(*scripts, planner=planner or PanelPlanner())
    return bench, bench.chat(MemoryClient(chat_body(stratiform={"panels": []}, **more)))


def events_of(client: MemoryClient) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in client.answer.split(b"\n\n") if line]
    assert lines.pop() == b"[DONE]"
    return [orjson.loads(line) for line in lines]


def text_of(events: Sequence[dict[str, Any]]) -> str:
    return "".join(c["delta"].get("content") or "" for one in events for c in one["choices"])


def finishes(events: Sequence[dict[str, Any]]) -> list[str]:
    return [c["finish_reason"] for one in events for c in one["choices"] if c["finish_reason"]]


def usages(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["usage"] for one in events if one.get("usage")]


def booked(exchange: Exchange) -> Usage:
    """The usage that the exchange is settled with."""
    assert exchange.settlement is not None
    assert exchange.settlement.usage is not None
    return exchange.settlement.usage


def counted(exchange: Exchange) -> dict[str, int]:
    return dict(exchange.answer.panel_calls)


FIRST = (choice({"role": "assistant", "content": ""}), said("Let me look. "), called(OURS))


def second(prompt: int = 130, output: int = 7, *calls: dict[str, Any]) -> Any:
    """The body that goes on with the first answer."""
    return answers(body("It says so.", *calls, prompt=prompt, output=output), headers=JSON)


def test_a_streamed_call_of_ours_alone_is_answered_and_the_answer_goes_on() -> None:
    bench, client = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), second())
    events = events_of(client)
    assert text_of(events) == "Let me look. It says so."
    assert finishes(events) == ["stop"]
    assert b"dynamic_panel" not in client.answer
    assert {(one["id"], one["created"], one["model"]) for one in events} == {("c-1", 7, "m-1")}
    assert sum("role" in c["delta"] for one in events for c in one["choices"]) == 1
    (usage,) = usages(events)
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (230, 12, 242)
    exchange = ended(bench)
    assert booked(exchange) == Usage(230, 12)
    assert exchange.ending is ExchangeOutcome.COMPLETED
    assert counted(exchange) == {"answered": 1}
    assert len(bench.door.reserved) == 1


def test_the_further_call_is_the_first_body_with_the_call_and_its_result_behind_the_messages() -> None:
    bench, _ = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), second(130, 7))
    first, further = (orjson.loads(sent) for sent in bench.upstream.bodies)
    assert further["messages"][:-2] == first["messages"]
    assert further["messages"][-2] == {"role": "assistant", "content": "Let me look. ", "tool_calls": [OURS]}
    assert further["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "text of P1"}
    whole = {name: value for name, value in first.items() if not name.startswith("stream")}
    assert {**further, "messages": 0} == {**whole, "messages": 0}
    assert [call.stream for call in bench.upstream.calls] == [True, False]
    assert bench.upstream.calls[0].deployment is bench.upstream.calls[1].deployment


def test_the_planner_learns_from_the_first_call_alone() -> None:
    planner = PanelPlanner()
    streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), second(130, 7), planner=planner)
    assert planner.learnt == [Usage(100, 5)]
    assert planner.events == ["accepted", "completed"]


def test_beside_the_clients_own_calls_ours_is_taken_out_and_nothing_follows() -> None:
    bench, client = streamed(answers(FIRST[0], called(OURS, THEIRS), *ends("tool_calls", 100, 5)))
    events = events_of(client)
    calls = [call for one in events for c in one["choices"] for call in c["delta"].get("tool_calls", ())]
    assert calls == [{"index": 0, **THEIRS}]
    assert finishes(events) == ["tool_calls"]
    assert counted(ended(bench)) == {"taken_out": 1}


def test_two_calls_follow_at_the_most() -> None:
    again = [answers(body("Let me look. ", OURS, prompt=100), headers=JSON) for _ in range(2)]
    bench, client = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), *again)
    events = events_of(client)
    assert text_of(events) == "Let me look. " * 3
    assert finishes(events) == ["stop"]
    assert usages(events)[-1]["prompt_tokens"] == 300
    assert counted(ended(bench)) == {"answered": 2, "gave_up": 1}
    assert len(bench.upstream.calls) == 3


def test_an_answer_that_never_has_words_is_passed_on_and_not_asked_for_again() -> None:
    bench, client = streamed(*[answers(called(OURS), *ends("tool_calls", 100, 5)) for _ in range(3)])
    assert finishes(events_of(client)) == ["stop"]
    assert ended(bench).ending is ExchangeOutcome.COMPLETED


def test_of_several_answers_ours_is_taken_out_and_nothing_follows() -> None:
    ours = choice({"tool_calls": [{"index": 0, **OURS}]}, index=1)
    finish = choice({}, "tool_calls", index=1), choice({}, "stop")
    bench, client = streamed(answers(said("fine"), ours, *finish, DONE), n=2)
    events = events_of(client)
    assert (text_of(events), sorted(finishes(events))) == ("fine", ["stop", "stop"])
    assert b"dynamic_panel" not in client.answer
    assert counted(ended(bench)) == {"taken_out": 1}


@pytest.mark.parametrize(
    ("failing", "is_free"),
    [
        (answers(b'{"error":{"message":"no"}}', status=400, headers=JSON), True),
        (answers(b"down", status=503), True),
        (UpstreamUnavailable("away").unreached(), True),
        (UpstreamUnavailable("gone"), False),
        (UpstreamTimeout("late"), False),
        (answers(body("x")[:50], UpstreamUnavailable("cut"), headers=JSON), False),
        (answers(said("a stream"), DONE), False),
        (answers(b"x" * (5 << 20), b"x" * (5 << 20), headers=JSON), False),
    ],
    ids=["400", "503", "away", "gone", "late", "cut", "stream", "long"],
)
def test_a_stream_whose_further_call_fails_ends_as_a_whole_answer(failing: Any, is_free: bool) -> None:
    bench, client = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), failing)
    events = events_of(client)
    assert (text_of(events), finishes(events)) == ("Let me look. ", ["stop"])
    assert usages(events)[-1]["prompt_tokens"] == 100
    assert client.has_ended
    assert counted(ended(bench)) == {"failed": 1}
    prompt = booked(ended(bench)).prompt
    assert prompt == 100 if is_free else prompt > 200


def test_a_body_whose_further_call_fails_is_the_first_answer_with_its_words() -> None:
    bench, client = whole(answers(body("I look.", OURS), headers=JSON), UpstreamTimeout("late"))
    answer = orjson.loads(client.answer)
    assert (client.status, answer["choices"][0]["finish_reason"]) == (200, "stop")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "I look.", "refusal": None}
    assert counted(ended(bench)) == {"failed": 1}


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (UpstreamTimeout("late"), 504),
        (answers(b"{}", status=400, headers=JSON), 502),
        (answers(b"{}", headers=JSON), 502),
    ],
)
def test_a_body_without_words_whose_further_call_fails_is_an_error_and_billed(failing: Any, status: int) -> None:
    bench, client = whole(answers(body(None, OURS), headers=JSON), failing)
    assert (client.status, client.has_ended) == (status, True)
    assert code(client) in ("upstream_timeout", "upstream_error")
    exchange = ended(bench)
    assert exchange.lost.usage is not None
    assert exchange.lost.usage.prompt >= 10


def test_what_a_failed_attempt_used_is_lost_once_and_not_billed_again_with_the_next() -> None:
    asking = [answers(body(None, OURS), headers=JSON), answers(body(None, OURS, prompt=30), headers=JSON)]
    away = [UpstreamUnavailable("away").unreached() for _ in range(2)]
    scripts = [*asking, *away]
    bench = Bench(*scripts, planner=PanelPlanner(), retries=RetryPolicy(retries=1, first_wait_s=0.001))
    client = bench.chat(MemoryClient(chat_body(stratiform={"panels": []})))
    assert (client.status, len(bench.upstream.calls)) == (502, 4)
    exchange = ended(bench)
    assert exchange.settlement is not None
    assert (exchange.lost.usage, exchange.settlement.usage) == (Usage(10, 2), None)


def test_a_body_with_the_clients_own_calls_loses_ours_and_no_other_byte() -> None:
    given = body("x", THEIRS, OURS, finish="tool_calls")
    bench, client = whole(answers(given, headers=JSON))
    assert client.answer == given.replace(b"," + orjson.dumps(OURS), b"")
    assert counted(ended(bench)) == {"taken_out": 1}


def test_a_request_without_a_call_of_ours_passes_byte_for_byte() -> None:
    steps = (FIRST[0], said("hi"), called(THEIRS), *ends("tool_calls", 9, 3))
    assert streamed(answers(*steps))[1].answer == b"".join(steps)
    given = body("x", THEIRS)
    assert whole(answers(given, headers=[*JSON, ("content-length", str(len(given)))]))[1].answer == given


def test_a_compressed_answer_passes_unread() -> None:
    raw = b"\x1f\x8bdynamic_panel"
    bench, client = streamed(answers(raw, headers=[*SSE, ("content-encoding", "gzip")]))
    assert client.answer == raw
    assert counted(ended(bench)) == {}


async def test_a_client_that_leaves_during_the_further_call_pays_for_both() -> None:
    further, seen = answers(None, headers=JSON), asyncio.Event()
    bench = Bench(answers(*FIRST, *ends("tool_calls", 100, 5)), further, planner=PanelPlanner())
    original = further.chunks

    async def chunks() -> Any:
        seen.set()
        async for chunk in original():
            yield chunk

    further.chunks = chunks  # type: ignore[method-assign]
    await left(bench, MemoryClient(chat_body(stream=True, stratiform={"panels": []})), seen)
    exchange = ended(bench)
    assert (exchange.ending, further.closed) == (ExchangeOutcome.HUNG_UP, 1)
    usage = booked(exchange)
    assert usage.prompt > 200
    assert usage.estimated


def test_a_client_that_has_left_while_its_answer_is_awaited_causes_no_further_call() -> None:
    bench = Bench(answers(body("I look.", OURS), headers=JSON), planner=PanelPlanner())
    client = MemoryClient(chat_body(stratiform={"panels": []}))

    script = bench.upstream.scripts[0]
    original = script.chunks  # type: ignore[union-attr]

    async def chunks() -> Any:
        async for chunk in original():
            client.has_left = True
            yield chunk

    script.chunks = chunks  # type: ignore[union-attr,method-assign]
    bench.chat(client)
    assert len(bench.upstream.calls) == 1
    exchange = ended(bench)
    assert exchange.ending is ExchangeOutcome.HUNG_UP
    assert booked(exchange) == Usage(10, 2)


@for_every([True, False])
def test_under_a_hard_limit_a_further_call_which_runs_on_is_heard_to_its_end(is_hard: bool) -> None:
    bench = Bench(answers(*FIRST, *ends("tool_calls", 100, 5)), second(90, 7), planner=PanelPlanner())
    client = MemoryClient(chat_body(stream=True, stratiform={"panels": []}))
    awaited = awaited_under(bench, client, is_hard=is_hard)
    bench.chat(client)
    assert awaited == [False, is_hard]


def test_a_further_call_counts_for_the_limits_of_its_deployment() -> None:
    bench, turns = Bench(answers(*FIRST, *ends("tool_calls", 100, 5)), planner=PanelPlanner()), list[str]()

    async def take_turn(exchange: Exchange, deployment: Deployment) -> None:
        turns.append(deployment.id)
        if len(turns) > 1:
            raise RateLimited("enough", kind="requests", retry_after_s=9)

    bench.door.take_turn = take_turn  # type: ignore[method-assign]
    client = bench.chat(MemoryClient(chat_body(stream=True, stratiform={"panels": []})))
    assert (len(turns), len(bench.upstream.calls), finishes(events_of(client))) == (2, 1, ["stop"])
    assert (counted(ended(bench)), ended(bench).answer.further) == ({"failed": 1}, ())


def test_a_body_that_is_there_without_its_usage_was_not_waited_for_in_silence() -> None:
    silent, asked = answers(body("It says so.").replace(b'"usage"', b'"used"'), headers=JSON), list[float]()
    bench = Bench(answers(*FIRST, *ends("tool_calls", 100, 5)), silent, planner=PanelPlanner())
    booked = bench.ledger.booked

    def noted(exchange: Exchange, outcome: Outcome, further_tokens: int, silent_s: float) -> Outcome:
        asked.append(silent_s)
        return booked(exchange, outcome, further_tokens, silent_s)

    bench.ledger.booked = noted  # type: ignore[method-assign]
    bench.chat(MemoryClient(chat_body(stream=True, stratiform={"panels": []})))
    assert asked[-1] == 0.0


@pytest.mark.parametrize(("has_room", "calls"), [(True, 2), (False, 1)])
def test_a_further_call_goes_out_when_the_reservation_is_extended_by_the_most_it_can_cost(
    has_room: bool, calls: int
) -> None:
    bench = Bench(answers(*FIRST, *ends("tool_calls", 100, 5)), second(90, 7), planner=PanelPlanner())
    asked: list[tuple[Usage | None, int]] = []

    async def extend(exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        asked.append((spent.usage, further_tokens))
        return has_room

    bench.door.extend = extend  # type: ignore[method-assign]
    client = bench.chat(MemoryClient(chat_body(stream=True, stratiform={"panels": []})))
    assert (len(bench.upstream.calls), finishes(events_of(client))) == (calls, ["stop"])
    assert counted(ended(bench)) == {"answered" if calls == 2 else "gave_up": 1}
    ((spent, added),) = asked
    assert spent == Usage(100, 5)
    assert added > 0, "each byte that is put into the prompt may be a token"
    if has_room:
        assert added == len(bench.upstream.bodies[1]) - len(bench.upstream.bodies[0])


def test_a_surprise_of_the_panels_ends_the_answer_as_it_stands() -> None:
    class Clumsy(PanelPlanner):
        async def assemble(self, sent: ParsedBody, *args: Any, **more: Any) -> AssembledChat:
            found = await super().assemble(sent, *args, **more)
            return replace(found, answers=lambda panel: str(1 // 0))

    bench, client = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), planner=Clumsy())
    assert (text_of(events_of(client)), finishes(events_of(client))) == ("Let me look. ", ["stop"])
    assert counted(ended(bench)) == {"gave_up": 1}


def test_panels_that_no_model_could_read_are_not_sent() -> None:
    class Vast(PanelPlanner):
        async def assemble(self, sent: ParsedBody, *args: Any, **more: Any) -> AssembledChat:
            found = await super().assemble(sent, *args, **more)
            return replace(found, answers=lambda panel: "x" * (9 << 20))

    bench, _ = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), planner=Vast())
    assert counted(ended(bench)) == {"gave_up": 1}


def test_the_clients_key_of_one_call_is_not_sent_with_another() -> None:
    bench = Bench(answers(*FIRST, *ends("tool_calls", 100, 5)), second(90, 7), planner=PanelPlanner())
    headers = [*JSON, ("idempotency-key", "k"), ("x-own", "1")]
    bench.chat(MemoryClient(chat_body(stream=True, stratiform={"panels": []}), headers=headers))
    first, further = (dict(call.headers) for call in bench.upstream.calls)
    assert (first["idempotency-key"], further["x-own"]) == ("k", "1")
    assert "idempotency-key" not in further


def test_further_calls_count_for_the_breaker_and_do_not_pass_one_that_is_open() -> None:
    breakers = Breakers(BreakerPolicy(allowed_fails=1, cooldown_s=1000.0))
    first = answers(*FIRST, *ends("tool_calls", 100, 5))
    scripts = [first, UpstreamUnavailable("gone"), first, UpstreamUnavailable("gone"), first]
    bench = Bench(*scripts, planner=PanelPlanner(), breakers=breakers)
    request = chat_body(stream=True, stratiform={"panels": []})
    for _ in range(2):
        assert bench.chat(MemoryClient(request)).status == 200
    assert bench.chat(MemoryClient(request)).status == 503
    assert len(bench.upstream.calls) == 4


def test_what_a_further_call_without_a_report_used_is_estimated_from_the_first() -> None:
    silent = answers(body("It says so.").replace(b'"usage"', b'"used"'), headers=JSON)
    bench, client = streamed(answers(*FIRST, *ends("tool_calls", 100, 5)), silent)
    exchange = ended(bench)
    (further,) = exchange.answer.further
    added = len(bench.upstream.bodies[1]) - len(bench.upstream.bodies[0])
    assert further.usage == Usage(added, further.tokens, estimated=True)
    assert usages(events_of(client)) == [used(100, 5)["usage"]]

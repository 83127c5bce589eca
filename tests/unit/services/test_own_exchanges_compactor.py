"""A compaction is an exchange of its own behind an answer: real sessions, admission and meter, a scripted upstream."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context import StructuredContext
from proxy.context.blocks import Assembly, AssemblyKind
from proxy.context.history import RuledHistory, ruled
from proxy.context.history.compaction import CompactionTerms, compacted
from proxy.context.panels import CacheTerms
from proxy.context.session import AssembledChat, Dialogue
from proxy.engine import Conclusion, Ports
from proxy.engine.exchange import Arrival, Call, Exchange, ExchangeOutcome, Planned, Principal, Requested
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import BudgetExceeded, UpstreamUnavailable
from proxy.kit.modes import Mode, Reason
from proxy.models import Deployment, Headers, Transport
from proxy.models.deployments import price_for
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan
from proxy.protocol.prices import PriceMap
from proxy.protocol.providers import NONE
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.usage import Usage
from proxy.services import ModelFacts
from proxy.services.context_assembler import ContextAssembler
from proxy.services.context_sessions import Compactions
from proxy.services.own_exchanges import MOST_AT_ONCE, Compactor, DailyTerms, OwnExchanges, answer_text
from proxy.services.planner_port import Planning
from tests.compactions import TEXTS
from tests.contexts import conversation_of
from tests.doubles import ModelList, OpenDoor, make_deployment
from tests.examples import for_every
from tests.exchanges import settled
from tests.fake_time import FakeTime
from tests.talk import assistant, user
from tests.unit.engine.telemetry.test_metrics import value
from tests.unit.services.test_own_exchanges_keep_alive import ListeningMeter

USD = 1e-6
PRICES = {"m": {"input_cost_per_token": USD, "output_cost_per_token": 5 * USD}}
GOOD = '{"boundary": 0, "confidence": 0.9, "summary": "They counted."}'
TERMS = CompactionTerms(min_history_tokens=1_000, verbatim_tokens=100, summary_tokens=50, keep_exchanges=2)


class Said:
    """An answer of the upstream."""

    headers: Headers = ()

    def __init__(self, text: str, status: int = 200) -> None:
        self.status = status
        usage = {"prompt_tokens": 900, "completion_tokens": 60, "total_tokens": 960}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        self._body = orjson.dumps({"choices": [choice], "usage": usage} if status == 200 else {"error": {}})

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body[:20]
        yield self._body[20:]

    async def aclose(self) -> None:
        pass


class Upstream:
    """Answers as the test says, and keeps every call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Callable[[], Awaitable[Said]] = self.good

    async def good(self) -> Said:
        return Said(GOOD)

    def says(self, text: str, status: int = 200) -> None:
        async def answer() -> Said:
            return Said(text, status)

        self.answer = answer

    async def open(self, call: Call) -> Said:
        self.calls.append(call)
        return await self.answer()

    async def aclose(self) -> None:
        pass


class Door(OpenDoor):
    """Lets everybody in, unless it is told that the budget is spent."""

    is_spent = False

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        if self.is_spent:
            raise BudgetExceeded("spent")
        await super().reserve(exchange, others)


class Scene:
    """A proxy that compacts, and a conversation that grows. Every exchange costs what it would cost without a cache."""

    def __init__(self, terms: DailyTerms | None = None, *, is_priced: bool = True, **deployment: Any) -> None:
        fields = {"transport": Transport.EMBEDDED, "profile": NONE, "api_key": "sk-operator", **deployment}
        self.deployment = make_deployment(name="m", **fields)
        self.upstream, self.door, self.metrics = Upstream(), Door(), Metrics()
        prices = PriceMap({}, PRICES if is_priced else {})
        self.assembler = ContextAssembler(load_context_texts(), bytes_over_four)
        self.settled: list[Exchange] = []
        meter = ListeningMeter(self.metrics, prices, self.settled)
        planner = Planning(TierPlanner(bytes_over_four, ()))
        upstream: Any = self.upstream
        ports = Ports(
            ModelList({"m": self.deployment}), {Transport.EMBEDDED: upstream}, planner, self.door, meter, FakeTime(1e9)
        )

        def price_of(of: Deployment) -> Any:
            return price_for(prices, of)

        facts = ModelFacts(lambda of: (None, None), price_of)
        self.compactions = Compactions(self.assembler.sessions, TERMS, TEXTS, facts)
        given = terms or DailyTerms()
        self.own = OwnExchanges(ports, Conclusion(ports), price_of, given)
        self.is_full = False
        self.compactor = Compactor(self.compactions, self.own, ports.clock, self.metrics.compacted)

    def chat(self, exchanges: int, name: str = "talk", scope: str = "key") -> AssembledChat:
        """The request with so many earlier exchanges of 100 tokens each."""
        pairs = ((user(f"question {n} " * 14), assistant(f"answer {n} " * 16)) for n in range(exchanges))
        turns = [turn for pair in pairs for turn in pair]
        conversation = conversation_of(*turns, user("and now?"))
        session = self.assembler.sessions.session(scope, name)
        session.requests, profile = exchanges, self.deployment.profile
        session.terms = CacheTerms(profile.read, profile.write, is_full=self.is_full)
        sent = parse_body(orjson.dumps({"model": "m", "messages": []}))
        dialogue = Dialogue(conversation, uncompacted=ruled(conversation, {}))
        kind, context = AssemblyKind.ECONOMIC, StructuredContext()
        return AssembledChat(sent, b"", kind, Assembly(()), Assembly(()), context, dialogue, scope, name)

    def answered(self, chat: AssembledChat, **changes: Any) -> Exchange:
        """The client's exchange, as it has ended."""
        plan = Plan(b"", b"", Mode.TIER, Reason.ORDERED)
        principal = Principal(scope=chat.scope, team="red", virtual=True)
        planned = Planned(Mode.TIER, "", plan, assembled=chat)
        exchange = Exchange(Arrival("POST", "/chat/completions", 1e9), principal, Requested("m"), planned=planned)
        headers = [("authorization", "Bearer sk-operator")]
        exchange.call = Call(self.deployment, "POST", "/chat/completions", headers, b"{}", stream=True, now=1e9)
        exchange.deployment, exchange.ending = self.deployment, ExchangeOutcome.COMPLETED
        exchange.answer.status, exchange.answer.first_byte_s = 200, 0.1
        exchange.answer.outcome = Outcome(usage=Usage(2_000, 10))
        for name, changed in changes.items():
            setattr(exchange, name, changed)
        return exchange

    async def ask(self, exchanges: int = 30, **changes: Any) -> AssembledChat:
        """The client's request is answered; what follows behind it has ended, too."""
        chat = self.chat(exchanges)
        self.compactor.ended(self.answered(chat, **changes))
        await self.ended()
        return chat

    async def ended(self) -> None:
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))

    def sent(self, chat: AssembledChat) -> RuledHistory:
        """What the next request sends of this conversation."""
        session = self.assembler.sessions.session(chat.scope, chat.session)
        assert chat.dialogue.uncompacted is not None
        return compacted(chat.dialogue.uncompacted, session.state.compaction, TEXTS)

    def count(self, outcome: str) -> float:
        return value(self.metrics, "compactions_total", outcome=outcome) or 0.0


def is_whole(scene: Scene, chat: AssembledChat) -> bool:
    return scene.sent(chat) is chat.dialogue.uncompacted


async def test_a_long_conversation_has_a_summary_from_the_next_request_on() -> None:
    scene = Scene()
    chat = await scene.ask(24)
    first, second, *rest = [orjson.loads(turn.raw)["content"] for turn in scene.sent(chat).conversation]
    assert (first, second) == ("[History Summary]\nThey counted.", TEXTS.ok)
    assert len(rest) == 3
    assert scene.count("summarized") == 1


async def test_the_call_is_an_exchange_of_its_own_that_the_team_pays() -> None:
    scene = Scene()
    await scene.ask()
    (exchange,), (call,) = scene.settled, scene.upstream.calls
    assert (exchange.principal.team, exchange.planned.reason) == ("red", "compaction")
    assert (exchange.ending, exchange.answer.status) == (ExchangeOutcome.COMPLETED, 200)
    assert settled(exchange).cost_usd == pytest.approx(900 * USD + 60 * 5 * USD)
    assert settled(exchange).saved_usd == 0
    assert scene.door.settled == [(exchange.arrival.id, settled(exchange).cost_usd)]
    assert (call.deployment, call.stream) == (scene.deployment, False)
    assert list(call.headers) == [("authorization", "Bearer sk-operator")]
    body = orjson.loads(bytes(call.body))  # type: ignore[arg-type]
    assert sorted(body) == ["max_tokens", "messages", "model"]
    assert (body["model"], body["max_tokens"]) == ("m", 300)


async def test_a_short_conversation_makes_no_call() -> None:
    scene = Scene()
    await scene.ask(5)
    assert scene.upstream.calls == []


@pytest.mark.parametrize(
    ("text", "status", "outcome"),
    [
        ("I would rather not.", 200, "unreadable"),
        ('{"boundary": 99, "confidence": 1, "summary": "x"}', 200, "unreadable"),
        ('{"boundary": 0, "confidence": 1, "summary": ""}', 200, "unreadable"),
        ("", 500, "refused"),
        ("", 401, "refused"),
    ],
)
async def test_an_answer_that_is_none_changes_nothing(text: str, status: int, outcome: str) -> None:
    scene = Scene()
    scene.upstream.says(text, status)
    chat = await scene.ask()
    assert is_whole(scene, chat)
    assert scene.count(outcome) == 1


@pytest.mark.parametrize("error", [UpstreamUnavailable("away"), RuntimeError("the secret prompt")])
async def test_an_upstream_that_breaks_changes_nothing_and_the_call_is_settled(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    async def breaks() -> Said:
        raise error

    scene.upstream.answer = breaks
    with caplog.at_level(logging.DEBUG):
        chat = await scene.ask()
    assert is_whole(scene, chat)
    assert len(scene.settled) == 1
    assert value(scene.metrics, "in_flight") == 0
    assert "secret" not in caplog.text


async def test_a_budget_without_room_changes_nothing() -> None:
    scene = Scene()
    scene.door.is_spent = True
    chat = await scene.ask()
    assert is_whole(scene, chat)
    assert (scene.upstream.calls, scene.count("denied")) == ([], 1)
    assert settled(scene.settled[0]).cost_usd == 0
    scene.door.is_spent = False
    await scene.ask(32)
    assert scene.upstream.calls == []
    await scene.ask(34)
    assert scene.count("summarized") == 1


@pytest.mark.parametrize(("is_ours", "unreadable"), [(True, 0), (False, 3)], ids=["a surprise of ours", "no answer"])
async def test_three_failures_in_a_row_are_the_last(*, is_ours: bool, unreadable: int) -> None:
    scene = Scene()

    async def fails() -> Said:
        if is_ours:
            raise RuntimeError("ours")
        return Said("no")

    scene.upstream.answer = fails
    for exchanges in (30, 31, 40, 50, 70, 90):
        await scene.ask(exchanges)
    assert (len(scene.upstream.calls), scene.count("unreadable")) == (3, unreadable)


@pytest.mark.parametrize(
    ("terms", "deployment", "is_priced"),
    [(DailyTerms(usd_per_day=0.0), {}, True), (DailyTerms(teams={"red": 0.0}), {}, True), (DailyTerms(), {}, False)],
    ids=["no money", "not this team", "no price"],
)
async def test_compactions_are_for_those_whose_calls_may_cost_something_that_is_known(
    terms: DailyTerms, deployment: dict[str, Any], *, is_priced: bool
) -> None:
    scene = Scene(terms, is_priced=is_priced, **deployment)
    await scene.ask()
    assert (scene.upstream.calls, scene.settled) == ([], [])


@pytest.mark.parametrize(("own_keys", "calls"), [(False, 0), (True, 1)])
async def test_clients_own_keys_where_the_operator_says_so(*, own_keys: bool, calls: int) -> None:
    scene = Scene(DailyTerms(own_keys=own_keys))
    await scene.ask(principal=Principal(scope="key", team="red", forwards_key=True))
    assert len(scene.upstream.calls) == calls


async def test_the_cap_of_the_day_is_not_passed() -> None:
    scene = Scene(DailyTerms(usd_per_day=0.0001))
    chat = await scene.ask()
    assert is_whole(scene, chat)
    assert (scene.upstream.calls, scene.settled, scene.count("capped")) == ([], [], 1)


@pytest.mark.parametrize("ending", [ExchangeOutcome.HUNG_UP, ExchangeOutcome.BROKEN, ExchangeOutcome.REJECTED])
async def test_nothing_follows_an_answer_that_was_not_complete(ending: ExchangeOutcome) -> None:
    scene = Scene()
    await scene.ask(ending=ending)
    assert scene.upstream.calls == []


async def test_nothing_follows_where_the_client_does_not_ask_for_it() -> None:
    scene = Scene()
    chat = scene.chat(30)
    scene.compactor.ended(scene.answered(replace(chat, dialogue=replace(chat.dialogue, uncompacted=None))))
    await scene.ended()
    assert scene.upstream.calls == []


async def test_one_at_a_time_for_a_conversation_and_some_at_once_for_all() -> None:
    scene, held = Scene(), asyncio.Event()

    async def waits() -> Said:
        await held.wait()
        return Said(GOOD)

    scene.upstream.answer = waits
    for _ in range(3):
        scene.compactor.ended(scene.answered(scene.chat(30)))
    for number in range(2 * MOST_AT_ONCE):
        scene.compactor.ended(scene.answered(scene.chat(30, f"talk {number}")))
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(scene.upstream.calls) == MOST_AT_ONCE
    held.set()
    await scene.ended()
    assert scene.count("summarized") == MOST_AT_ONCE


async def test_another_key_with_the_same_conversation_has_no_part_in_a_compaction() -> None:
    scene = Scene()
    await scene.ask()
    assert is_whole(scene, scene.chat(30, scope="another key"))


async def test_what_is_under_way_may_end_when_the_proxy_ends_and_nothing_begins() -> None:
    scene = Scene()
    scene.compactor.ended(scene.answered(scene.chat(30)))
    await asyncio.sleep(0)
    await scene.compactor.aclose()
    assert value(scene.metrics, "in_flight") in (0, None)
    before = len(scene.upstream.calls)
    await scene.ask(60)
    assert len(scene.upstream.calls) == before


@for_every(
    [
        (b'{"choices":[{"message":{"content":"a"}}]}', "a"),
        (b'{"choices":[{"message":{"content":null}}]}', ""),
        (b'{"choices":[{"message":{"content":["a"]}}]}', ""),
        (b'{"choices":[]}', ""),
        (b'{"choices":{"0":1}}', ""),
        (b'{"choices":"abc"}', ""),
        (b"[]", ""),
        (b"null", ""),
        (b"data: {}", ""),
        (b"", ""),
        (b"[" * 100_000, ""),
        (b"\xff", ""),
    ]
)
def test_the_answers_text_is_read_from_whatever_came(body: bytes, text: str) -> None:
    assert answer_text(body) == text

"""What is kept of sessions for the administration: counted once on however many workers, listed, bounded, and there
while the store is away."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.app.admin.reports import sessions_answer
from proxy.engine import Conclusion, Engine, Ports
from proxy.engine.exchange import Call, Exchange, Principal, Settlement
from proxy.engine.ports import Answer
from proxy.engine.telemetry import MetricsMeter
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import InvalidRequest, MethodNotAllowed, NotFound
from proxy.kit.modes import Mode
from proxy.kit.tasks import Aside
from proxy.models import Transport
from proxy.models.deployments import price_for
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan, PlannerOptions
from proxy.planner.session_record import SessionFacts, SessionRecord, SessionSums
from proxy.protocol.prices import PriceMap
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services import ModelFacts
from proxy.services.own_exchanges import KeepAlive, OwnExchanges, RefreshTerms
from proxy.services.planner_port import Planning
from proxy.services.session_book import SCOPE, SessionBook, packed
from proxy.storage import Place
from proxy.upstream.embedded import EmbeddedUpstream
from tests.doubles import ModelList, OpenDoor, make_deployment
from tests.exchanges import make_exchange, settled
from tests.fake_time import FakeTime, settle
from tests.fidelity.chats import EDITABLE_ACK, EDITABLE_OPENING
from tests.talk import RECOGNISERS, TINY, lines
from tests.unit.engine.parts import MemoryClient
from tests.unit.services.parts import Recorder
from tests.unit.services.test_own_exchanges_keep_alive import PRICES
from tests.waiting import until_async

START_S = 1_000_000.0
SECRET = "the secret words of a prompt"


class Store(Recorder):
    """A store in which others may write while it is read."""

    loaded: Callable[[], Awaitable[None]] | None = None

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        found = await super().load(scope, names, now)
        if self.loaded is not None:
            meanwhile, self.loaded = self.loaded, None
            await meanwhile()
        return found

    async def page(self, scope: str, behind: Place, limit: int, now: float) -> Sequence[tuple[str, float, bytes]]:
        await self._trouble()
        return await super().page(scope, behind, limit, now)


class Worker:
    """A proxy over a store, with its clients."""

    def __init__(
        self,
        store: Store,
        name: str = "w1-",
        *,
        is_shared: bool = True,
        keeps_alive: bool = False,
        mode: Mode = Mode.TIER,
    ) -> None:
        profile = replace(TINY, long_life_s=0.0)
        deployment = make_deployment(
            name="m", transport=Transport.EMBEDDED, profile=profile, api_key="sk-operator", mode=mode
        )
        self.clock = FakeTime(START_S)
        self.failures: list[str] = []
        prices, pure = (
            PriceMap({}, PRICES),
            TierPlanner(bytes_over_four, RECOGNISERS, options=PlannerOptions(prices_mark=True), prefix=name),
        )
        facts = ModelFacts(lambda of: (200_000, 8_000))
        store.is_shared = is_shared
        self.book = SessionBook(store, self.clock.now, self.failures.append, Aside(), facts, worker=name)
        self.upstream = EmbeddedUpstream(bytes_over_four)
        self.cost_usd = 0.0
        ports = Ports(
            ModelList({"m": deployment}),
            {Transport.EMBEDDED: self.upstream},
            Planning(pure, price_of=lambda of: price_for(prices, of)),
            OpenDoor(),
            MetricsMeter(Metrics(), lambda of: price_for(prices, of)),
            self.clock,
        )
        conclusion, terms = Conclusion(ports), RefreshTerms(usd_per_day=1.0)
        own = OwnExchanges(ports, conclusion, lambda of: price_for(prices, of), terms)
        self.keep_alive = KeepAlive(
            terms, own, pure, self.clock, lambda team, outcome: None, self.clock.wait, self.book.ended
        )
        self.keeps_alive = keeps_alive
        self.engine = Engine(ports, conclusion=conclusion, follower=self)

    def returned(self, session: str) -> None:
        if self.keeps_alive:
            self.keep_alive.returned(session)

    def ended(self, exchange: Any) -> None:
        self.book.ended(exchange)
        self.cost_usd += settled(exchange).cost_usd
        if self.keeps_alive:
            self.keep_alive.ended(exchange)

    async def aclose(self) -> None:
        await self.keep_alive.aclose()
        await self.book.aclose()

    async def ask(self, turn: int, talk: str = "a", changed: int = 0, **more: Any) -> None:
        """The so-manieth request of a conversation, whose editor shows two files."""
        messages = [{"role": "system", "content": lines(200, SECRET)}]
        for number in range(turn):
            messages += [{"role": "user", "content": f"{talk} asks {number}"}, {"role": "assistant", "content": "Yes."}]
        shown = EDITABLE_OPENING + _file("stable.py", 0) + _file("hot.py", changed)
        messages += [{"role": "user", "content": shown}, {"role": "assistant", "content": EDITABLE_ACK}]
        messages.append({"role": "user", "content": f"{talk} asks {turn}"})
        client = MemoryClient(orjson.dumps({"model": "m", "messages": messages, "max_tokens": 20, **more}))
        await self.engine.chat(client)
        assert client.status == 200
        await settle()

    async def written(self) -> None:
        """Everything that waits is written, without a pause."""
        await self.book.aclose()

    async def failed(self) -> None:
        """A call of the store has failed."""
        await until_async(lambda: self.failures)

    def forget(self, session: str) -> None:
        """There was no room for it any more."""
        self.book._known.drop(session)

    async def get(self, path: str = "", **query: str) -> Any:
        return await sessions_answer(self.book, "GET", path, query, self.clock.now())


def _file(path: str, version: int) -> str:
    return f"\n{path}\n```\n{lines(60, path)}\nVERSION = {version}\n```\n"


@pytest.fixture
def store() -> Store:
    return Store()


async def test_a_session_says_who_it_is_what_it_used_and_how_long_its_cache_lives(store: Store) -> None:
    worker = Worker(store)
    for turn in range(5):
        await worker.clock.advance(10.0)
        await worker.ask(turn, changed=turn)
    await worker.written()
    page = await worker.get()
    (one,) = page["data"]
    assert (one["team"], one["model"], one["mode"], one["requests"]) == ("default", "m", "tier", 5)
    assert (one["first_seen"], one["last_seen"]) == (START_S + 10, START_S + 50)
    assert one["read_tokens"] > 0 < one["write_tokens"]
    assert 0 < one["hit_ratio"] < 1
    assert one["cost_usd"] > 0
    assert one["culprits"] == []
    assert set(one["tiers"]) == {"L0", "L1", "L2", "L3", "active"}
    assert one["tiers"]["L3"] > 0 < one["tiers"]["L0"]
    assert 1 <= len(one["breakpoints"]) <= 4
    assert all(point["until"] == START_S + 50 + TINY.life_s and point["is_live"] for point in one["breakpoints"])
    assert [point["tokens"] for point in one["breakpoints"]] == sorted(p["tokens"] for p in one["breakpoints"])
    assert (page["as_of"], page["store_away"], page["has_more"]) == (START_S + 50, False, False)
    await worker.clock.advance(TINY.life_s + 1)
    (later,) = (await worker.get())["data"]
    assert not any(point["is_live"] for point in later["breakpoints"])


async def test_the_breakdown_has_the_pieces_with_their_n_against_the_threshold_and_sums_that_are_sums(
    store: Store,
) -> None:
    worker = Worker(store)
    for turn in range(5):
        await worker.ask(turn, changed=turn)
    await worker.written()
    (one,) = (await worker.get())["data"]
    found = await worker.get(f"{one['id']}/breakdown")
    blocks = {block["tier"]: block for block in found["blocks"]}
    (stable,) = [item for c in blocks["L3"]["contents"] for item in c["items"]]
    assert stable["key"].endswith("stable.py")
    assert (stable["n"], stable["next_tier"], stable["next_threshold"]) == (4, "L2", 6)
    assert {tier: block["tokens"] for tier, block in blocks.items()} == {
        tier: tokens for tier, tokens in one["tiers"].items() if tokens
    }
    assert found["total_tokens"] == sum(one["tiers"].values())
    for block in found["blocks"]:
        assert block["tokens"] == sum(content["tokens"] for content in block["contents"])
        assert found["tier_info"][block["tier"]]["tokens"] == block["tokens"]
    assert found["tier_info"]["active"]["files"] == 1
    assert found["session_totals"]["cache_hit"] == one["read_tokens"]
    assert (found["max_input_tokens"], found["context_map_tokens"]) == (200_000, 0)
    assert {"promotions", "demotions", "empty_tiers", "empty_tiers_session_total"} <= found.keys()


async def test_a_promotion_and_a_demotion_are_those_of_the_last_answer(store: Store) -> None:
    worker = Worker(store)
    for turn in range(4):
        await worker.ask(turn)
    await worker.written()
    (one,) = (await worker.get())["data"]
    found = await worker.get(f"{one['id']}/breakdown")
    assert sorted(tier for _, tier in found["promotions"]) == ["L3", "L3"]
    await worker.ask(4, changed=1)
    await worker.written()
    found = await worker.get(f"{one['id']}/breakdown")
    ((key, left),) = found["demotions"]
    assert (key.endswith("hot.py"), left, found["promotions"]) == (True, "L3", [])


async def test_nothing_of_a_prompt_and_no_key_is_kept(store: Store) -> None:
    worker = Worker(store)
    await worker.ask(0, user="sk-operator")
    await worker.written()
    assert store.blobs
    assert not any(word in blob for blob in store.blobs for word in (SECRET.encode(), b"asks", b"VERSION"))


async def test_requests_are_counted_once_on_however_many_workers_and_starts(store: Store) -> None:
    one, two = Worker(store, "w1-"), Worker(store, "w2-")
    # Both know the session by the client's id for it.
    for worker in (one, two, one):
        worker.book.ended(served("shared", read=10, cost_usd=0.5))

    async def other_writes() -> None:
        await two.written()

    # The other worker writes between what this one reads and what it writes.
    store.loaded = other_writes
    await one.written()
    await two.written()
    await one.written()
    two.book.ended(served("shared", read=10, cost_usd=0.5))
    await two.written()
    (found,) = (await one.get())["data"]
    assert (found["requests"], found["read_tokens"], found["cost_usd"]) == (4, 40, 2.0)
    # One that starts later, and one that has forgotten the session meanwhile, go on with what the store has.
    again = Worker(store, "w3-")
    again.book.ended(served("shared", read=10, cost_usd=0.5))
    await again.written()
    one.forget("shared")
    one.book.ended(served("shared", read=10, cost_usd=0.5))
    await one.written()
    assert (await again.get())["data"][0]["requests"] == 6


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_request_after_a_long_pause_loses_none_that_waited_to_be_written(store: Store, is_away: bool) -> None:
    """The store is away meanwhile, or the requests of a replay bring the times at which they were recorded."""
    worker = Worker(store)
    worker.book.ended(served("s", read=10, cost_usd=0.5))
    await worker.written()
    store.fails = is_away
    for at in (10.0, 20.0, 4_000.0, 4_010.0, 90_000.0):
        worker.book.ended(served("s", read=10, cost_usd=0.5, at=START_S + at))
    await worker.written()
    await worker.get()
    store.fails = False
    worker.book.ended(served("s", read=10, cost_usd=0.5, at=START_S + 90_010.0))
    await worker.written()
    (found,) = (await worker.get())["data"]
    assert (found["requests"], found["read_tokens"], found["cost_usd"]) == (7, 70, 3.5)


def served(session: str, read: int, cost_usd: float, at: float = START_S) -> Exchange:
    """An exchange of a session that the upstream took."""
    exchange = make_exchange(
        now=at, status=200, first_byte_s=0.1, plan=Plan(b"", b"", Mode.TIER, "kept", session=session)
    )
    exchange.principal, exchange.deployment = Principal(scope="s", team="red"), make_deployment(name="m")
    exchange.settlement = Settlement(Usage(read, 0, read), cost_usd)
    return exchange


_FACTS = SessionFacts(team="red", model="m")


def test_many_starts_are_added_up_and_counted_once() -> None:
    record = SessionRecord("s", START_S)
    for number in range(100):
        own = record.counted(f"w{number}", SessionSums(START_S + 600 * number, 1), _FACTS)
        record = own.merged(record, f"w{number}")
    assert record.total() == SessionSums(START_S + 600 * 99, 100)
    assert len(record.parts) <= 33
    # A worker whose part was added to the earlier ones goes on from nothing.
    old = SessionRecord("s", START_S, _FACTS, {"w0": SessionSums(START_S, 1)}).merged(record, "w0")
    assert old.total().requests == 100
    assert old.counted("w0", SessionSums(START_S + 60_000, 1), _FACTS).merged(record, "w0").total().requests == 101


async def test_pages_show_every_session_once_the_last_used_first(store: Store) -> None:
    worker = Worker(store)
    for number in range(7):
        await worker.clock.advance(1.0)
        await worker.ask(0, talk=f"talk {number}")
        await worker.written()
    found: list[Any] = []
    query: dict[str, str] = {"limit": "3"}
    while True:
        page = await worker.get(**query)
        found += page["data"]
        if not page["has_more"]:
            break
        query["behind"] = page["behind"]
    assert [one["last_seen"] for one in found] == sorted((one["last_seen"] for one in found), reverse=True)
    assert len({one["id"] for one in found}) == len(found) == 7
    assert len((await worker.get(limit="7"))["data"]) == 7
    assert not (await worker.get(limit="7"))["has_more"]
    assert len((await worker.get(team="default", limit="2"))["data"]) == 2
    assert (await worker.get(team="red"))["data"] == []


async def test_a_rare_word_is_looked_for_in_parts_and_lets_others_have_their_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, turns = Worker(store), 0
    for number in range(12):
        record = SessionRecord(f"s{number}", START_S, replace_team("rare" if number == 1 else "common"))
        await store.save(SCOPE, {record.id: packed(record)}, 60.0, START_S + number)
    monkeypatch.setattr("proxy.services.session_book._MOST_OF_SEARCH", 4)
    monkeypatch.setattr("proxy.services.session_book._MOST_SEARCHED", 8)
    monkeypatch.setattr("proxy.services.session_book._LOOKED_AT", 2)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    busy = asyncio.ensure_future(others())
    first = await worker.get(q="rare")
    busy.cancel()
    assert (first["data"], first["has_more"]) == ([], True)
    assert turns >= 4
    second = await worker.get(q="rare", behind=first["behind"])
    assert ([one["id"] for one in second["data"]], second["has_more"]) == (["s1"], False)


def replace_team(team: str) -> SessionFacts:
    return SessionFacts(team=team, model="m")


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.MARK, Mode.TIER])
def test_what_a_session_would_cost_in_another_mode_is_about_what_it_costs_there(mode: Mode) -> None:
    costs: dict[Mode, float] = {}
    told: dict[str, dict[str, Any]] = {}

    async def scene(store: Store, sent: Mode) -> None:
        worker = Worker(store, mode=sent)
        for turn in range(14):
            await worker.clock.advance(10.0)
            await worker.ask(turn, changed=turn // 3)
        await worker.written()
        (one,) = (await worker.get())["data"]
        costs[sent] = one["cost_usd"]
        if sent is mode:
            told.update({each["mode"]: each for each in one["modes"]})

    for sent in (Mode.OBSERVE, Mode.MARK, Mode.TIER):
        asyncio.run(scene(Store(), sent))
    own = {Mode.OBSERVE: "passthrough", Mode.MARK: "mark", Mode.TIER: "tier"}
    assert {name for name, one in told.items() if one["by"] == "provider"} == {own[mode]}
    assert told.keys() == {"passthrough", "mark"} | ({"tier"} if mode is not Mode.MARK else set())
    assert costs[Mode.MARK] < 0.7 * costs[Mode.OBSERVE]
    for one, name in own.items():
        if name in told:
            assert told[name]["cost_usd"] == pytest.approx(costs[one], rel=0.02), name


async def test_what_is_asked_wrongly_is_refused(store: Store) -> None:
    worker = Worker(store)
    for query in ({"behind": "nonsense"}, {"behind": "nan/x"}, {"limit": "0"}, {"limit": "1001"}, {"since": "1d"}):
        with pytest.raises(InvalidRequest):
            await worker.get(**query)
    for path in ("unknown", "unknown/breakdown", "unknown/text"):
        with pytest.raises(NotFound):
            await worker.get(path)
    with pytest.raises(MethodNotAllowed):
        await sessions_answer(worker.book, "DELETE", "unknown", {}, START_S)


async def test_while_the_store_is_away_the_page_says_since_when_its_figures_stand_and_nothing_is_lost(
    store: Store,
) -> None:
    worker = Worker(store)
    await worker.ask(0, talk="first")
    await worker.written()
    await worker.get()
    store.fails = True
    await worker.clock.advance(100.0)
    await worker.ask(0, talk="second")
    await worker.failed()
    page = await worker.get()
    assert (page["store_away"], page["as_of"]) == (True, START_S)
    assert [one["last_seen"] for one in page["data"]] == [START_S + 100, START_S]
    one = await worker.get(f"{page['data'][0]['id']}/breakdown")
    assert (one["store_away"], one["as_of"], one["total_tokens"] > 0) == (True, START_S, True)
    store.fails = False
    await worker.ask(0, talk="third")
    await worker.written()
    page = await worker.get()
    assert (page["store_away"], page["as_of"], len(page["data"])) == (False, START_S + 100, 3)


async def test_what_is_forgotten_while_the_store_is_away_does_not_wait(store: Store) -> None:
    worker = Worker(store)
    store.fails = True
    for talk in ("first", "second"):
        await worker.ask(0, talk=talk)
    first, second = worker.book._known
    worker.forget(first)
    worker.book._closing.set()
    await worker.failed()
    assert list(worker.book._waiting) == [second]
    store.fails = False


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (rb'"half \ud800 a pair"', "half"),
        (rb'[{"type": "text", "text": "\ud800 parts"}]', "parts"),
        (b"[" * 300 + b"]" * 300, "[["),
        (b"[" * 900 + b"]" * 900, ""),
        (b"7.5", "7.5"),
    ],
)
async def test_the_text_of_a_request_is_shown_whatever_its_form_is(store: Store, content: bytes, text: str) -> None:
    worker = Worker(store)
    await worker.ask(0)
    await worker.written()
    (one,) = (await worker.get())["data"]
    body = b'{"messages": [7, {"role": "user", "content": %b}]}' % content
    worker.book._texts.put(one["id"], body)
    found = await worker.get(f"{one['id']}/text")
    orjson.dumps(found)
    assert [text in message["text"] for message in found["data"]] == [True]
    for odd in (b"[]", b'{"messages": {}}', b"\xff"):
        worker.book._texts.put(one["id"], odd)
        assert (await worker.get(f"{one['id']}/text"))["data"] == []


async def test_what_is_in_the_store_and_cannot_be_read_is_passed_over(store: Store) -> None:
    worker = Worker(store)
    await worker.ask(0)
    await worker.written()
    (one,) = (await worker.get())["data"]
    await store.save(SCOPE, {"torn": b"\x93", "text": b"\xff\xfe"}, 60.0, worker.clock.now())
    assert [each["id"] for each in (await worker.get())["data"]] == [one["id"]]
    with pytest.raises(NotFound):
        await worker.get("torn")


async def test_a_record_under_another_name_changes_no_session(store: Store) -> None:
    worker = Worker(store)
    await worker.ask(0)
    await worker.written()
    (before,) = (await worker.get())["data"]
    alien = SessionRecord(before["id"], 0.0, SessionFacts(team="other"), {"w": SessionSums(requests=9)})
    await store.save(SCOPE, {"alien": packed(alien)}, 60.0, worker.clock.now())
    assert (await worker.get())["data"] == [before]
    with pytest.raises(NotFound):
        await worker.get("alien")


async def test_a_refresh_of_the_proxys_own_costs_and_is_no_request_and_the_cache_lives_on(store: Store) -> None:
    worker = Worker(store, keeps_alive=True)
    for turn in range(12):
        await worker.clock.advance(480.0 if turn % 2 else 10.0)
        await worker.ask(turn)
    await worker.written()
    (before,) = (await worker.get())["data"]
    await worker.clock.advance(TINY.life_s - 1)
    await worker.written()
    (after,) = (await worker.get())["data"]
    assert after["requests"] == before["requests"] == 12
    assert after["cost_usd"] > before["cost_usd"]
    assert after["breakpoints"][-1]["until"] > before["breakpoints"][-1]["until"]
    await worker.aclose()


async def test_a_request_that_was_billed_before_the_client_had_anything_costs_its_session(store: Store) -> None:
    worker, opened = Worker(store), asyncio.Event()
    await worker.ask(0)
    open_ = worker.upstream.open

    async def silent(call: Call) -> Answer:
        opened.set()
        await asyncio.Event().wait()
        return await open_(call)

    worker.upstream.open = silent  # type: ignore[method-assign]
    task = asyncio.ensure_future(worker.ask(1))
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await worker.written()
    (session,) = (await worker.get())["data"]
    assert session["requests"] == 2
    assert session["cost_usd"] == pytest.approx(worker.cost_usd)
    await worker.aclose()


async def test_a_secret_in_the_name_of_a_file_is_not_kept(store: Store) -> None:
    secret = "sk-ant-REDACTME0123456789abcdef"

    worker = Worker(store)
    for turn in range(3):
        shown = EDITABLE_OPENING + _file(f"{secret}.py", turn) + _file("plain.py", 0)
        messages = [{"role": "system", "content": lines(200, SECRET)}]
        for number in range(turn):
            messages += [{"role": "user", "content": f"asks {number}"}, {"role": "assistant", "content": "Yes."}]
        messages += [{"role": "user", "content": shown}, {"role": "assistant", "content": EDITABLE_ACK}]
        messages.append({"role": "user", "content": f"asks {turn}"})
        await worker.engine.chat(MemoryClient(orjson.dumps({"model": "m", "messages": messages})))
        await settle()
    await worker.written()
    (one,) = (await worker.get())["data"]
    told = str(await worker.get(f"{one['id']}/breakdown"))
    assert "plain.py" in told
    assert "[redacted].py" in told
    assert store.blobs
    assert not any(secret.encode() in blob for blob in store.blobs)
    assert secret not in told

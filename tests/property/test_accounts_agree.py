"""After any traffic, every place that tells of usage and money tells the same, and the same as the provider bills.

The places are the ledger with its reports, the counters of budgets, the metrics, the lines of the log, the sessions of
the admin API, and the usage in the answers themselves.
"""

import asyncio
import json
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.app import composition
from proxy.app.web import create_app
from proxy.engine.conclusion import Line
from proxy.kit.errors import StoreError
from proxy.protocol.request.tokens import bytes_over_four
from tests.doubles import serving_here
from tests.examples import examples
from tests.traffic import PRICES, BillingProvider, Call, Clients, Request, Told, traffic
from tests.waiting import until_async
from tests.whole import settings_of

MASTER = "sk-master-7d1fC0ffee00ab93e1"
KEYS = ("sk-free", "sk-hard", "sk-ann", "sk-other", "sk-tight", MASTER)
NAMES = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
         "cache_creation_input_token_cost")  # fmt: skip
TEAMS = [
    {"name": "free", "keys": ["sk-free"]},
    {"name": "hard", "keys": ["sk-hard"], "budgets": [{"usd": 5}]},
    {"name": "nested", "keys": [{"key": "sk-ann", "user": "ann"}, "sk-other"], "requests_per_minute": 1000, "budgets": [
        {"usd": 50}, {"usd": 20, "scope": "key"}, {"tokens": 10**8, "scope": "user"},
        {"usd": 9, "soft_usd": 0.001, "window": "rolling:1d"}, {"usd": 9, "scope": "model", "subject": "raw"},
        {"usd": 50, "scope": "model", "subject": "main", "name": "main"},
        {"usd": 50, "scope": "model", "subject": "back", "name": "back"}]},
    {"name": "tight", "keys": ["sk-tight"], "budgets": [{"usd": 0.02}, {"tokens": 3000}]},
]  # fmt: skip
MODELS = ("main", "back", "raw", "*")
TOKENS = ("read_tokens", "write_5m_tokens", "write_1h_tokens", "plain_tokens", "output_tokens")

WAIT_S = 20.0
Entry = Mapping[str, Any]


def config(provider: str, store: str) -> dict[str, Any]:
    def model(name: str, upstream: str, **info: Any) -> dict[str, Any]:
        params = {"model": f"openai/{upstream}", "api_base": f"{provider}/v1", "api_key": upstream, "timeout": 0.4}
        return {"model_name": name, "litellm_params": params, "model_info": {"transport": "http", **info}}

    return {
        "model_list": [
            model("main", "main-1", cache_profile="anthropic"), model("main", "main-2", cache_profile="anthropic"),
            model("back", "back-1"), model("raw", "raw-1", mode="passthrough"), model("*", "*"),
        ],
        "general_settings": {"master_key": MASTER},
        "router_settings": {
            "num_retries": 1, "retry_after": 0, "fallbacks": [{"main": ["back"]}], "disable_cooldowns": True,
        },
        "stratiform": {
            "port": 0, "store": store, "teams": TEAMS,
            "prices": {
                name: {key: nanos / 1e9 for key, nanos in zip(NAMES, each, strict=True)}
                for name, each in PRICES.items()
            },
        },
    }  # fmt: skip


class Lines(logging.Handler):
    """Keeps the lines of exchanges."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[Mapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Line):
            self.found.append(record.msg.values)


@asynccontextmanager
async def logged() -> AsyncIterator[Lines]:
    logger, lines = logging.getLogger("stratiform"), Lines()
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


class Breaking:
    """A store that answers only at times. A call that fails may have been carried out."""

    def __init__(self, store: Any, chance: Random) -> None:
        self._store = store
        self._chance = chance
        self.is_out = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._call, found) if iscoroutinefunction(found) and name != "aclose" else found

    async def _call(self, call: Any, *given: Any) -> Any:
        if self.is_out and self._chance.random() < 0.7:
            raise StoreError("gone")
        answer = await call(*given)
        if self.is_out:
            raise StoreError("the answer is lost")
        return answer


@asynccontextmanager
async def outages(client: Any, chance: Random) -> AsyncIterator[None]:
    """The store is away from time to time. It is back at the end, and has every call."""
    real, store = client._store, Breaking(client._store, chance)
    client._store = client._catching_up._store = store

    async def break_off() -> None:
        while True:
            await asyncio.sleep(chance.choice([0.0, 0.02, 0.2]))
            store.is_out = not store.is_out

    task = asyncio.create_task(break_off())
    try:
        yield
    finally:
        task.cancel()
        client._store = client._catching_up._store = real
        await until_async(lambda: client.is_in_step)


class Places:
    """Everything that can be read of one run."""

    def __init__(self, url: str, session: aiohttp.ClientSession, calls: Sequence[Call]) -> None:
        self._url = url
        self._session = session
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.attempts: Mapping[str, int] = {}
        for call in calls:
            self.calls[call.exchange_id].append(call)

    async def admin(self, path: str) -> Any:
        headers = {"authorization": f"Bearer {MASTER}"}
        async with self._session.get(f"{self._url}/admin/{path}", headers=headers) as answer:
            assert answer.status == 200
            return await answer.json()

    async def entries(self, count: int) -> dict[str, Entry]:
        """The ledger, as soon as it has so many entries: they are written although their clients have left."""
        async with asyncio.timeout(WAIT_S):
            while len(found := (await self.admin("entries?limit=1000"))["data"]) < count:
                await asyncio.sleep(0.01)
        assert len({one["exchange_id"] for one in found}) == len(found)
        return {one["exchange_id"]: one for one in found}

    async def samples(self) -> list[Sample]:
        async with self._session.get(f"{self._url}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        return [sample for family in families for sample in family.samples if sample.value]

    def is_of_several_models(self, entry_id: str) -> bool:
        """Whether an exchange called several models, and a call before the last one may be billed. It stands under the
        last model."""
        exchange_id = entry_id.partition("+")[0]
        calls = self.calls[exchange_id]
        is_lost = len(calls) < self.attempts[exchange_id] or any(call.billed is not None for call in calls[:-1])
        return is_lost and len({call.model.partition("-")[0] for call in calls}) != 1  # a call may be lost on its way


@settings(max_examples=examples(40, least=3), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.integers(0, 10**9), st.sampled_from([1, 4, 12]), st.sampled_from(["memory", "sqlite", "outages"]))
def test_every_place_tells_the_same_usage_and_the_same_cost(seed: int, at_once: int, store: str) -> None:
    # A budget that an outage let pass its limit refuses to ask for what is written in the background.
    keys = [key for key in KEYS if store != "outages" or key != "sk-tight"]
    asyncio.run(run(traffic(seed, keys), at_once, store))


async def run(sent: list[Request], at_once: int, store: str) -> None:
    provider = BillingProvider()
    provider.requests = {request.number: request for request in sent}
    with TemporaryDirectory() as folder:
        async with logged() as lines, serving_here(provider) as upstream, aiohttp.ClientSession() as session:
            url = store if store == "memory" else f"sqlite:{folder}/spend.sqlite"
            text = yaml.safe_dump(config(upstream, url))
            built = await composition.build(settings_of(Path(folder), text), encode=bytes_over_four)
            async with serving_here(create_app(built.parts)) as proxy:
                clients = Clients(proxy, session)
                client = built.parts.engine._ports.admission.store_client
                async with outages(client, Random(len(sent[0].body))) if store == "outages" else nullcontext():
                    await clients.send(sent, at_once)
                for request in sent:
                    if request.is_background:
                        await clients.ask("GET", request, f"/v1/responses/resp_{request.number}")
                in_flight = built.parts.metrics.registry
                await until_async(lambda: in_flight.get_sample_value("stratiform_in_flight") == 0)
                places = Places(proxy, session, provider.calls)
                await compare(places, {line["id"]: line for line in lines.found}, clients.told, len(lines.found))


async def compare(places: Places, lines: Mapping[str, Any], told: Mapping[int, Told], count: int) -> None:
    assert len(lines) == count, "each exchange has one line"
    places.attempts = {exchange_id: line["attempts"] for exchange_id, line in lines.items()}
    entries = await places.entries(sum(1 for line in lines.values() if line["attempts"]))
    samples = await places.samples()
    for exchange_id, line in lines.items():
        calls = places.calls[exchange_id]
        if exchange_id in entries:
            # What was lost before a background response was begun has an entry of its own, and the line tells of it.
            is_alone = f"{exchange_id}+0" not in entries
            bill(entries[exchange_id], calls if is_alone else calls[-1:])
            log(entries[exchange_id], line, calls, is_alone=is_alone)
        else:
            assert not line["attempts"]
    assert {exchange_id.partition("+")[0] for exchange_id in entries} <= set(lines)
    for answer in told.values():
        returned(answer, lines, entries)
    await report(places, entries)
    await budgets(places, entries)
    metrics(samples, entries, lines, places)
    await sessions(places, entries, lines)


def tokens(entry: Entry) -> int:
    return sum(int(entry[name]) for name in TOKENS)


def figures(entry: Entry) -> tuple[int, int, int, int]:
    written = entry["write_5m_tokens"] + entry["write_1h_tokens"]
    return tokens(entry) - entry["output_tokens"], entry["output_tokens"], entry["read_tokens"], written


def bill(entry: Entry, calls: Sequence[Call]) -> None:
    """What the provider tells is booked to the last token, and what it does not tell is marked as estimated."""
    billed = [call.billed for call in calls if call.billed is not None]
    if not entry["estimated"]:
        assert figures(entry) == tuple(map(sum, zip((0, 0, 0, 0), *billed, strict=True))), (entry, calls)
        assert entry["cost_usd"] == pytest.approx(sum(call.nanos for call in calls) / 1e9, abs=1e-9), (entry, calls)
    # A call that is cut off on its way does not reach the provider.
    assert entry["model"] in {call.model.partition("-")[0] for call in calls} or (
        not calls and entry["model"] in MODELS
    )


def log(entry: Entry, line: Mapping[str, Any], calls: Sequence[Call], *, is_alone: bool) -> None:
    assert [line.get(name, "") for name in ("team", "deployment", "mode")] == [
        entry["team"], entry["model"], entry["mode"]
    ]  # fmt: skip
    if not is_alone or ("cost_usd" not in line and entry["cost_usd"]):
        return  # the cost of a background response is known later
    prompt, output, read, written = figures(entry)
    assert (line.get("prompt", 0), line.get("output", 0)) == (prompt, output), (entry, line)
    assert (line.get("read", 0), line.get("write", 0)) == (read, written), (entry, line)
    assert (line["status"], line["ending"]) == (entry["status"], entry["ending"]), (entry, line)
    assert line.get("estimated", 0) == entry["estimated"]
    assert float(line.get("cost_usd", 0)) == pytest.approx(entry["cost_usd"], abs=1e-6)


def returned(answer: Told, lines: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
    if not answer.status:
        return
    assert lines[answer.exchange_id]["status"] == answer.status
    if b'"token_usage"' in answer.text:
        used, entry = json.loads(answer.text)["stratiform"]["token_usage"], entries[answer.exchange_id]
        request = used["request"]
        assert (request["prompt_tokens"], request["completion_tokens"]) == figures(entry)[:2]
        assert [request["cost_usd"], request["saved_usd"]] == pytest.approx([entry["cost_usd"], entry["saved_usd"]])
        assert (request["estimated"], used["mode"], used["reason"]) == (
            entry["estimated"], entry["mode"], entry["reason"]
        )  # fmt: skip


async def report(places: Places, entries: Mapping[str, Entry]) -> None:
    found = await places.admin("spend?by=team,key,user,model")
    assert found["total"]["requests"] == len(entries)
    assert found["total"]["cost_usd"] == pytest.approx(sum(entry["cost_usd"] for entry in entries.values()))
    assert found["total"]["estimated_requests"] == sum(entry["estimated"] for entry in entries.values())


async def budgets(places: Places, entries: Mapping[str, Entry]) -> None:
    for budget in (await places.admin("budgets"))["data"]:
        for counter in budget.get("counters", [budget]):
            named = {"team": "team", "key": "key_id", "user": "user", "model": "model"}[budget["scope"]]
            whom = budget["team"] if named == "team" else counter["subject"]
            own = [
                entry for one, entry in entries.items()
                if (entry["team"], entry[named]) == (budget["team"], whom)
            ]  # fmt: skip
            spent = sum(entry["cost_usd"] if "usd" in budget else tokens(entry) for entry in own)
            if budget["scope"] == "model" and any(map(places.is_of_several_models, entries)):
                assert counter["reserved"] == 0
                assert counter["spent"] >= spent - 1e-9
                continue
            assert (counter["spent"], counter["reserved"]) == (pytest.approx(spent, abs=1e-9), 0), (budget, own)


def metrics(samples: Sequence[Sample], entries: Mapping[str, Entry], lines: Mapping[str, Any], places: Places) -> None:
    # An exchange of several models stands under the last of them, and its calls are counted each under its own.
    is_split = any(map(places.is_of_several_models, entries))
    cost, spent, counted, ended = (defaultdict[tuple[str, ...], float](float) for _ in range(4))
    for name, labels, value, *_ in samples:
        match name:
            case "stratiform_cost_usd_total":
                cost[labels["team"], "" if is_split else labels["model"]] += value
            case "stratiform_tokens_total":
                counted[("output" if labels["kind"] == "output" else "prompt",)] += value
            case "stratiform_requests_total":
                ended[(labels["status"],)] += value
    for entry in entries.values():
        spent[entry["team"], "" if is_split else entry["model"]] += entry["cost_usd"]
    assert cost == pytest.approx({place: usd for place, usd in spent.items() if usd})
    output = sum(entry["output_tokens"] for entry in entries.values())
    assert (counted[("prompt",)], counted[("output",)]) == (sum(map(tokens, entries.values())) - output, output)
    assert ended == Counter((str(line["status"]),) for line in lines.values())


async def sessions(places: Places, entries: Mapping[str, Entry], lines: Mapping[str, Any]) -> None:
    spent: Counter[str] = Counter()
    for exchange_id, entry in entries.items():
        if "+" not in exchange_id and lines[exchange_id]["path"] == "/chat/completions" and entry["mode"] == "tier":
            spent[entry["team"]] += round(entry["cost_usd"] * 1e9)

    async def told() -> Counter[str]:
        found: Counter[str] = Counter()
        for session in (await places.admin("sessions?limit=1000"))["data"]:
            found[session["team"]] += round(session["cost_usd"] * 1e9)
        return +found

    async with asyncio.timeout(WAIT_S):
        while await told() != +spent:  # they are written after a while
            await asyncio.sleep(0.1)

"""Teams, keys and budgets through the service that the admin API and the command line share."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from proxy.app.admin import AdminService
from proxy.app.foundation import declared
from proxy.app.settings import load
from proxy.kit.errors import (
    Conflict,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NotReady,
    ProxyError,
    StoreError,
    Unauthorized,
)
from proxy.kit.modes import Mode
from proxy.storage import (
    BudgetRecord,
    Charge,
    KeyRecord,
    LedgerEntry,
    Record,
    RecordKind,
    Refused,
    Reserve,
    Settle,
    TeamRecord,
)
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Declared, Directory, Identity, digest_of
from proxy.teams.bookings import account_of, rule_of, window_at
from proxy.teams.validation import AdminForm, BudgetForm, KeyForm, TeamForm, read_form
from tests.doubles import ManualClock
from tests.examples import for_every

NOW = 1_795_000_000.0
DECLARED = Declared(
    [TeamRecord("red", mode="mark")],
    [KeyRecord("key-declared", digest_of("sk-declared"), "red")],
    [BudgetRecord("red/total", "red", hard=5 * 10**9)],
    master_digest=digest_of("sk-master"),
)


class Office:
    """An admin service, and what it works on."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock(NOW)
        self.directory = Directory(DECLARED, self.store)
        self.service = AdminService(self.directory, self.store, self.clock)

    async def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        return await self.service.answer(method, path, query, {} if body is None else body)

    async def refused(self, kind: type[ProxyError], method: str, path: str, body: object = None, **query: str) -> str:
        with pytest.raises(kind) as caught:
            await self.ask(method, path, body, **query)
        return caught.value.message


@pytest.fixture
def at() -> Office:
    return Office()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("litellm_settings: {max_budget: 5}", "litellm_settings.max_budget"),
        (
            "router_settings: {optional_pre_call_checks: [enforce_model_rate_limits]}",
            "router_settings.optional_pre_call_checks",
        ),
    ],
)
async def test_no_team_is_made_beside_a_limit_of_all_requests(at: Office, text: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{text}\nmodel_list: [{{model_name: m, litellm_params: {{model: embedded/m}}}}]")
    at.directory.declare(declared(load(path)))
    told = await at.refused(Conflict, "POST", "teams", {"name": "blue"})
    assert told.startswith(f"{key} bounds all requests together")


async def test_a_team_is_made_changed_and_deleted(at: Office) -> None:
    made = await at.ask("POST", "teams", {"name": "blue", "models": ["gpt-*"], "requests_per_minute": 60})
    assert made == {
        "object": "team", "name": "blue", "mode": None, "models": ["gpt-*"], "requests_per_minute": 60,
        "tokens_per_minute": None, "client_keys": "refuse", "paths": [], "keys": 0, "budgets": 0, "created_at": NOW,
        "declared": False,
    }  # fmt: skip
    changed = await at.ask("PATCH", "teams/blue", {"mode": "observe", "models": None, "client_keys": "forward"})
    assert (changed["mode"], changed["models"], changed["client_keys"]) == ("observe", [], "forward")
    assert (changed["requests_per_minute"], changed["created_at"]) == (60, NOW)
    assert [team["name"] for team in (await at.ask("GET", "teams"))["data"]] == ["blue", "default", "red"]
    assert (await at.ask("DELETE", "teams/blue"))["deleted"]
    await at.refused(NotFound, "GET", "teams/blue")


async def test_a_team_with_keys_is_deleted_with_them_where_that_is_meant(at: Office) -> None:
    await at.ask("POST", "teams", {"name": "blue"})
    await at.ask("POST", "keys", {"team": "blue"})
    await at.ask("POST", "budgets", {"team": "blue", "usd": 1})
    assert "has keys (1)" in await at.refused(Conflict, "DELETE", "teams/blue")
    assert (await at.ask("DELETE", "teams/blue", force="true"))["keys"] == 1
    assert [key["id"] for key in (await at.ask("GET", "keys"))["data"]] == ["key-declared"]
    assert [budget["id"] for budget in (await at.ask("GET", "budgets"))["data"]] == ["red/total"]


async def test_a_key_is_shown_once_and_works_at_once(at: Office) -> None:
    made = await at.ask(
        "POST", "keys",
        {"team": "red", "user": "alice", "mode": "observe", "tokens_per_minute": 9, "expires_at": "30d"},
    )  # fmt: skip
    secret = made.pop("key")
    assert re.fullmatch(r"sk-strat-[A-Za-z0-9]{43}", secret)
    assert made == await at.ask("GET", f"keys/{made['id']}")
    assert (made["status"], made["expires_at"], made["user"]) == ("active", NOW + 30 * 86400, "alice")
    assert secret not in str(await at.ask("GET", "keys"))
    assert digest_of(secret) not in str(await at.ask("GET", "keys"))
    principal = Identity(at.directory, b"s").admit([("authorization", f"Bearer {secret}")], NOW)
    assert (principal.team, principal.user, principal.mode, principal.key_id) == (
        "red",
        "alice",
        Mode.OBSERVE,
        made["id"],
    )


async def test_a_key_is_revoked_and_stays_in_the_list(at: Office) -> None:
    made = await at.ask("POST", "keys", {"team": "red"})
    at.clock.set(NOW + 5)
    revoked = await at.ask("POST", f"keys/{made['id']}/revoke")
    assert (revoked["status"], revoked["revoked_at"]) == ("revoked", NOW + 5)
    at.clock.set(NOW + 9)
    assert (await at.ask("POST", f"keys/{made['id']}/revoke"))["revoked_at"] == NOW + 5
    assert (await at.ask("DELETE", f"keys/{made['id']}"))["deleted"]


async def test_a_key_never_takes_the_place_of_another(at: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ids have 48 bits: whoever chooses keys can find two of one id.
    monkeypatch.setattr("proxy.app.admin.declared_id", lambda digest: "key-same")
    await at.ask("POST", "keys", {"sha256": digest_of("sk-old")})
    await at.refused(Conflict, "POST", "keys", {"sha256": digest_of("sk-evil")})
    admit = Identity(at.directory, b"s").admit
    assert admit([("authorization", "Bearer sk-old")], NOW).key_id == "key-same"
    with pytest.raises(Unauthorized):
        admit([("authorization", "Bearer sk-evil")], NOW)


async def test_keys_of_another_gateway_are_taken_over_by_their_digest(at: Office) -> None:
    made = await at.ask("POST", "keys", {"sha256": digest_of("sk-old").upper()})
    assert "key" not in made
    assert made["team"] == "default"
    principal = Identity(at.directory, b"s").admit([("authorization", "Bearer sk-old")], NOW)
    assert principal.key_id == made["id"]
    for taken in ("sk-old", "sk-declared", "sk-master"):
        await at.refused(Conflict, "POST", "keys", {"sha256": digest_of(taken)})
    await at.refused(InvalidRequest, "POST", "keys", {"sha256": "abc"})


async def test_expired_keys_say_so(at: Office) -> None:
    made = await at.ask("POST", "keys", {"expires_at": NOW + 10})
    at.clock.set(NOW + 10)
    assert (await at.ask("GET", f"keys/{made['id']}"))["status"] == "expired"
    assert (await at.ask("PATCH", f"keys/{made['id']}", {"expires_at": None}))["status"] == "active"


async def test_a_budget_is_made_and_changed_in_its_unit(at: Office) -> None:
    made = await at.ask(
        "POST", "budgets",
        {"team": "red", "usd": 19.99, "soft_usd": 10, "window": "month", "timezone": "Europe/Berlin",
         "webhook": "https://hooks.example.com/T0/secret"},
    )  # fmt: skip
    assert made["id"] == "red/month"
    assert (made["usd"], made["soft_usd"], made["webhook"]) == (19.99, 10.0, "hooks.example.com")
    record = at.directory.snapshot.budgets["red/month"]
    assert (record.hard, record.soft) == (19_990_000_000, 10_000_000_000)
    changed = await at.ask("PATCH", "budgets/red/month", {"usd": 30, "soft_usd": None})
    assert (changed["usd"], changed["soft_usd"], changed["timezone"]) == (30.0, None, "Europe/Berlin")
    await at.refused(InvalidRequest, "PATCH", "budgets/red/month", {"usd": None})
    await at.refused(InvalidRequest, "PATCH", "budgets/red/month", {"usd": None, "tokens": 5})
    await at.refused(InvalidRequest, "PATCH", "budgets/red/month", {"window": "day"})
    await at.refused(Conflict, "POST", "budgets", {"team": "red", "usd": 1, "window": "month"})
    tokens = await at.ask("POST", "budgets", {"team": "red", "tokens": 7, "scope": "user", "window": "rolling:1d"})
    assert (tokens["id"], tokens["tokens"], tokens["window"]) == (
        "red/user-rolling-86400-tokens",
        7,
        "rolling:86400",
    )
    assert "spent" not in tokens, "each user has its own"
    assert (await at.ask("DELETE", "budgets/red/month"))["deleted"]


async def test_a_budget_says_what_is_left_of_it(at: Office) -> None:
    await at.ask("POST", "budgets", {"team": "red", "usd": 3, "window": "rolling:1h", "name": "hourly"})
    (total,) = [one for one in (await at.ask("GET", "budgets"))["data"] if one["id"] == "red/total"]
    assert (total["spent"], total["reserved"], total["left"], total["resets_at"]) == (0.0, 0.0, 5.0, None)
    charges = [Charge("b:total:-:total", 2 * 10**9)]
    ask = Reserve("x1", "red", charges, NOW + 60, LedgerEntry("x1", NOW, "red"))
    await at.store.reserve(ask, NOW)
    total = await at.ask("GET", "budgets/red/total")
    assert (total["spent"], total["reserved"], total["left"]) == (0.0, 2.0, 3.0)
    hourly = await at.ask("GET", "budgets/red/hourly")
    assert NOW < hourly["resets_at"] <= NOW + 3600
    assert hourly["left"] == 3.0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "teams/red", {"mode": "tier"}),
        ("DELETE", "teams/red", None),
        ("PATCH", "teams/default", {"mode": "tier"}),
        ("DELETE", "teams/default", None),
        ("POST", "teams", {"name": "red"}),
        ("PATCH", "keys/key-declared", {"user": "x"}),
        ("POST", "keys/key-declared/revoke", None),
        ("DELETE", "keys/key-declared", None),
        ("PATCH", "budgets/red/total", {"usd": 100}),
        ("DELETE", "budgets/red/total", None),
    ],
)
async def test_what_the_file_declares_only_the_file_changes(at: Office, method: str, path: str, body: object) -> None:
    before = at.directory.snapshot
    await at.refused(Conflict, method, path, body)
    assert at.directory.snapshot.teams == before.teams
    assert at.directory.snapshot.budgets == before.budgets


@pytest.mark.parametrize(
    ("kind", "method", "path", "body"),
    [
        (InvalidRequest, "POST", "teams", {}),
        (InvalidRequest, "POST", "teams", {"name": "a/b"}),
        (InvalidRequest, "POST", "teams", {"name": None}),
        (InvalidRequest, "POST", "teams", {"name": "a", "mode": "turbo"}),
        (InvalidRequest, "POST", "teams", {"name": "a", "colour": "blue"}),
        (InvalidRequest, "POST", "teams", {"name": "a", "models": "gpt-5"}),
        (InvalidRequest, "POST", "teams", {"name": "a", "requests_per_minute": 0}),
        (InvalidRequest, "POST", "teams", {"name": "a", "requests_per_minute": True}),
        (InvalidRequest, "POST", "teams", [1]),
        (InvalidRequest, "POST", "teams", "text"),
        (InvalidRequest, "POST", "keys", {"team": "nobody"}),
        (InvalidRequest, "POST", "keys", {"team": None}),
        (InvalidRequest, "POST", "keys", {"user": "two\nlines"}),
        (InvalidRequest, "POST", "keys", {"expires_at": "soon"}),
        (InvalidRequest, "POST", "keys", {"key": "sk-mine"}),
        (InvalidRequest, "POST", "budgets", {"usd": 1}),
        (InvalidRequest, "POST", "budgets", {"team": "red"}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": -1}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "tokens": 1}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "soft_usd": 2}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "window": "fortnight"}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "timezone": "Mars"}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "scope": "planet"}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "subject": "alice"}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "usd": 1, "webhook": "file:///etc/passwd"}),
        (InvalidRequest, "POST", "budgets", {"team": "red", "tokens": 1.5}),
        (NotFound, "GET", "keys/key-nobody", None),
        (NotFound, "PATCH", "keys/key-nobody", {}),
        (NotFound, "DELETE", "budgets/red/none", None),
        (NotFound, "GET", "users", None),
        (NotFound, "GET", "", None),
        (NotFound, "GET", "keys/key-declared/secret", None),
        (MethodNotAllowed, "PUT", "keys", None),
        (MethodNotAllowed, "POST", "keys/key-declared", None),
        (MethodNotAllowed, "GET", "keys/key-declared/revoke", None),
        (MethodNotAllowed, "POST", "spend", None),
    ],
)
async def test_a_wrong_operation_is_refused(
    at: Office, kind: type[ProxyError], method: str, path: str, body: object
) -> None:
    assert await at.refused(kind, method, path, body)


async def test_unknown_parameters_of_a_query_are_refused(at: Office) -> None:
    assert len((await at.ask("GET", "keys", team="red"))["data"]) == 1
    assert (await at.ask("GET", "keys", team="blue"))["data"] == []
    await at.refused(InvalidRequest, "GET", "keys", tema="red")


async def test_a_change_by_another_process_is_seen(at: Office) -> None:
    await at.store.put(TeamRecord("green"))
    await at.refused(Conflict, "POST", "teams", {"name": "green"})


async def test_a_store_that_is_away_is_said_to_be() -> None:
    class Away(MemoryStore):
        async def directory_version(self) -> int:
            raise StoreError("no connection")

    store = Away()
    service = AdminService(Directory(DECLARED, store), store, ManualClock(NOW))
    with pytest.raises(NotReady, match="does not answer") as caught:
        await service.answer("GET", "teams")
    assert (caught.value.status, caught.value.code) == (503, "store_unavailable")


class Shared(MemoryStore):
    """A store that two services share. While the first one calls it for the ``call``-th time, the second one does its
    whole work."""

    def __init__(self) -> None:
        super().__init__()
        self.call = 0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def directory_version(self) -> int:
        await self._turn()
        return await super().directory_version()

    async def put(self, record: Record, version: int | None = None) -> bool:
        await self._turn()
        return await super().put(record, version)

    async def remove(self, kind: RecordKind, name: str) -> bool:
        await self._turn()
        return await super().remove(kind, name)

    async def _turn(self) -> None:
        self.call -= 1
        if self.call == 0 and self.meanwhile is not None:
            await self.meanwhile()


OPERATIONS: list[tuple[str, str, dict[str, object]]] = [
    ("POST", "keys/key-a/revoke", {}),
    ("PATCH", "keys/key-a", {"note": "x"}),
    ("PATCH", "keys/key-a", {"models": ["m"]}),
    ("DELETE", "keys/key-a", {}),
    ("PATCH", "budgets/red/b", {"usd": 7, "expected": 5}),
    ("PATCH", "budgets/red/b", {"usd": 9, "expected": 5}),
    ("DELETE", "budgets/red/b", {}),
    ("POST", "teams", {"name": "blue", "mode": "mark"}),
    ("POST", "teams", {"name": "blue", "mode": "tier"}),
    ("DELETE", "teams/green", {}),
    ("PATCH", "teams/green", {"models": ["m"]}),
]


@for_every(product(OPERATIONS, OPERATIONS))
def test_of_two_operations_at_once_one_comes_first(
    first: tuple[str, str, dict[str, object]], second: tuple[str, str, dict[str, object]]
) -> None:
    """Also where two workers do them. A key that one of them ends never works again because of the other one."""

    async def main() -> None:
        serial = [await _done((first, second), 0), await _done((second, first), 0)]
        for call in range(1, 6):
            assert await _done((first, second), call) in serial

    asyncio.run(main())


async def _done(operations: Sequence[tuple[str, str, dict[str, object]]], call: int) -> object:
    """What the store holds after these operations of two services, and which of them were done, as a set of operations.
    The second one is done at that call of the first one; 0: behind it."""
    store, done = Shared(), set()
    for record in (
        TeamRecord("green"),
        KeyRecord("key-a", "a" * 64, "red"),
        BudgetRecord("red/b", "red", hard=5 * 10**9),
    ):
        await store.put(record)

    async def work(number: int) -> None:
        method, path, body = operations[number]
        service = AdminService(Directory(DECLARED, store), store, ManualClock(NOW))
        with suppress(Conflict, NotFound):
            await service.answer(method, path, {}, body)
            done.add(repr(operations[number]))

    store.call, store.meanwhile = call, partial(work, 1)
    await work(0)
    if store.call > 0 or not call:
        store.call = 0
        await work(1)
    return [done, *[await store.records(kind) for kind in (TeamRecord, KeyRecord, BudgetRecord)]]


@for_every(product(("keys", "budgets"), range(1, 9)))
def test_what_is_made_for_a_team_while_it_is_deleted_goes_with_it(what: str, call: int) -> None:
    """Also where another worker makes it. A key without a team would work again for a later team of that name."""
    store, made = Shared(), list[object]()

    async def meanwhile() -> None:
        there = AdminService(Directory(DECLARED, store), store, ManualClock(NOW))
        with suppress(InvalidRequest):
            form = {"team": "green", **({"usd": 5} if what == "budgets" else {})}
            made.append(await there.answer("POST", what, {}, form))

    async def main() -> None:
        await store.put(TeamRecord("green"))
        await store.put(KeyRecord("key-a", "a" * 64, "green"))
        here = AdminService(Directory(DECLARED, store), store, ManualClock(NOW))
        store.call, store.meanwhile = call, meanwhile
        gone = await here.answer("DELETE", "teams/green", {"force": "true"}, {})
        assert gone["keys"] == 1 + (len(made) if what == "keys" else 0)
        assert [*await store.records(KeyRecord), *await store.records(BudgetRecord)] == []

    asyncio.run(main())


async def test_the_same_team_twice_at_once_is_made_once(at: Office) -> None:
    results = await asyncio.gather(
        *(at.ask("POST", "teams", {"name": "blue", "mode": mode}) for mode in ("mark", "tier")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [dict, Conflict]
    assert (await at.ask("GET", "teams/blue"))["mode"] == "mark"


async def test_a_correction_names_a_counter_and_an_amount(at: Office) -> None:
    await at.ask("POST", "budgets", {"team": "red", "scope": "key", "tokens": 9, "name": "keys", "window": "day"})
    total, keys = "budgets/red/total/set-spent", "budgets/red/keys/set-spent"
    assert "missing" in await at.refused(InvalidRequest, "POST", total)
    assert "one counter" in await at.refused(InvalidRequest, "POST", total, {"spent": 1, "subject": "x"})
    assert "each key" in await at.refused(InvalidRequest, "POST", keys, {"spent": 1})
    assert "whole number" in await at.refused(InvalidRequest, "POST", keys, {"spent": 1.5, "subject": "key-1"})
    assert "between" in await at.refused(InvalidRequest, "POST", keys, {"spent": -1, "subject": "key-1"})
    assert "between" in await at.refused(InvalidRequest, "POST", total, {"spent": -0.5})
    assert "POST" in await at.refused(MethodNotAllowed, "GET", total)
    assert "no such budget" in await at.refused(NotFound, "POST", "budgets/red/none/set-spent", {"spent": 1})


@pytest.mark.parametrize("window", ["total", "hour", "day", "rolling:3600"])
async def test_what_was_corrected_is_what_requests_are_checked_against(at: Office, window: str) -> None:
    await at.ask("POST", "budgets", {"team": "red", "usd": 8, "name": "b", "window": window})
    (budget,) = [one for one in at.directory.snapshot.budgets.values() if one.id == "red/b"]
    rule = rule_of(budget, "")
    ago = window_at(window, "UTC", NOW - 300)
    spent = Charge(account_of(rule, ago.name), 3 * 10**9)
    await at.store.settle(Settle(LedgerEntry("x", NOW - 300, "red"), [spent]), NOW)
    found = await at.ask("POST", "budgets/red/b/set-spent", {"spent": 5})
    assert (found["spent_before"], found["spent"], found["left"]) == (3.0, 5.0, 3.0)
    now = window_at(window, "UTC", NOW)
    within = [account_of(rule, name) for name in now.within]
    charge = Charge(account_of(rule, now.name), 4 * 10**9, budget.hard, within=within)
    refused = await at.store.reserve(Reserve("y", "red", [charge], NOW + 60, LedgerEntry("y", NOW, "red")), NOW)
    assert isinstance(refused, Refused)
    assert refused.balance.spent == 5 * 10**9


async def test_a_store_is_accepted_once_it_was_exchanged(at: Office) -> None:
    first = await at.ask("GET", "store")
    assert (first["lost"], len(first["epoch"])) == ([], 16)
    assert (await at.ask("POST", "store/accept"))["accepted"] == []
    await at.store._do("write", lambda connection: connection.execute("DELETE FROM fact"))
    assert (await at.ask("GET", "store"))["lost"] == [first["epoch"]]
    await at.ask("POST", "budgets/red/total/set-spent", {"spent": 2})
    assert "restored:red:b:total:-:" in await at.store.facts()
    assert (await at.ask("POST", "store/accept"))["accepted"] == [first["epoch"]]
    assert (await at.ask("GET", "store"))["lost"] == []
    assert "accepts" in await at.refused(MethodNotAllowed, "GET", "store/accept")
    assert "read" in await at.refused(MethodNotAllowed, "POST", "store")


@pytest.mark.parametrize("form", [TeamForm, KeyForm, BudgetForm])
def test_a_field_that_there_is_not_is_refused_with_those_that_there_are(form: type[AdminForm]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_form({"expires": "90d"}, form)
    assert str(caught.value).startswith("The body is not right: Object contains unknown field `expires`; known are ")
    assert [name for name in form.__struct_fields__ if name not in str(caught.value)] == []

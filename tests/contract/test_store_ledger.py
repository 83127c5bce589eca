"""The ledger of every engine of the store."""

from proxy.storage import Charge, LedgerEntry, Settle, SpendQuery, Store
from tests.contract.store_calls import T, balance, end, entry, ledger, on_each_store


@on_each_store
async def test_entries_of_the_ledger_are_kept_whole(store: Store) -> None:
    full = LedgerEntry(
        "x", T + 0.25, "red", "key-1", "ann", "claude", "tier", "ordered", 200, "completed", 1, 2, 3, 4, 5,
        10**15, -(10**12), 1234, True, "changed", 10**9,
    )  # fmt: skip
    await store.settle(Settle(full, ()), T)
    assert await ledger(store) == [full]


@on_each_store
async def test_entries_of_the_ledger_come_in_pages(store: Store) -> None:
    names = [f"x{i}" for i in range(7)]
    for i, name in enumerate(reversed(names)):
        await store.settle(end(name, at=T + (6 - i) // 3, team="blue" if name == "x4" else "red"), T)
    found: list[str] = []
    since, after = T, ""
    while page := await store.entries(since, T + 100, after, limit=2):
        found += [one.exchange_id for one in page]
        since, after = page[-1].at, page[-1].exchange_id
    assert found == names
    assert [one.exchange_id for one in await store.entries(T + 1, T + 2)] == ["x3", "x4", "x5"]
    assert [one.exchange_id for one in await store.entries(T + 1, T + 2, team="red")] == ["x3", "x5"]


@on_each_store
async def test_reports_of_spend_add_up_by_what_is_asked(store: Store) -> None:
    day = 86400.0
    midnight = 19_676 * day  # 2023-11-15
    rows = [
        entry("1", 10, midnight - 1, key_id="k1", user="ann", model="m", saved=5, read_tokens=1),
        entry("2", 20, midnight, key_id="k1", user="bob", model="m", saved=-2, write_5m_tokens=2),
        entry("3", 40, midnight + 1, key_id="k2", user="ann", model="n", estimated=True, write_1h_tokens=3),
        entry("4", 80, midnight + 2, "blue", plain_tokens=4, output_tokens=5),
    ]
    for row in rows:
        await store.settle(Settle(row, ()), T)

    async def costs(*by: str, **more: object) -> dict[tuple[str, ...], int]:
        asked = SpendQuery(0.0, 1e12, by, **more)  # type: ignore[arg-type]
        return {tuple(row.group.values()): row.cost for row in await store.spend(asked)}

    assert await costs() == {(): 150}
    assert list((await costs("team")).items()) == [(("blue",), 80), (("red",), 70)]
    assert await costs("day") == {("2023-11-14",): 10, ("2023-11-15",): 140}
    assert await costs("day", utc_offset_s=1) == {("2023-11-15",): 150}
    assert await costs("key", "user", team="red") == {("k1", "ann"): 10, ("k1", "bob"): 20, ("k2", "ann"): 40}
    assert await costs("model", user="ann") == {("m",): 10, ("n",): 40}
    assert await costs("model", key_id="k2", model="n") == {("n",): 40}
    assert await costs(team="green") == {}
    (row,) = await store.spend(SpendQuery(midnight - 1, midnight + 2))
    assert (row.requests, row.read_tokens, row.write_tokens, row.plain_tokens) == (3, 1, 5, 0)
    assert (row.output_tokens, row.cost, row.saved, row.estimated) == (0, 70, 3, 1)
    assert await store.spend(SpendQuery(0.0, 1.0)) == []


@on_each_store
async def test_names_of_teams_and_users_are_never_read_as_code(store: Store) -> None:
    team = "'; DROP TABLE entry; --"
    await store.settle(end("x", Charge("a{b}'\"\0*", 1), team=team, user="ünï\ncode"), T)
    assert await balance(store, "a{b}'\"\0*", team) == (1, 0, 0)
    assert (await ledger(store))[0].user == "ünï\ncode"

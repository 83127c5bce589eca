"""What is Redis' own: a server that is away, slow, emptied or of another version, and what bounds its keys."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from proxy.kit.errors import StoreError
from proxy.storage import Balance, Charge, Granted, LedgerEntry, Release, Reserve, Settle, TeamRecord
from proxy.storage.redis import RedisStore
from tests.contract import store_calls
from tests.contract.store_calls import T
from tests.contract.stores import redis_store
from tests.redis_server import RedisServer, redis_cluster, redis_server

_HANGS_S = 60.0


def ask(name: str, amount: int = 3) -> Reserve:
    return store_calls.ask(name, Charge("a", amount, 100))


def end(name: str, amount: int = 2) -> Settle:
    return store_calls.end(name, Charge("a", amount))


async def test_a_restart_of_the_server_loses_nothing_and_costs_no_call(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await asyncio.gather(*(store.settle(end(str(i)), T) for i in range(20)))
        server.kill()
        answers = await asyncio.gather(*(store.settle(end(f"away-{i}"), T) for i in range(100)), return_exceptions=True)
        assert all(isinstance(answer, StoreError) for answer in answers), answers
        server.start()
        # Every pooled connection is dead, and the server knows no script any more.
        found = await asyncio.gather(*(store.settle(end(str(i)), T) for i in range(20, 40)))
        assert max(balance.spent for (balance,) in found) == 80
        assert len(await store.entries(0.0, 1e12)) == 40


async def test_a_server_that_hangs_fails_calls_in_time_and_takes_none_twice(server: RedisServer) -> None:
    store = RedisStore(server.url, timeout_s=0.2)
    async with redis_store(server.url) as patient:
        await _reached(store)
        with server.paused():
            async with asyncio.timeout(_HANGS_S):
                failed = await asyncio.gather(
                    store.settle(end("x"), T), store.reserve(ask("y"), T), store.reserve(ask("z"), T),
                    return_exceptions=True,
                )  # fmt: skip
            assert all(isinstance(error, StoreError) for error in failed), failed
        # What was sent before the pause is carried out behind it; sent again, nothing changes.
        async with asyncio.timeout(_HANGS_S):
            while await patient.settle(end("x"), T) != [Balance("a", 2, 6)]:
                await asyncio.sleep(0.01)
        assert isinstance(await patient.reserve(ask("y"), T), Granted)
        assert await patient.settle(end("y"), T) == [Balance("a", 4, 3)]
        await patient.carry_out("red", [Release("z", "red")], T)
        assert await patient.balance("red", Charge("a", 0), T) == Balance("a", 4, 0)
    await store.aclose()


async def _reached(store: RedisStore) -> None:
    """The store has connections, and has reserved for "x". In its hurry it may need several attempts."""
    async with asyncio.timeout(_HANGS_S):
        is_reached = False
        while not is_reached:
            calls = (store.balance("red", Charge("a", 0), T) for _ in range(3))
            found = await asyncio.gather(store.reserve(ask("x"), T), *calls, return_exceptions=True)
            is_reached = not any(isinstance(each, StoreError) for each in found)


async def test_the_state_of_layouts_is_not_waited_for(server: RedisServer) -> None:
    store = RedisStore(server.url, timeout_s=3600.0, state_timeout_s=0.05)
    async with redis_store(server.url) as patient:
        await patient.save("s", {"a": b"1"}, 60.0, T)
        with server.paused():
            async with asyncio.timeout(_HANGS_S):
                with pytest.raises(StoreError):
                    await store.load("s", ["a"], T)
        assert await patient.load("s", ["a"], T) == [b"1"]
    await store.aclose()


async def test_a_store_is_made_before_its_server_is_there(server: RedisServer) -> None:
    server.kill()
    store = RedisStore(server.url)
    with pytest.raises(StoreError):
        await store.ping()
    server.start()
    await store.ping()
    await store.aclose()
    await store.aclose()


async def test_scripts_that_the_server_forgot_are_brought_again(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.settle(end("x"), T)
        assert server.call("SCRIPT", "FLUSH") == "+OK"
        assert await store.settle(end("y"), T) == [Balance("a", 4, 0)]


async def test_a_step_is_one_round_trip(server: RedisServer) -> None:
    def commands() -> int:
        return int(server.ask("INFO", "commandstats").split("cmdstat_evalsha:calls=")[1].split(",")[0])

    def processed() -> int:
        return int(server.ask("INFO", "stats").split("total_commands_processed:")[1].split("\r")[0])

    async with redis_store(server.url) as store:
        for _ in range(2):  # scripts are loaded, the team is known
            await store.reserve(ask("x"), T)
            await store.settle(end("x"), T)
            await store.save("s", {"a": b"1"}, 60.0, T)
            await store.load("s", ["a"], T)
        before, calls = processed(), commands()
        await store.reserve(ask("y"), T)
        await store.settle(end("y"), T)
        await store.save("s", {"a": b"1", "b": b"2"}, 60.0, T)
        await store.load("s", ["a", "b"], T)
        # Commands of scripts count, too: what matters is that four were sent, beside the two INFOs.
        assert commands() - calls == 4
        assert processed() > before


async def test_a_store_of_a_later_version_is_not_touched(server: RedisServer) -> None:
    assert server.call("SET", "stratiform:schema", "99") == "+OK"
    async with redis_store(server.url) as store:
        with pytest.raises(StoreError, match="the store has version 99, this program knows 1"):
            await store.settle(end("x"), T)
    assert server.call("DBSIZE") == ":1"


async def test_a_wrong_password_is_a_store_error_that_does_not_say_it(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", password="open-sesame") as server:
        with pytest.raises(StoreError) as caught:
            await RedisStore(f"redis://:swordfish@127.0.0.1:{server.port}/0").ping()
        assert "swordfish" not in str(caught.value)
        async with redis_store(f"redis://:open-sesame@127.0.0.1:{server.port}/0") as store:
            await store.ping()


async def test_what_is_no_redis_is_a_store_error() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(StoreError):
            await RedisStore(f"redis://127.0.0.1:{port}/0").ping()


async def test_calls_that_wait_for_others_go_together(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.settle(end("first"), T)
        assert server.call("SCRIPT", "FLUSH") == "+OK"
        assert server.call("SET", "stratiform:{t:blue}:accounts", "damaged") == "+OK"
        settling = [store.settle(end(str(i)), T) for i in range(300)]
        answers = await asyncio.gather(
            *settling[:100], store.balance("blue", Charge("a", 0), T), *settling[100:], return_exceptions=True
        )
        (failed,) = [answer for answer in answers if isinstance(answer, BaseException)]
        assert isinstance(failed, StoreError)
        assert "WRONGTYPE" in str(failed), "one that fails takes none of the others with it"
        assert (await store.balance("red", Charge("a", 0), T)).spent == 2 * 301
        assert len(await store.entries(0.0, 1e12, team="red")) == 301


async def test_a_caller_that_leaves_while_it_waits_takes_no_other_with_it(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.ping()
        tasks = [asyncio.ensure_future(store.settle(end(str(i)), T)) for i in range(100)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert not any(isinstance(answer, StoreError) for answer in answers)
        assert not any(isinstance(answer, BaseException) for answer in answers[1::2])
        await store.settle(end("later"), T)


# A server that answers, and takes nothing


async def test_a_server_that_only_reads_since_a_failover_is_away_until_it_is_the_primary_again(
    server: RedisServer, tmp_path: Path
) -> None:
    with redis_server(tmp_path / "other") as other:
        async with redis_store(server.url) as store:
            await store.settle(end("before"), T)
            assert server.call("REPLICAOF", "127.0.0.1", str(other.port)) == "+OK"
            for refused in (store.settle(end("x"), T), store.reserve(ask("y"), T), store.ping()):
                with pytest.raises(StoreError, match="read only|READONLY|LOADING|MASTERDOWN"):
                    await refused
            assert server.call("REPLICAOF", "NO", "ONE") == "+OK"
            await store.ping()
            await store.settle(end("after"), T)


async def test_a_replica_that_has_lost_its_primary_is_away(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.settle(end("before"), T)
        assert server.call("CONFIG", "SET", "replica-serve-stale-data", "no") == "+OK"
        assert server.call("REPLICAOF", "127.0.0.1", "9") == "+OK"
        for refused in (store.settle(end("x"), T), store.ping()):
            with pytest.raises(StoreError):
                await refused
        assert server.call("REPLICAOF", "NO", "ONE") == "+OK"
        await store.ping()
        await store.settle(end("after"), T)


async def test_a_full_server_takes_nothing_and_is_still_read(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.reserve(ask("x", 3), T)
        assert server.call("CONFIG", "SET", "maxmemory", "100kb") == "+OK"
        for refused in (
            store.settle(end("x"), T), store.carry_out("red", [Release("x", "red")], T),
            store.carry_out("red", [end("x")], T), store.ping(),
        ):  # fmt: skip
            with pytest.raises(StoreError, match="maxmemory|OOM"):
                await refused
        assert await store.balance("red", Charge("a", 0), T) == Balance("a", 0, 3)
        assert await store.entries(0.0, 1e12) == []
        assert server.call("CONFIG", "SET", "maxmemory", "0") == "+OK"
        await store.ping()
        assert await store.settle(end("x"), T) == [Balance("a", 2, 0)]


async def test_a_server_that_may_evict_budgets_is_reported(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for bound, policy, is_told in (
        ("0", "allkeys-lru", False), ("1gb", "volatile-lru", False), ("1gb", "noeviction", False),
        ("1gb", "allkeys-lru", True),
    ):  # fmt: skip
        server.call("CONFIG", "SET", "maxmemory", bound, "maxmemory-policy", policy)
        async with redis_store(server.url) as store:
            await store.ping()
        assert (policy in caplog.text) is is_told


async def test_a_server_that_runs_a_long_script_is_away_until_it_has_ended(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.settle(end("before"), T)
        assert server.call("CONFIG", "SET", "busy-reply-threshold", "10") == "+OK"
        endless = asyncio.ensure_future(asyncio.to_thread(server.call, "EVAL", "while true do end", "0"))
        async with asyncio.timeout(_HANGS_S):
            while not (await asyncio.to_thread(server.call, "PING")).startswith("-BUSY"):
                await asyncio.sleep(0.01)
        for refused in (store.settle(end("x"), T), store.ping()):
            with pytest.raises(StoreError, match="BUSY|busy"):
                await refused
        assert server.call("SCRIPT", "KILL") == "+OK"
        await endless
        await store.ping()
        await store.settle(end("x"), T)


async def test_a_ping_waits_for_no_other_call_and_replaces_connections_that_are_dead(server: RedisServer) -> None:
    async with relay_to(server.port) as relay:
        store = RedisStore(f"redis://127.0.0.1:{relay.port}/0", timeout_s=30.0)
        await asyncio.gather(*(store.settle(end(str(i)), T) for i in range(20)))
        relay.silence()
        stuck = [asyncio.ensure_future(store.settle(end(f"stuck-{i}"), T)) for i in range(20)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(_HANGS_S):
            await store.ping()
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        async with asyncio.timeout(_HANGS_S):
            await asyncio.gather(*(store.settle(end(f"new-{i}"), T) for i in range(20)))
        relay.cut()  # else the calls that are stuck hold up the end of the store
        await store.aclose()


class Relay:
    """An address in front of servers. New connections lead to ``target``, as a name does after a failover; those that
    there are stay where they are, and can be silenced for good."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._silenced: list[asyncio.Event] = []
        self._lines: list[asyncio.StreamWriter] = []

    def silence(self) -> None:
        """A firewall forgets the connections that there are: what is sent on them is never answered."""
        for connection in self._silenced:
            connection.set()

    def cut(self) -> None:
        """Close the connections that there are."""
        for line in self._lines:
            line.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection's bytes to and fro."""
        is_silent = asyncio.Event()
        self._silenced.append(is_silent)
        self._lines.append(writer)
        behind, ahead = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_copy(reader, ahead, is_silent), _copy(behind, writer, is_silent))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_silent: asyncio.Event) -> None:
    with suppress(ConnectionError):
        while found := await source.read(65536):
            if not is_silent.is_set():
                sink.write(found)
    sink.close()


@asynccontextmanager
async def relay_to(target: int) -> AsyncIterator[Relay]:
    """A relay that listens."""
    relay = Relay(target)
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    async with listener:
        relay.port = listener.sockets[0].getsockname()[1]
        yield relay


async def test_after_a_failover_the_name_is_followed_to_the_new_primary(server: RedisServer, tmp_path: Path) -> None:
    with redis_server(tmp_path / "other") as other:
        async with relay_to(server.port) as relay:
            store = RedisStore(f"redis://127.0.0.1:{relay.port}/0", timeout_s=10.0)
            await asyncio.gather(*(store.settle(end(str(i)), T) for i in range(20)))
            relay.target = other.port
            assert server.call("REPLICAOF", "127.0.0.1", str(other.port)) == "+OK"
            with pytest.raises(StoreError):
                await store.settle(end("refused"), T)
            async with asyncio.timeout(_HANGS_S):
                while True:
                    with suppress(StoreError):
                        await store.settle(end("again"), T)
                        break
            assert [entry.exchange_id for entry in await store.entries(0.0, 1e12, team="red")] == ["again"]
            assert other.call("HLEN", "stratiform:{t:red}:entries") == ":1"
            await store.aclose()


@pytest.mark.slow
async def test_a_node_of_a_cluster_that_does_not_answer_holds_up_no_other(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as nodes:
        store = RedisStore(nodes[0].url, timeout_s=20.0)
        teams = [f"team-{number}" for number in range(40)]
        ends = {team: Settle(LedgerEntry(team, T, team), [Charge("a", 1)]) for team in teams}
        for each in ends.values():
            await store.settle(each, T)
        keys = nodes[2].ask("KEYS", "stratiform:{t:*}:entries")
        paused = [team for team in teams if f"{{t:{team}}}" in keys]
        assert 0 < len(paused) < len(teams)
        with nodes[2].paused():
            stuck = [asyncio.ensure_future(store.settle(ends[paused[n % len(paused)]], T)) for n in range(50)]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(_HANGS_S):
                await asyncio.gather(*(store.settle(ends[team], T) for team in teams if team not in paused))
            assert not any(one.done() for one in stuck)
        await asyncio.gather(*stuck)
        for node in nodes:
            node.kill()
        for _ in range(2):
            with pytest.raises(StoreError):
                await store.settle(ends[teams[0]], T)
            with pytest.raises(StoreError):
                await store.ping()
        await store.aclose()


# What bounds the keys


async def test_a_scope_keeps_what_was_saved_last(server: RedisServer) -> None:
    store = RedisStore(server.url, scope_bytes=2000)
    for name in "abcd":
        await store.save("s", {name: bytes(300)}, 60.0, T)
    await store.save("other", {"a": bytes(1300)}, 60.0, T)
    found = await store.load("s", list("abcd"), T)
    assert [blob is not None for blob in found] == [False, True, True, True]
    await store.save("s", {"b": bytes(300)}, 60.0, T + 1)
    await store.save("s", {"e": bytes(300)}, 60.0, T + 1)
    found = await store.load("s", list("abcde"), T)
    assert [blob is not None for blob in found] == [False, True, False, True, True]
    await store.save("s", {"huge": bytes(2000)}, 60.0, T + 2)
    assert await store.load("s", list("bde"), T) == [None] * 3
    assert server.call("HGET", "stratiform:{s:s}:sizes", "") == "$1"
    assert await store.load("other", ["a"], T) == [bytes(1300)]
    await store.aclose()


SHAPES = {
    "empty": (65, 0), "marks": (65, 11), "small": (65, 100), "long names": (400, 20), "medium": (65, 1_030),
    "above a size class": (65, 5_130), "large": (65, 41_000), "very large": (65, 330_000),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_scope_takes_no_more_memory_than_is_promised(server: RedisServer, shape: str) -> None:
    most = 2 << 20
    name_bytes, blob_bytes = SHAPES[shape]
    count = 3 * most // (400 + 3 * name_bytes + blob_bytes)

    store = RedisStore(server.url, state_timeout_s=10.0, scope_bytes=most)
    for start in range(0, count, 50):
        names = [f"{number:065}".ljust(name_bytes, "x") for number in range(start, start + 50)]
        await store.save("s", dict.fromkeys(names, bytes(blob_bytes)), 86400.0, T + start)
    await store.aclose()
    keys = [f"stratiform:{{s:s}}:{name}" for name in ("blobs", "until", "sizes")]
    taken = sum(int(server.call("MEMORY", "USAGE", key, "SAMPLES", "0").removeprefix(":")) for key in keys)
    assert most // 2 < taken <= most


async def test_every_key_of_a_scope_ends(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        await store.save("s", {"a": b"1"}, 30.0, T)
        await store.save("s", {"b": b"1"}, 60.0, T)
    for name in ("blobs", "until", "sizes"):
        assert 50 < int(server.call("TTL", f"stratiform:{{s:s}}:{name}").removeprefix(":")) <= 60


async def test_a_team_leaves_nothing_behind_but_its_counters_and_ledger(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        for i in range(30):
            charges = [Charge("total", 1), Charge(f"minute-{i}", 1, keep_s=60.0)]
            await store.reserve(Reserve(str(i), "red", charges, T + 60, LedgerEntry(str(i), T, "red")), T)
            match i % 3:
                case 0:
                    await store.settle(Settle(LedgerEntry(str(i), T, "red"), charges), T)
                case 1:
                    await store.carry_out("red", [Release(str(i), "red")], T)
            await store.claim("red", str(i), 60.0, T)
        assert await store.expire(T + 61) == 10
        await store.expire(T + 86400 * 2)
        await store.forget_entries(T + 1)
        await store.put(TeamRecord("red"))
    keys = server.ask("KEYS", "*")
    left = {line.rpartition("}:")[2] for line in keys.split("\r\n") if line.startswith("stratiform:{t:red}")}
    assert left == {"accounts"}
    assert server.call("HLEN", "stratiform:{t:red}:accounts") == ":2"

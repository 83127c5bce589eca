"""The layout state of one store: what requests wait for, and blobs that are loaded and saved together."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pytest

from proxy.kit.errors import StoreError
from proxy.services.layout_state import (
    LEAST_WAIT_S,
    MOST_WAIT_S,
    SLICE_S,
    WAIT_S_PER_BYTE,
    SharedBlobs,
    SharedLayoutStore,
)
from proxy.storage.sqlite import MemoryStore
from tests.unit.services.parts import Recorder
from tests.waiting import until_async

NOW = 1_700_000_000.0
SMALL, LARGE = 1_000, 1_000_000


@dataclass
class Curious:
    """Wants names, and others once it has been told something."""

    wants: list[str]
    leads: dict[str, str] = field(default_factory=dict)
    told: list[Mapping[str, bytes]] = field(default_factory=list)
    is_at_home: bool = False

    def names(self) -> Sequence[str]:
        known = {name for blobs in self.told for name in blobs}
        return [*self.wants, *(after for name, after in self.leads.items() if name in known)]

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        self.told.append(blobs)

    def is_known(self) -> bool:
        return self.is_at_home


async def test_what_one_keeps_another_recalls() -> None:
    store, failures = Recorder(), list[str]()
    one, two = (SharedLayoutStore(store, failures.append, is_shared=True) for _ in range(2))
    one.keep("red", {"a": b"1", "b": b"2"}, NOW)
    await asyncio.wait_for(store.saved.wait(), 60)
    curious = Curious(["a", "c"], {"a": "b"})
    await two.recall("red", curious, NOW, LARGE)
    assert curious.told == [{"a": b"1"}, {"b": b"2"}]
    assert store.calls == [("save", ["a", "b"]), ("load", ["a", "c"]), ("load", ["b"])]
    stranger = Curious(["a"])
    await two.recall("blue", stranger, NOW, LARGE)
    assert stranger.told == []
    assert failures == []
    await one.aclose()
    await two.aclose()


async def test_what_comes_back_as_it_was_is_not_read_again() -> None:
    store = Recorder()
    one, two = (SharedLayoutStore(store, list[str]().append, is_shared=True) for _ in range(2))
    large, larger = bytes(1000), bytes(2000)
    one.keep("red", {"a": large}, NOW)
    await asyncio.wait_for(store.saved.wait(), 60)
    told = []
    for state in (one, two, two):
        curious = Curious(["a"])
        await state.recall("red", curious, NOW, LARGE)
        told.append(curious.told)
    assert told == [[], [{"a": large}], []]
    await store.save("red", {"a": larger}, 60.0, NOW)
    curious = Curious(["a"])
    await one.recall("red", curious, NOW, LARGE)
    assert curious.told == [{"a": larger}]


async def test_a_crowd_is_served_by_a_handful_of_calls() -> None:
    store, failures = Recorder(), list[str]()
    names = {f"mark {n}": f"session {n}" for n in range(300)}
    await store.save("red", {name: name.encode() for pair in names.items() for name in pair}, 60.0, NOW)
    await store.save("blue", {"cohort": b"another"}, 60.0, NOW)
    store.calls.clear()
    state = SharedLayoutStore(store, failures.append, is_shared=False)
    crowd = [Curious([name, "cohort"], {name: after}) for name, after in names.items()]
    neighbour = Curious(["cohort"])
    await asyncio.gather(
        *(state.recall("red", one, NOW, LARGE) for one in crowd), state.recall("blue", neighbour, NOW, LARGE)
    )
    for one, (name, after) in zip(crowd, names.items(), strict=True):
        assert one.told == [{name: name.encode()}, {after: after.encode()}]
    assert neighbour.told == [{"cohort": b"another"}]
    assert len(store.calls) == 3, "one call a scope, and one for what the answers led to"
    assert [names.count("cohort") for _, names in store.calls].count(1) == 2, "once for each scope"
    assert failures == []
    await state.aclose()


async def test_what_is_under_way_is_not_asked_for_again() -> None:
    store = Recorder()
    await store.save("red", {"a": b"1"}, 60.0, NOW)
    store.calls.clear()
    store.answers.clear()
    state = SharedLayoutStore(store, list[str]().append, is_shared=True)
    crowd = [Curious(["a"]) for _ in range(3)]
    recalls = []
    for one in crowd:
        recalls.append(asyncio.ensure_future(state.recall("red", one, NOW, LARGE)))
        for _ in range(5):
            await asyncio.sleep(0)
    store.answers.set()
    await asyncio.gather(*recalls)
    assert store.calls == [("load", ["a"])]
    assert [one.told for one in crowd] == [[{"a": b"1"}]] * 3
    await state.aclose()


async def test_more_scopes_than_calls_are_all_served() -> None:
    store = Recorder()
    scopes = [f"s{n}" for n in range(50)]
    for scope in scopes:
        await store.save(scope, {"a": scope.encode()}, 60.0, NOW)
    state = SharedLayoutStore(store, list[str]().append, is_shared=True)
    crowd = [Curious(["a"]) for _ in scopes]
    await asyncio.gather(*(state.recall(scope, one, NOW, LARGE) for scope, one in zip(scopes, crowd, strict=True)))
    assert [one.told for one in crowd] == [[{"a": scope.encode()}] for scope in scopes]
    await state.aclose()


async def _waits(wanted: Curious, size_bytes: int) -> int:
    """A request waits for a store that says nothing; its bytes, when it does so no longer."""
    store, failures = Recorder(), list[str]()
    store.answers.clear()
    state = SharedLayoutStore(store, failures.append, is_shared=True)
    await state.recall("red", wanted, NOW, size_bytes)
    assert failures == ([] if wanted.is_at_home else ["load"]), "where the session is known nothing was lost"
    await state.aclose()
    return size_bytes


@pytest.mark.slow
async def test_a_request_waits_as_long_as_its_prefix_is_worth() -> None:
    half = int(MOST_WAIT_S / WAIT_S_PER_BYTE / 2)
    waits = [_waits(Curious(["a"]), size) for size in (LARGE, half, SMALL)]
    at_home = _waits(Curious(["a"], is_at_home=True), LARGE + 1)
    ended = [await one for one in asyncio.as_completed([*waits, at_home])]
    assert [size for size in ended if size <= LARGE] == [SMALL, half, LARGE], "the larger one waits longer"
    assert ended.index(LARGE + 1) < ended.index(half), "a session that is known here has little to lose"


async def test_the_time_of_a_busy_event_loop_is_not_the_store_s() -> None:
    store, failures = Recorder(), list[str]()
    await store.save("red", {"a": b"1"}, 60.0, NOW)
    store.answers.clear()
    state = SharedLayoutStore(store, failures.append, is_shared=True)
    curious = Curious(["a"])
    loop = asyncio.get_running_loop()
    # The store answers in the event loop's second turn; each turn takes longer than the request would wait.
    loop.call_soon(time.sleep, 2 * LEAST_WAIT_S)
    loop.call_soon(loop.call_soon, time.sleep, 2 * LEAST_WAIT_S)
    loop.call_soon(loop.call_soon, store.answers.set)
    await state.recall("red", curious, NOW, SMALL)
    assert curious.told == [{"a": b"1"}]
    assert failures == []
    await state.aclose()


async def test_an_answer_that_comes_late_is_taken_over() -> None:
    store, failures = Recorder(), list[str]()
    await store.save("red", {"a": b"1", "b": b"2"}, 60.0, NOW)
    store.calls.clear()
    store.answers.clear()
    state = SharedLayoutStore(store, failures.append, is_shared=False)
    curious = Curious(["a"], {"a": "b"})
    await state.recall("red", curious, NOW, SMALL)
    assert curious.told == [], "the request has gone on"
    assert failures == ["load"]
    store.answers.set()
    await until_async(lambda: len(curious.told) == 2)
    assert curious.told == [{"a": b"1"}, {"b": b"2"}]
    await state.aclose()


async def test_a_silent_store_is_waited_for_once_and_asked_again() -> None:
    store, failures = Recorder(), list[str]()
    await store.save("red", {"z": b"1"}, 60.0, NOW)
    store.answers.clear()
    state = SharedLayoutStore(store, failures.append, is_shared=True)
    for number in range(500):
        await state.recall("red", Curious([f"n{number}"]), NOW, SMALL)
    assert len(failures) <= 5, "the first one has waited for all of them"
    # Whoever has more to lose goes on waiting, and is there when the store is back.
    patient = Curious(["z"])
    waiting = asyncio.ensure_future(state.recall("red", patient, NOW, LARGE))
    await asyncio.sleep(0)
    store.answers.set()
    await waiting
    assert patient.told == [{"z": b"1"}]
    await state.aclose()


async def test_a_name_whose_load_failed_is_asked_for_again() -> None:
    store, failures = Recorder(), list[str]()
    await store.save("red", {"a": b"1"}, 60.0, NOW)
    store.fails = True
    state = SharedLayoutStore(store, failures.append, is_shared=False)
    curious = Curious(["a"])
    await state.recall("red", curious, NOW, LARGE)
    assert curious.told == []
    assert failures == ["load"]
    store.fails = False
    while not curious.told:  # a store that is away is left alone for a moment only
        await state.recall("red", curious, NOW, LARGE)
        await asyncio.sleep(0.005)
    calls = list(store.calls)
    await state.recall("red", curious, NOW, LARGE)
    assert store.calls == calls, "the store has answered"
    await state.aclose()


async def test_a_store_that_is_away_is_left_alone() -> None:
    store, failures = Recorder(), list[str]()
    store.fails = True
    state = SharedLayoutStore(store, failures.append, is_shared=True)
    for _ in range(1000):
        await state.recall("red", Curious(["a"]), NOW, LARGE)
    assert 1 <= len(store.calls) < 500, "one in a tenth of a second"
    await state.aclose()


async def test_a_store_that_takes_nothing_is_still_read() -> None:
    store, failures = _ReadOnly(), list[str]()
    await MemoryStore.save(store, "red", {"a": b"1"}, 60.0, NOW)
    state = SharedLayoutStore(store, failures.append, is_shared=True)
    state.keep("red", {"b": b"2"}, NOW)
    await until_async(lambda: failures)
    curious = Curious(["a"])
    await state.recall("red", curious, NOW, SMALL)
    assert curious.told == [{"a": b"1"}]
    await state.aclose()
    assert set(failures) == {"save"}


class _ReadOnly(Recorder):
    """A replica, or a server without memory."""

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        raise StoreError("READONLY")


async def test_what_could_not_be_written_is_written_later() -> None:
    store, failures = Recorder(), list[str]()
    store.fails = True
    state = SharedLayoutStore(store, failures.append, is_shared=True)
    state.keep("red", {"a": b"1", "b": b"1"}, NOW)
    await until_async(lambda: failures)
    state.keep("red", {"a": b"2"}, NOW)
    store.fails = False
    await state.aclose()
    assert await store.load("red", ["a", "b"], NOW) == [b"2", b"1"]
    assert set(failures) == {"save"}


async def test_a_burst_of_writes_is_written_whole() -> None:
    store = Recorder()
    state = SharedLayoutStore(store, list[str]().append, is_shared=True)
    for number in range(2_000):
        state.keep(f"s{number % 7}", {f"n{number}": b"1", "cohort": b"%d" % number}, NOW)
    await state.aclose()
    for number in range(2_000):
        assert await store.load(f"s{number % 7}", [f"n{number}"], NOW) == [b"1"]
    assert await store.load("s1", ["cohort"], NOW) == [b"1996"]
    assert max(len(names) for _, names in store.calls) <= 500


async def test_a_store_of_ones_own_is_asked_once_and_written_behind() -> None:
    store, failures = Recorder(), list[str]()
    state = SharedLayoutStore(store, failures.append, is_shared=False)
    for version in (b"1", b"2", b"3"):
        await state.recall("red", Curious(["a", "z"]), NOW, SMALL)
        state.keep("red", {"a": version}, NOW)
    assert store.calls == [("load", ["a", "z"])]
    await state.aclose()
    assert store.calls[1:] == [("save", ["a"])]
    again = SharedLayoutStore(store, failures.append, is_shared=False)
    curious = Curious(["a"])
    await again.recall("red", curious, NOW, SMALL)
    assert curious.told == [{"a": b"3"}]
    await again.aclose()


NOW = 1_700_000_000.0


class Scope(str):
    """The name of a client that counts how often it is looked up."""

    __slots__ = ()
    looked_up: ClassVar[list[int]] = [0]

    def __hash__(self) -> int:
        self.looked_up[0] += 1
        return super().__hash__()

    __eq__ = str.__eq__


def blobs_of(store: MemoryStore) -> SharedBlobs:
    return SharedBlobs(store, list[str]().append, is_shared=True)


async def test_what_comes_in_the_turn_in_which_writing_ends_is_written_too() -> None:
    store = MemoryStore()
    blobs, loop = blobs_of(store), asyncio.get_running_loop()
    blobs.put("red", {"a": b"1"}, NOW)
    writing = asyncio.all_tasks() - {asyncio.current_task()}
    ended = asyncio.Event()

    def watch() -> None:
        if all(task.done() for task in writing):
            blobs.put("red", {"b": b"2"}, NOW)
            ended.set()
        else:
            loop.call_soon(watch)

    watch()
    await ended.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert await store.load("red", ["a", "b"], NOW) == [b"1", b"2"]


def test_a_crowd_of_clients_is_gone_through_once() -> None:
    async def look_ups(clients: int) -> int:
        blobs, before = blobs_of(MemoryStore()), Scope.looked_up[0]
        await asyncio.gather(*(blobs.load(Scope(f"s{n}"), ["a", "b"], NOW) for n in range(clients)))
        return Scope.looked_up[0] - before

    assert asyncio.run(look_ups(800)) < 5 * asyncio.run(look_ups(200))


async def test_a_large_client_is_asked_for_in_parts_and_behind_the_others() -> None:
    class Recorder(MemoryStore):
        calls: ClassVar[list[tuple[str, int]]] = []

        async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
            self.calls.append((scope, len(names)))
            return await super().load(scope, names, now)

    store = Recorder()
    blobs = blobs_of(store)
    await store.save("red", {f"n{n}": b"%d" % n for n in range(1_200)}, 60.0, NOW)
    found, _ = await asyncio.gather(
        blobs.load("red", [f"n{n}" for n in range(1_200)], NOW), blobs.load("blue", ["a"], NOW)
    )
    assert found is not None
    assert len(found) == 1_200
    assert store.calls == [("red", 500), ("blue", 1), ("red", 500), ("red", 200)]


async def test_no_more_than_so_many_ask_a_silent_store_without_waiting() -> None:
    blobs, begun = blobs_of(MemoryStore()), list[int]()

    async def learn(number: int) -> None:
        begun.append(number)
        await asyncio.get_running_loop().create_future()

    for number in range(200):
        assert not await blobs.recall(partial(learn, number), 0.0)
    await asyncio.sleep(0)
    assert len(begun) == 64
    await blobs.aclose()


async def test_after_its_end_nothing_is_counted() -> None:
    class Silent(MemoryStore):
        async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
            return await asyncio.get_running_loop().create_future()

    blobs, loop = blobs_of(Silent()), asyncio.get_running_loop()
    for n in range(40):
        await blobs.recall(partial(blobs.load, f"s{n}", ["a"], NOW), 1e-9)
    await blobs.aclose()
    timers: list[str] = []
    call_later = loop.call_later

    def noted(delay: float, callback: Callable[..., object], *given: object) -> asyncio.TimerHandle:
        timers.append(getattr(callback, "__qualname__", ""))
        return call_later(delay, callback, *given)

    loop.call_later = noted  # type: ignore[method-assign, assignment]
    await asyncio.sleep(5 * SLICE_S)
    assert [name for name in timers if name.startswith("SharedBlobs")] == []


async def test_an_answer_that_lacks_a_name_is_none_and_holds_nobody_up() -> None:
    class Short(MemoryStore):
        async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
            return [b"1"]

    blobs, found = blobs_of(Short()), list[object]()

    async def learn() -> None:
        found.append(await blobs.load("red", ["a", "b"], NOW))

    assert await blobs.recall(learn, 60 * SLICE_S)
    assert found == [None]
    assert await blobs.load("red", ["a"], NOW) == {"a": b"1"}
    await blobs.aclose()

"""What layouts have learnt, in a store: asked for ahead of a request, written behind it, never waited for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.layout_state import LayoutState
from proxy.ports import StoreError
from proxy.state.memory import MemoryStore

NOW = 1_700_000_000.0


@dataclass
class Curious:
    """Wants names, and others once it has been told something."""

    wants: list[str]
    leads: dict[str, str] = field(default_factory=dict)
    told: list[Mapping[str, bytes]] = field(default_factory=list)

    def names(self) -> Sequence[str]:
        known = {name for blobs in self.told for name in blobs}
        return [*self.wants, *(after for name, after in self.leads.items() if name in known)]

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        self.told.append(blobs)


class Recorder(MemoryStore):
    """A store whose calls are counted, and that can hang or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[str]]] = []
        self.hangs = self.fails = False
        self.saved = asyncio.Event()

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        self.calls.append(("load", list(names)))
        await self._trouble()
        return await super().load(scope, names, now)

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        self.calls.append(("save", sorted(blobs)))
        await self._trouble()
        await super().save(scope, blobs, ttl_s, now)
        self.saved.set()

    async def _trouble(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise StoreError("gone fishing")


def test_what_one_keeps_another_recalls() -> None:
    async def main() -> None:
        store, failures = Recorder(), list[str]()
        one, two = (LayoutState(store, failures.append, is_shared=True) for _ in range(2))
        one.keep("red", {"a": b"1", "b": b"2"}, NOW)
        await asyncio.wait_for(store.saved.wait(), 5)
        curious = Curious(["a", "c"], {"a": "b"})
        await two.recall("red", curious, NOW)
        assert curious.told == [{"a": b"1"}, {"b": b"2"}]
        assert store.calls == [("save", ["a", "b"]), ("load", ["a", "c"]), ("load", ["b"])]
        stranger = Curious(["a"])
        await two.recall("blue", stranger, NOW)
        assert stranger.told == []
        assert failures == []
        await one.aclose()
        await two.aclose()

    asyncio.run(main())


def test_what_comes_back_as_it_was_is_not_read_again() -> None:
    async def main() -> None:
        store = Recorder()
        one, two = (LayoutState(store, list[str]().append, is_shared=True) for _ in range(2))
        large, larger = bytes(1000), bytes(2000)
        one.keep("red", {"a": large}, NOW)
        await asyncio.wait_for(store.saved.wait(), 5)
        told = []
        for state in (one, two, two):
            curious = Curious(["a"])
            await state.recall("red", curious, NOW)
            told.append(curious.told)
        assert told == [[], [{"a": large}], []]
        await store.save("red", {"a": larger}, 60.0, NOW)
        curious = Curious(["a"])
        await one.recall("red", curious, NOW)
        assert curious.told == [{"a": larger}]

    asyncio.run(main())


def test_a_store_that_hangs_is_left_alone_for_a_moment() -> None:
    async def main() -> None:
        store, failures = Recorder(), list[str]()
        store.hangs = True
        state = LayoutState(store, failures.append, is_shared=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(20):
            await state.recall("red", Curious(["a"]), NOW)
            state.keep("red", {"a": b"1"}, NOW)
        assert loop.time() - began < 0.5
        assert failures == ["load"]
        assert len(store.calls) == 1
        await state.aclose()

    asyncio.run(main())


def test_a_failure_is_counted_and_contained() -> None:
    async def main() -> None:
        store, failures = Recorder(), list[str]()
        store.fails = True
        state = LayoutState(store, failures.append, is_shared=True)
        state.keep("red", {"a": b"1"}, NOW)
        await state.aclose()
        await state.recall("red", Curious(["a"]), NOW)
        assert failures == ["save"]

    asyncio.run(main())


def test_a_store_of_ones_own_is_asked_once_and_written_behind() -> None:
    async def main() -> None:
        store, failures = Recorder(), list[str]()
        state = LayoutState(store, failures.append, is_shared=False)
        for version in (b"1", b"2", b"3"):
            await state.recall("red", Curious(["a", "z"]), NOW)
            state.keep("red", {"a": version}, NOW)
        assert store.calls == [("load", ["a", "z"])]
        await state.aclose()
        assert store.calls[1:] == [("save", ["a"])]
        again = LayoutState(store, failures.append, is_shared=False)
        curious = Curious(["a"])
        await again.recall("red", curious, NOW)
        assert curious.told == [{"a": b"3"}]
        await again.aclose()

    asyncio.run(main())

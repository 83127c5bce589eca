"""Conversations with live panels go on in another process where one has left them, on every store."""

from pathlib import Path

import pytest

from proxy.storage import Store
from tests.contract.store_calls import on_each_store
from tests.contract.stores import DURABLE, ENGINES
from tests.live_workers import NOW, SCENE, Worker, alone, board_alone, settled, told

LONG = 20_000
"""Words that are worth waiting for a store on a machine that does much at once."""


@on_each_store
async def test_workers_that_take_turns_send_what_one_sends(store: Store) -> None:
    workers = [Worker(store, words=LONG) for _ in range(3)]
    sent = []
    for turn in range(len(SCENE)):
        worker = workers[turn % 3]
        sent += await told(worker, range(turn, turn + 1))
        await settled(worker)
    assert sent == await alone(LONG)
    assert workers[(len(SCENE) - 1) % 3].board() == await board_alone(), "its costs, too"
    assert [worker.failures for worker in workers] == [[], [], []]
    for worker in workers:
        await worker.aclose()


@on_each_store
async def test_another_key_finds_nothing(store: Store) -> None:
    one, two = Worker(store, words=LONG), Worker(store, words=LONG)
    await told(one)
    await settled(one)
    two.now = one.now
    expected = await Worker(now=one.now, words=LONG).ask(3, SCENE[3])
    for scope in ("other", "key:panels", ""):
        assert await two.ask(3, SCENE[3], scope) == expected


@pytest.mark.parametrize("engine", DURABLE)
async def test_after_a_restart_no_panel_moves(engine: str, tmp_path: Path) -> None:
    sent = []
    for turns in (range(4), range(4, 5), range(5, len(SCENE))):
        async with ENGINES[engine](tmp_path) as store:
            worker = Worker(store, is_shared=engine == "redis", words=LONG)
            sent += await told(worker, turns)
            await worker.aclose()
    assert sent == await alone(LONG)


async def test_without_a_store_a_restart_moves_panels() -> None:
    """The scene shows a difference: else the tests above would hold of anything."""

    assert await told(Worker(now=NOW, words=LONG), range(4, len(SCENE))) != (await alone(LONG))[4:]

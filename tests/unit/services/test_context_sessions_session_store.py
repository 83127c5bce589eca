"""What conversations with live panels remember, in a store: asked for ahead of a request, and written behind it."""

from dataclasses import replace

import pytest

from proxy.context.history.compaction import Compaction
from proxy.protocol.response.usage import Usage
from proxy.services.context_sessions import RENEWED_S
from tests.live_workers import NOW, SCENE, Worker, alone, settled, told
from tests.unit.services.parts import Recorder

COMPACTION = Compaction(2, 3, b"d" * 16, "They met in the garden.")


@pytest.fixture
def store() -> Recorder:
    return Recorder()


async def compacted(worker: Worker) -> None:
    """The worker has compacted its conversation, behind an answer."""
    session = worker.assembler.sessions.session("key", "main")
    session.state = replace(session.state, compaction=COMPACTION)
    worker.sessions.keep("key", "main", session, worker.now)
    await settled(worker)


async def test_a_request_asks_for_its_session_once_and_leaves_its_panels_and_its_costs(store: Recorder) -> None:
    worker = Worker(store)
    await worker.ask(0, SCENE[0])
    await settled(worker)
    ((scope, names),) = store.loads
    assert scope == "key:panels"
    assert sorted(name.partition(":")[0] for name in names) == ["board", "compaction", "costs"]
    assert sorted(part for parts in store.parts() for part in parts) == ["board", "costs"]


async def test_a_session_has_the_same_name_everywhere_and_its_words_do_not_stand_in_it(store: Recorder) -> None:
    for _ in range(2):
        await Worker(store).ask(0, SCENE[0], session="the secret of our " + "x" * 400)
    assert store.loads[0] == store.loads[1]
    assert all("secret" not in name and len(name) < 60 for name in store.loads[0][1])


async def test_no_text_of_a_client_is_kept_where_texts_may_not_be(store: Recorder) -> None:
    worker, other = Worker(store, keeps_texts=False), Worker(store, keeps_texts=False)
    await told(worker)
    await compacted(worker)
    blobs = b"".join(store.blobs)
    assert b"garden" not in blobs
    assert await other.ask(6, SCENE[6])
    assert other.assembler.sessions.session("key", "main").state.compaction is None
    await worker.ask(6, SCENE[6])
    assert worker.assembler.sessions.session("key", "main").state.compaction == COMPACTION, "in memory it stays"


async def test_a_compaction_without_a_text_is_kept_in_any_case(store: Recorder) -> None:
    worker, other = Worker(store, keeps_texts=False), Worker(store, keeps_texts=False)
    session = worker.assembler.sessions.session("key", "main")
    session.state = replace(session.state, compaction=replace(COMPACTION, summary=""))
    worker.sessions.keep("key", "main", session, worker.now)
    await settled(worker)
    await other.ask(0, SCENE[0])
    assert other.assembler.sessions.session("key", "main").state.compaction == session.state.compaction


async def test_another_worker_goes_on_with_a_compaction(store: Recorder) -> None:
    one, two = Worker(store), Worker(store)
    await told(two, range(1))
    await told(one, range(1, 2))
    await compacted(one)
    await told(two, range(2, 3))
    assert two.assembler.sessions.session("key", "main").state.compaction == COMPACTION


async def test_a_worker_that_settles_late_does_not_write_over_the_next_request(store: Recorder) -> None:
    one, two = Worker(store), Worker(store)
    sent = await told(one, range(2))
    one.now = NOW + 40
    under_way = await one.sent(2, SCENE[2])
    await settled(one)
    sent += [under_way.body, *await told(two, range(3, 4))]
    await settled(two)
    one.now = NOW + 65
    under_way.counted(Usage(1_000, 10))
    await settled(one)
    assert store.parts()[-1] == ["costs"]
    sent += await told(Worker(store), range(4, len(SCENE)))
    assert sent == await alone()


async def test_a_compaction_in_use_is_written_again_some_times_a_day(store: Recorder) -> None:
    worker = Worker(store)
    await worker.ask(0, SCENE[0])
    await compacted(worker)
    store.saves.clear()
    worker.now += 60
    await worker.ask(0, SCENE[0])
    await settled(worker)
    assert not any("compaction" in parts for parts in store.parts())
    worker.now += RENEWED_S
    await worker.ask(0, SCENE[0])
    await settled(worker)
    assert any("compaction" in parts for parts in store.parts())


async def test_requests_without_panels_do_not_ask_and_leave_nothing(store: Recorder) -> None:
    worker = Worker(store)
    await worker.ask(0, None)
    await settled(worker)
    assert (store.loads, store.saves) == ([], [])


async def test_in_a_store_of_its_own_a_worker_asks_once(store: Recorder) -> None:
    worker = Worker(store, is_shared=False)
    await told(worker)
    assert len(store.loads) == 1
    await worker.aclose()
    assert [parts for parts in store.parts() if "board" in parts]


async def test_a_store_that_is_silent_is_waited_for_a_short_time_and_counted(store: Recorder) -> None:
    store.answers.clear()
    worker = Worker(store)
    assert await worker.ask(0, SCENE[0]) == (await alone())[0]
    assert worker.failures == ["load"]
    store.answers.set()
    await worker.aclose()


@pytest.mark.parametrize("blob", [b"", b"\0", b"\x93\x01\xcb", b"x" * 2_000_000])
async def test_what_a_store_answers_harms_no_request(store: Recorder, blob: bytes) -> None:
    one = Worker(store)
    await told(one, range(2))
    await settled(one)
    ((scope, names), *_) = store.loads
    await store.save(scope, dict.fromkeys(names, blob), 60.0, NOW)
    assert await told(one, range(2, 4)) == (await alone())[2:4], "what this process knows counts"
    await settled(one)
    await store.save(scope, dict.fromkeys(names, blob), 60.0, NOW)
    assert await Worker(store).ask(0, SCENE[0]) == (await alone())[0]
    assert one.failures == []


async def test_a_store_that_is_away_is_not_asked_for_each_request(
    store: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.services.layout_state._PAUSE_S", 3600.0)

    worker = Worker(store)
    store.fails = True
    for turn in range(3):
        worker.now = NOW + 70 + turn
        await worker.ask(3, SCENE[3])
    assert len(store.loads) == 1
    await worker.aclose()

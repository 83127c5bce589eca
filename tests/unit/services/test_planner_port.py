"""What a worker leaves in the store for other workers, and in the file of fingerprints."""

import asyncio
import fcntl
import json
import resource
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from proxy.engine.exchange import Principal
from proxy.engine.ports import PlanRequest
from proxy.kit.modes import Mode
from proxy.kit.tasks import drain
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan
from proxy.planner.record import read_line
from proxy.protocol.providers import OPENAI
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import Unreadable
from proxy.services import planner_port as fingerprint_file
from proxy.services.layout_state import SharedLayoutStore
from proxy.services.planner_port import FingerprintFile, Planning
from proxy.storage.sqlite import MemoryStore
from tests.doubles import make_deployment
from tests.fidelity.chats import File
from tests.talk import RECOGNISERS, TINY, assistant, chat, lines, sent, shown, system, user

FILES = [File("a.py", lines(60, "a")), File("b.py", lines(60, "b"))]


def bare(messages: list[Any]) -> list[tuple[str, str]]:
    """The texts of messages without markers."""
    texts = [
        m["content"] if isinstance(m["content"], str) else "".join(part["text"] for part in m["content"])
        for m in messages
    ]
    return [(m["role"], text) for m, text in zip(messages, texts, strict=True)]


def worker(store: MemoryStore) -> Planning:
    """One of several workers that share a store."""
    return Planning(
        TierPlanner(bytes_over_four, RECOGNISERS), SharedLayoutStore(store, lambda what: None, is_shared=True)
    )


async def planned(planning: Planning, body: dict[str, Any], now: float) -> Plan:
    parsed = planning.parse(json.dumps(body).encode())
    deployment = make_deployment(name="m", profile=TINY)
    return await planning.plan(PlanRequest(parsed, deployment, Principal(scope="red"), Mode.TIER, now))


async def test_another_worker_knows_a_layout_before_its_answer_has_ended() -> None:
    """A client may leave an answer when the thinking in it is signed, and a worker may die. The next request binds what
    was sent nevertheless."""
    head = system(lines(40, "rule"))
    first = [head, *shown(*FILES), user("q")]
    answer = assistant("Hm.", thinking_blocks=[{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}])

    store = MemoryStore()
    one, two = worker(store), worker(store)
    edited = File("b.py", lines(60, "b") + "edit\n")
    plan = await planned(one, chat(head, *shown(edited, FILES[0]), user("before")), 100.0)
    one.on_accepted(plan, 101.0)
    one.on_completed(plan, None, 102.0)
    running = await planned(one, chat(*first), 110.0)
    front = bare(sent(running)["messages"])
    assert front != bare(first)
    one.on_accepted(running, 111.0)
    await drain(one.state._blobs._writing)
    later = await planned(two, chat(*first, answer, user("go on")), 112.0)
    assert bare(sent(later)["messages"])[: len(front)] == front
    await one.aclose()
    await two.aclose()


def secret_plan() -> Plan:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "A secret question."}]}).encode()
    return TierPlanner(bytes_over_four, ()).plan(body, Route("k", "m", "m", OPENAI), Mode.OBSERVE, 5.0)


def written(path: Path, count: int = 1) -> None:
    async def run() -> None:
        file = FingerprintFile(path)
        for _ in range(count):
            file.add(secret_plan(), Usage(10, 2, read=4))
        await file.aclose()

    asyncio.run(run())


def test_each_request_is_a_line_that_only_the_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "new" / "prints.jsonl"
    written(path, 3)
    written(path)
    lines = path.read_bytes().splitlines()
    found = [read_line(line) for line in lines]
    assert len(found) == 4
    assert {one.record.digests for one in found} == {found[0].record.digests}
    assert found[0].tokens == (10, 2, 4, 0, 0)
    assert b"secret" not in path.read_bytes()
    for file in (path, path.with_name("prints.jsonl.key")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == ["prints.jsonl", "prints.jsonl.key"]


def test_what_comes_in_the_turn_in_which_writing_ends_is_written_too(tmp_path: Path) -> None:
    path = tmp_path / "prints.jsonl"

    async def run() -> None:
        file, loop, ended = FingerprintFile(path), asyncio.get_running_loop(), asyncio.Event()
        file.add(secret_plan(), None)
        writing = asyncio.all_tasks() - {asyncio.current_task()}

        def watch() -> None:
            if all(task.done() for task in writing):
                file.add(secret_plan(), None)
                ended.set()
            else:
                loop.call_soon(watch)

        watch()
        await ended.wait()
        await file.aclose()

    asyncio.run(run())
    assert len(path.read_bytes().splitlines()) == 2


def test_files_that_others_could_read_are_taken_from_them(tmp_path: Path) -> None:
    path = tmp_path / "prints.jsonl"
    key = path.with_name("prints.jsonl.key")
    path.touch(0o644)
    key.write_bytes(b"k" * 32)
    key.chmod(0o644)
    written(path)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, key)] == [0o600, 0o600]
    assert len(path.read_bytes().splitlines()) == 1


def test_a_large_file_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint_file, "MOST_BYTES", 100)
    path = tmp_path / "prints.jsonl"
    written(path)
    written(path)
    assert path.with_name("prints.jsonl.1").exists()
    assert len(path.read_bytes().splitlines()) == 1


def test_two_workers_that_make_room_at_once_keep_the_full_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prints.jsonl"
    written(path)
    full = path.read_bytes()
    monkeypatch.setattr(fingerprint_file, "MOST_BYTES", len(full) - 1)
    with open(tmp_path / "prints.jsonl.key", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        late = threading.Thread(target=FingerprintFile(path)._make_room)
        late.start()
        late.join(0.2)
        assert late.is_alive()
        path.replace(tmp_path / "prints.jsonl.1")
        path.write_bytes(b"new")
    late.join(60)
    assert (tmp_path / "prints.jsonl.1").read_bytes() == full
    assert path.read_bytes() == b"new"


def test_a_disk_that_takes_nothing_costs_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    written(tmp_path / "file" / "prints.jsonl", 2)
    assert caplog.text.count("fingerprints cannot be written") == 1


def test_a_line_that_the_disk_takes_in_part_costs_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The limit on the size of files stands for a full disk."""
    path = tmp_path / "prints.jsonl"
    written(path)
    size = path.stat().st_size

    async def run() -> None:
        file = FingerprintFile(path)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + size // 2, limits[1]))
        try:
            file.add(secret_plan(), None)
            await file.aclose()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        file.add(secret_plan(), None)
        await file.aclose()

    asyncio.run(run())
    assert "File too large" in caplog.text or "No space left" in caplog.text
    lines = path.read_bytes().splitlines()
    assert [is_whole(line) for line in lines] == [True, False, True]


def is_whole(line: bytes) -> bool:
    try:
        read_line(line)
    except Unreadable:
        return False
    return True


@pytest.mark.parametrize("key", [b"", b"short"])
def test_nothing_is_written_with_a_key_that_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: bytes
) -> None:
    path = tmp_path / "prints.jsonl"
    (tmp_path / "prints.jsonl.key").write_bytes(key)
    written(path)
    assert not path.exists()
    assert "is no key: remove it" in caplog.text

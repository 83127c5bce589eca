"""Background tasks."""

import asyncio
import gc
import logging

import pytest

from proxy.tasks import Tasks, drain, spawn


def test_a_spawned_task_is_held_until_it_ends() -> None:
    async def main() -> None:
        tasks: Tasks = set()
        go = asyncio.Event()
        done = []

        async def work() -> None:
            await go.wait()
            done.append(1)

        spawn(work(), tasks)
        await asyncio.sleep(0)
        gc.collect()
        assert len(tasks) == 1
        go.set()
        await drain(tasks)
        assert (done, tasks) == ([1], set())

    asyncio.run(main())


def test_drain_waits_for_tasks_that_tasks_spawn() -> None:
    async def main() -> None:
        tasks: Tasks = set()
        done = []

        async def second() -> None:
            await asyncio.sleep(0)
            done.append("second")

        async def first() -> None:
            spawn(second(), tasks)

        spawn(first(), tasks)
        await drain(tasks)
        assert done == ["second"]

    asyncio.run(main())


def test_a_failure_is_logged_and_a_cancellation_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks: Tasks = set()

        async def fail() -> None:
            raise ValueError("broken")

        spawn(fail(), tasks)
        spawn(asyncio.sleep(60), tasks).cancel()
        await drain(tasks)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert [r.message for r in caplog.records] == ["a background task failed"]

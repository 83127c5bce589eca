"""Background tasks."""

import asyncio
import gc
import logging
import time

import pytest

from proxy.kit.tasks import Tasks, cancel, drain, repeat, spawn, within


async def test_a_spawned_task_is_held_until_it_ends() -> None:
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


async def test_drain_waits_for_tasks_that_tasks_spawn() -> None:
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


async def test_what_takes_longer_than_the_limit_is_given_up_and_an_error_is_handed_on() -> None:
    with pytest.raises(TimeoutError):
        async with within(0.02):
            await asyncio.sleep(3600)
    with pytest.raises(ValueError, match="bad"):
        async with within(3600.0):
            raise ValueError("bad")


async def test_a_loop_that_is_late_does_not_give_up_what_has_answered() -> None:
    limit_s = 0.05
    async with within(limit_s):
        for _ in range(10):
            await asyncio.sleep(0)
            time.sleep(limit_s / 2)  # the worker is busy with something else


def test_what_is_repeated_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks: Tasks = set()
        rounds = 0
        again = asyncio.Event()

        async def work() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                raise ValueError("broken")
            again.set()

        spawn(repeat(0.0, work), tasks)
        await asyncio.wait_for(again.wait(), 30)
        await cancel(tasks)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert [record.message for record in caplog.records] == ["a background task failed, and goes on"]

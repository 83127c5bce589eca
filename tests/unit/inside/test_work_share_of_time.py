"""The share of the process's time that planning may take."""

import asyncio

from proxy.inside.work import ShareOfTime, timed


def test_what_was_used_ahead_must_pass_before_there_is_more() -> None:
    share = ShareOfTime(0.25, 100.0)
    assert share.has_any(100.0)
    share.take(3.0)
    assert not share.has_any(103.9)
    assert share.has_any(104.1)
    # What is left unused is kept for some seconds only.
    assert share.has_any(10_000.0)
    share.take(2.1)
    assert not share.has_any(10_000.0)


async def test_only_the_work_itself_is_taken_from_the_share() -> None:
    taken: list[float] = []
    share = ShareOfTime(0.5)
    share.take = taken.append  # type: ignore[method-assign]
    spent = [0.0]

    async def work() -> str:
        spent[0] += 1.0
        await asyncio.sleep(0.01)
        spent[0] += 2.0
        return "done"

    async def others() -> None:
        spent[0] += 100.0

    both = await asyncio.gather(timed(work(), share, lambda: spent[0]), others())
    assert both[0] == "done"
    assert taken == [1.0, 2.0]


async def test_a_cancellation_is_the_works_to_handle() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cleaned up")

    async def whole() -> None:
        await timed(work(), ShareOfTime(1.0))

    task = asyncio.create_task(whole())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == ["cleaned up"]

"""Waiting with a limit that counts the turns of the event loop."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.patience import TICKS, Patience


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_an_answer_is_handed_on_and_so_is_an_error() -> None:
    async def main() -> None:
        patience = Patience(5.0)
        assert await patience.wait_for(asyncio.sleep(0, "answer")) == "answer"

        async def fail() -> None:
            raise ValueError("bad")

        with pytest.raises(ValueError, match="bad"):
            await patience.wait_for(fail())

    run(main)


def test_what_does_not_answer_is_given_up_after_the_limit() -> None:
    async def main() -> None:
        patience = Patience(0.05)
        waits = [patience.wait_for(asyncio.sleep(3600)) for _ in range(3)]
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(answer, TimeoutError) for answer in answers)
        # After a rest, the limit is whole again.
        await asyncio.sleep(0.06)
        assert await patience.wait_for(asyncio.sleep(0.02, "answer")) == "answer"

    run(main)


def test_a_loop_that_is_late_does_not_give_up_what_has_answered() -> None:
    async def main() -> None:
        patience, limit_s = Patience(0.05), 0.05

        async def answer() -> str:
            for _ in range(TICKS // 2):
                await asyncio.sleep(0)
                time.sleep(limit_s / 2)  # the worker is busy with something else
            return "answer"

        assert await patience.wait_for(answer()) == "answer"

    run(main)


def test_to_give_up_ends_every_wait_at_once() -> None:
    async def main() -> None:
        patience = Patience(3600.0)
        waits = [asyncio.ensure_future(patience.wait_for(asyncio.sleep(7200))) for _ in range(2)]
        await asyncio.sleep(0)
        patience.give_up()
        for wait in waits:
            with pytest.raises(TimeoutError):
                await wait

    run(main)

"""uvicorn's pauses, a tenth as long. A server looks ten times a second whether it shall end, and then waits a tenth of
a second for its connections. Tests start hundreds of servers in one process, which took most of their time."""

import asyncio
from typing import Any


class BriskAsyncio:
    """asyncio, for the module of uvicorn's that pauses. Everything but the pauses is asyncio's own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay_s: float) -> None:
        """Pause for a tenth of the time."""
        await asyncio.sleep(delay_s / 10)

"""Remembers what reached the provider, so that the demo can check it against what the clients sent."""

from proxy.headers import get
from proxy.ports import Answer, Call, Upstream


class Witness:
    """An upstream in front of another one. ``last`` is the newest body of each key."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self.last: dict[str, bytes] = {}
        self.count = 0

    async def open(self, call: Call) -> Answer:
        """Note the body and pass the call on."""
        if isinstance(call.body, bytes):
            key = (get(call.headers, "authorization") or "").removeprefix("Bearer ")
            self.last[key] = call.body
            self.count += 1
        return await self._inner.open(call)

    async def aclose(self) -> None:
        """Close the other one."""
        await self._inner.aclose()

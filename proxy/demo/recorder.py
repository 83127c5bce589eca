"""Remembers the requests that reached the provider, so that the demo can compare them with the clients' requests."""

from proxy.engine.headers import get
from proxy.ports import Answer, Call, Upstream


class RequestRecorder:
    """An upstream in front of another one. ``bodies`` are the request bodies that arrived, by key, in their order."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self.bodies: dict[str, list[bytes]] = {}

    async def open(self, call: Call) -> Answer:
        """Note the body and pass the call on."""
        if isinstance(call.body, bytes):
            key = (get(call.headers, "authorization") or "").removeprefix("Bearer ")
            self.bodies.setdefault(key, []).append(call.body)
        return await self._inner.open(call)

    async def aclose(self) -> None:
        """Close the other upstream."""
        await self._inner.aclose()

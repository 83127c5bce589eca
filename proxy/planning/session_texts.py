"""Keeps the last request of each session as it came, where the operator lets the pages show texts. Nothing of it leaves
the memory of this process but in answers to whoever may administer the proxy."""

from typing import Final

from proxy.core.lru import Bounded
from proxy.core.reasons import Reason
from proxy.engine.exchange import Exchange

_MOST_BYTES: Final = 32 << 20


class SessionTexts:
    """Implements ``Follower`` of the engine."""

    def __init__(self) -> None:
        self._bodies: Bounded[str, bytes] = Bounded(_MOST_BYTES, len)

    def returned(self, session: str) -> None:
        """The session has another request: its text counts when it ends."""

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled."""
        plan = exchange.planned.plan
        if plan is None or not plan.session or plan.reason == Reason.KEEP_ALIVE or not exchange.answer.is_accepted:
            return
        if len(plan.original) <= _MOST_BYTES:
            self._bodies.put(plan.session, plan.original)

    def text(self, session: str) -> bytes | None:
        """The last request of a session as it came; None where this process has not seen it of late."""
        return self._bodies.get(session)

    async def aclose(self) -> None:
        """Forget everything."""
        self._bodies.clear()

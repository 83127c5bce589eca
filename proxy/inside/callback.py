"""LiteLLM's hooks, contained: nothing is raised into LiteLLM, and no request waits for a failure of ours twice."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from proxy.inside.host import Host
from proxy.inside.incoming import StoodDown
from proxy.inside.share_of_time import timed
from proxy.inside.start import Start

T = TypeVar("T")
_CHAT = "acompletion"


class Callback:
    """Calls the steps of ``Work``. Which of LiteLLM's hooks runs when was found out by running 1.106.2, 1.108 and
    1.109.3 (tests/e2e)."""

    def __init__(self, host: Host) -> None:
        self.start = Start(host)

    async def before_attempt(self, arguments: Mapping[str, Any], call_type: object) -> dict[str, Any] | None:
        """A deployment is about to be called: the arguments to go on with; None: the caller's own."""
        if getattr(call_type, "value", call_type) != _CHAT:
            return None
        try:
            work = await self.start.work()
        except StoodDown as why:
            self.start.stood_down(why.reason)
            return None
        return await self._contained(work.plan(arguments, self.start.stood_down))

    async def after(self, step: Callable[..., Coroutine[Any, Any, T]], *given: Any) -> T | None:
        """LiteLLM tells something of an attempt: call that method of ``Work``, where there has been a first request."""
        work = self.start.built
        return await self._contained(step(work, *given)) if work is not None else None

    async def _contained(self, step: Coroutine[Any, Any, T]) -> T | None:
        try:
            return await timed(step, self.start.share)
        except Exception as error:  # noqa: BLE001 - nothing is raised into LiteLLM
            self.start.contained(error)
            return None

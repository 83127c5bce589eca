"""LiteLLM's hooks, contained: nothing is raised into LiteLLM, and no request waits for a failure of ours twice."""

from collections.abc import Coroutine, Mapping
from typing import Any

from proxy.inside.host import Host
from proxy.inside.reasons import StoodDown
from proxy.inside.share_of_time import Timed
from proxy.inside.start import Start

_CHAT = "acompletion"


class Callback:
    """What LiteLLM calls. Which hook runs when was found out by running 1.106.2 and 1.109.3 (tests/e2e)."""

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
        found: dict[str, Any] | None = await self._contained(
            "before_attempt", work.plan(arguments, self.start.stood_down)
        )
        return found

    async def after_success(self, arguments: Mapping[str, Any], response: object) -> None:
        """A deployment has answered; streams are told by ``after_logging``."""
        if (work := self.start.built) is not None:
            await self._contained("after_success", work.succeeded(arguments, response))

    async def after_failure(self, arguments: Mapping[str, Any], error: Exception) -> None:
        """A deployment has refused an attempt, or could not be reached."""
        if (work := self.start.built) is not None:
            await self._contained("after_failure", work.failed(arguments, error))

    async def after_logging(self, details: Mapping[str, Any], response: object) -> None:
        """LiteLLM has logged a success."""
        if (work := self.start.built) is not None:
            await self._contained("after_logging", work.logged(details, response))

    async def after_logged_failure(self, details: Mapping[str, Any]) -> None:
        """LiteLLM has logged a failure."""
        if (work := self.start.built) is not None:
            await self._contained("after_logged_failure", work.broken(details))

    async def answer_headers(self, request: Mapping[str, Any], response: object) -> dict[str, str] | None:
        """What the client is told about its request; ``response`` is None where nobody answered."""
        if (work := self.start.built) is None:
            return None
        try:
            return work.headers(request.get("litellm_call_id"), is_answered=response is not None)
        except Exception as error:  # noqa: BLE001 - nothing is raised into LiteLLM
            self.start.contained("answer_headers", error)
            return None

    async def aclose(self) -> None:
        """Nothing more is planned: write what waits to be written."""
        await self.start.aclose()

    async def _contained(self, step: str, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await Timed(work, self.start.share)
        except Exception as error:  # noqa: BLE001 - nothing is raised into LiteLLM
            self.start.contained(step, error)
            return None

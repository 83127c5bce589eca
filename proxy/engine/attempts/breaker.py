"""The circuit breakers of all deployments. They say which deployments may be called now. Times are from the process's
own clock."""

from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter

from proxy.core.resilience.circuit_breaker import ORDINARY, Breaker, BreakerPolicy, BreakerState
from proxy.ports import Deployment

# Clients choose the names that match a wildcard, so the number of remembered names is bounded.
_MOST = 2048

OnChange = Callable[[str, str], None]


class Breakers:
    """A breaker for each deployment, created at its first failure. Without a policy, all calls are let through.

    ``on_change`` is called with the id of a deployment and its new state.
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        on_change: OnChange | None = None,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._policy = policy
        self._on_change = on_change
        self._now = now
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()
        self._announced: dict[str, BreakerState] = {}

    def admits(self, deployment: Deployment) -> bool:
        """Whether a call may go to the deployment."""
        breaker = self._breakers.get(deployment.id)
        return breaker is None or breaker.admits(self._now())

    def waits_s(self, deployment: Deployment) -> float:
        """Seconds until it is worth calling the deployment again."""
        breaker = self._breakers.get(deployment.id)
        return 0.0 if breaker is None else breaker.waits_s(self._now())

    def is_failing(self, deployment: Deployment) -> bool:
        """Whether the deployment's breaker is open or half-open because of failures. A deployment that only asked to be
        called later does not count: it still answers so itself."""
        breaker = self._breakers.get(deployment.id)
        return breaker is not None and breaker.state(self._now()) is not BreakerState.CLOSED and not breaker.is_resting

    def began(self, deployment: Deployment) -> int | None:
        """A call is about to be sent. Returns its number, for ``ended`` or ``abandoned``. None: the call must not be
        sent."""
        breaker = self._breakers.get(deployment.id)
        if breaker is None:
            return ORDINARY
        call = breaker.began(self._now())
        self._announce(deployment, breaker)
        return call

    def ended(self, deployment: Deployment, call: int, *, is_failure: bool) -> None:
        """The call was answered, or failed."""
        breaker = self._breakers.get(deployment.id)
        if breaker is None:
            # Calls are counted from the first failure on, so a deployment that always works costs nothing.
            if not is_failure or self._policy is None:
                return
            breaker = self._made(deployment, self._policy)
        breaker.ended(self._now(), call, is_failure=is_failure)
        self._announce(deployment, breaker)

    def abandoned(self, deployment: Deployment, call: int) -> None:
        """The client left before the call was answered."""
        breaker = self._breakers.get(deployment.id)
        if breaker is not None:
            breaker.abandoned(call)

    def rest(self, deployment: Deployment, seconds: float) -> None:
        """The upstream has said when to call it again."""
        if self._policy is None:
            return
        breaker = self._breakers.get(deployment.id) or self._made(deployment, self._policy)
        breaker.rest(self._now(), seconds)
        self._announce(deployment, breaker)

    def _made(self, deployment: Deployment, policy: BreakerPolicy) -> Breaker:
        breaker = self._breakers[deployment.id] = Breaker(policy)
        if len(self._breakers) > _MOST:
            gone, _ = self._breakers.popitem(last=False)
            self._announced.pop(gone, None)
        return breaker

    def _announce(self, deployment: Deployment, breaker: Breaker) -> None:
        state = breaker.state(self._now())
        if self._on_change is not None and state is not self._announced.get(deployment.id, BreakerState.CLOSED):
            self._announced[deployment.id] = state
            self._on_change(deployment.id, state.value)

"""Admission: who may send a request, and whether there is money for it (the port of that name)."""

from proxy.budget import Budgets
from proxy.errors import Forbidden
from proxy.identity import KEY_HEADERS, Identity
from proxy.ports import Deployment, Headers, Reservation, Subject, Transport


class Gate:
    """Identity and budgets behind the Admission port."""

    def __init__(self, identity: Identity, budgets: Budgets) -> None:
        self._identity = identity
        self._budgets = budgets

    def admit(self, headers: Headers, now: float) -> Subject:
        """Who this is. Raises Unauthorized."""
        return self._identity.admit(headers, now)

    async def reserve(
        self,
        exchange_id: str,
        subject: Subject,
        deployment: Deployment,
        prompt_tokens: int,
        max_output_tokens: int | None,
        now: float,
    ) -> Reservation:
        """Set aside the most that this request can cost. Raises BudgetExceeded, BudgetUnavailable, Forbidden."""
        if subject.virtual and deployment.transport is Transport.HTTP and not brings_key(deployment):
            # The key is this proxy's own; sent on, it would be given away to the upstream.
            raise Forbidden(
                f"Model '{deployment.name}' has no api_key in the proxy's configuration, and the key of this request "
                "is the proxy's own, which is never sent upstream. Set litellm_params.api_key for it (any text where "
                "the server needs none).",
                code="upstream_key_missing",
            )
        return await self._budgets.reserve(exchange_id, subject, deployment, prompt_tokens, max_output_tokens)

    async def settle(self, reservation: Reservation, cost_usd: float, now: float) -> None:
        """Replace the reservation by what the exchange cost."""
        await self._budgets.settle(reservation, cost_usd, now)

    async def aclose(self) -> None:
        """Write what is not written yet, and release the store."""
        await self._budgets.aclose()


def brings_key(deployment: Deployment) -> bool:
    """Whether the configuration has a credential for the upstream, so that the client's is not needed."""
    return deployment.api_key is not None or any(name in KEY_HEADERS for name, _ in deployment.headers)

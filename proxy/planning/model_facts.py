"""The facts that are known about the models behind deployments."""

from collections.abc import Callable

from proxy.core.money.prices import Price
from proxy.core.value import dataclass
from proxy.ports import Deployment

Limits = tuple[int | None, int | None]
"""The most tokens that a model reads and writes, as far as they are known."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The known facts about a deployment's model: its limits, and its price in USD per token. None: the price is
    unknown."""

    limits: Callable[[Deployment], Limits] = lambda deployment: (None, None)
    price: Callable[[Deployment], Price | None] = lambda deployment: None

"""The rules of the cache and the prices that hold for a model of a log, as far as its name tells."""

from dataclasses import dataclass
from functools import lru_cache

from proxy.core.money.prices import Price, PriceMap
from proxy.core.providers import PROFILES, CacheProfile, Family, fitted
from proxy.deployments.choice import choose_profile, provider_of
from proxy.ports import Transport

_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class ModelRules:
    """``price`` is None where no price is known. Its cache reads and writes are those of the map."""

    profile: CacheProfile
    price: Price | None


class Rules:
    """``given`` is the profile that the user has named; None: each model's own."""

    def __init__(self, prices: PriceMap, given: CacheProfile | None = None) -> None:
        self._prices, self._given = prices, given
        self.of = lru_cache(_REMEMBERED)(self._chosen)

    def _chosen(self, model: str, provider: str, named: str = "") -> ModelRules:
        """The rules for a model; ``provider`` is LiteLLM's name and ``named`` that of its cache's rules, both empty
        where the log does not tell."""
        owner, bare = provider_of(model, provider)
        price = self._prices.price(f"{owner}/{bare}" if owner else model, model, bare)
        given = self._given or PROFILES.get(named)
        profile = given or choose_profile(Transport.LITELLM, owner, bare, "")
        if profile.family is Family.NONE and given is None:
            # A log does not tell whose server has answered: the one is taken that the name suggests.
            profile = choose_profile(Transport.EMBEDDED, owner, bare, "")
        return ModelRules(fitted(profile, bare), price)

"""The rules of the cache and the prices that hold for a model of a log, as far as its name tells."""

from dataclasses import dataclass

from proxy.core.lru import LastUsed
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
        self._known: LastUsed[tuple[str, str, str], ModelRules] = LastUsed(_REMEMBERED)

    def of(self, model: str, provider: str, profile: str = "") -> ModelRules:
        """The rules for a model; ``provider`` is LiteLLM's name and ``profile`` that of its cache's rules, both empty
        where the log does not tell."""
        found = self._known.find((model, provider, profile))
        if found is None:
            found = self._chosen(model, provider, profile)
            self._known.put((model, provider, profile), found)
        return found

    def _chosen(self, model: str, provider: str, named: str) -> ModelRules:
        owner, bare = provider_of(model, provider)
        price = self._prices.price(f"{owner}/{bare}" if owner else model, model, bare)
        given = self._given or PROFILES.get(named)
        profile = given or choose_profile(Transport.LITELLM, owner, bare, "")
        if profile.family is Family.NONE and given is None:
            # A log does not tell whose server has answered: the one is taken that the name suggests.
            profile = choose_profile(Transport.EMBEDDED, owner, bare, "")
        return ModelRules(fitted(profile, bare), price)

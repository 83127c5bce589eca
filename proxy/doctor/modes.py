"""The rules and prices for the models of a log, and the cost of each mode by these rules and prices."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from proxy.core.modes import Mode
from proxy.core.money.prices import Price, PriceMap
from proxy.core.providers import PROFILES, CacheProfile, Family, fitted
from proxy.core.value import dataclass, replace
from proxy.deployments.choice import choose_profile, provider_of
from proxy.doctor.readers.call import Call
from proxy.ports import Transport
from proxy.replay.runner import Ours, Setting
from proxy.replay.totals import Total
from proxy.replay.trace import Step

_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class ModelRules:
    """``price`` is None if no price is known. Its prices of cache reads and writes are those of the price map."""

    profile: CacheProfile
    price: Price | None


class Rules:
    """``given`` is the profile that the user has named. None: each model has its own profile."""

    def __init__(self, prices: PriceMap, given: CacheProfile | None = None) -> None:
        self._prices, self._given = prices, given
        self.of = lru_cache(_REMEMBERED)(self._chosen)

    def _chosen(self, model: str, provider: str, named: str = "") -> ModelRules:
        """The rules for a model. ``provider`` is LiteLLM's name of the provider, and ``named`` is the name of the cache
        rules. Both are empty if the log does not tell them."""
        owner, bare = provider_of(model, provider)
        price = self._prices.price(f"{owner}/{bare}" if owner else model, model, bare)
        given = self._given or PROFILES.get(named)
        profile = given or choose_profile(Transport.LITELLM, owner, bare, "")
        if profile.family is Family.NONE and given is None:
            # A log does not tell which provider's server has answered: the provider that the name suggests is taken.
            profile = choose_profile(Transport.EMBEDDED, owner, bare, "")
        return ModelRules(fitted(profile, bare), price)


MODES = (Mode.PASSTHROUGH, Mode.MARK, Mode.TIER)

Runs = Mapping[Mode, Sequence[tuple[Total, ModelRules]]]
"""The bills by mode. Each model has its own cache and its own planner."""


def mode_runs(calls: Sequence[Call], rules: Rules, setting: Setting) -> Runs:
    """Run the calls in each mode. All of them have bodies."""
    found: dict[Mode, list[tuple[Total, ModelRules]]] = {mode: [] for mode in MODES}
    ordered = sorted(calls, key=lambda call: (call.model, call.provider, call.at or 0.0))
    for (model, provider), some in groupby(ordered, key=lambda call: (call.model, call.provider)):
        held = rules.of(model, provider)
        steps = [Step(call.at or 0.0, call.session, call.body or b"") for call in some]
        for mode, runs in found.items():
            ours = Ours(replace(setting, profile=held.profile, mode=mode))
            for step in steps:
                ours.send(step, ours.assembled(step))
            runs.append((ours.total, held))
    return found

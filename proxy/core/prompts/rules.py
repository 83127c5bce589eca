"""Whose requests get which prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.model_patterns import fitting
from proxy.core.prompts.layers import layered
from proxy.core.prompts.terms import PromptLayer, PromptTerms

NamesOf = Callable[[str], Sequence[str]]
"""Every name by which a model is meant, the most general one first and the client's own last."""


def only_itself(name: str) -> Sequence[str]:
    """The names of a model that has one name."""
    return (name,)


@dataclass(frozen=True, slots=True)
class PromptRules:
    """What the configuration says about composing: for all requests (``base``), then for models, for teams and for
    keys. A later one wins. ``models`` may be patterns (``proxy.core.model_patterns``).

    A model is known by all of its names (``names_of``): no client leaves out the prompts of a model because it writes
    an alias or the provider's prefix."""

    base: PromptTerms = PromptTerms()
    models: Mapping[str, PromptLayer] = field(default_factory=dict)
    teams: Mapping[str, PromptLayer] = field(default_factory=dict)
    keys: Mapping[str, PromptLayer] = field(default_factory=dict)
    names_of: NamesOf = only_itself

    @property
    def is_empty(self) -> bool:
        """Whether no request gets a prompt, whatever it says."""
        return not (self.models or self.teams or self.keys) and self.base == PromptTerms()

    def terms_for(self, model: str, team: str, key_id: str) -> PromptTerms:
        """The terms of a request for that model with a key of that team."""
        layers: list[PromptLayer] = []
        if self.models:
            layers += [self.models[pattern] for pattern in fitting(self.models, self.names_of(model))]
        layers += [found for found in (self.teams.get(team), self.keys.get(key_id)) if found is not None]
        return layered(self.base, *layers) if layers else self.base

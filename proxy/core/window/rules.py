"""Whose requests have which capability profile."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.model_patterns import allows, fitting
from proxy.core.prompts.rules import NamesOf, only_itself
from proxy.core.window.profile import CapabilityProfile
from proxy.core.wire.refusals import unknown_name
from proxy.errors import Forbidden

_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class WindowRules:
    """What the configuration says about context windows. ``profiles`` are all that there are, by name. ``profile`` is
    the name for all requests; ``models`` (patterns), ``teams`` and ``keys`` have names that win over it in this order,
    each over those before. The name "" stands for no profile. ``allowed`` are the names that clients may choose, with
    ``*`` for any text; by default none."""

    profiles: Mapping[str, CapabilityProfile] = field(default_factory=dict)
    profile: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    teams: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    names_of: NamesOf = only_itself

    @property
    def is_empty(self) -> bool:
        """Whether no request has a profile, whatever it says."""
        return not (self.profile or self.models or self.teams or self.keys or self.allowed)

    def profile_for(
        self, model: str, team: str, key_id: str, wished: str = "", param: str = "stratiform.window.profile"
    ) -> CapabilityProfile | None:
        """The profile of a request; None: it has no budget. ``wished`` is the name that the client chose, or "", and
        ``param`` is where the request says it. Raises Forbidden for a name that is not this client's to choose, whether
        there is such a profile or not, and InvalidRequest where it could be chosen and does not exist."""
        given = self._given(model, team, key_id)
        if not wished or wished == given:
            return self.profiles.get(given)
        if not self.may_choose(wished):
            shown = wished.encode("utf-8", "replace").decode()[:_SHOWN_CHARS]
            names = ", ".join(sorted(filter(self.may_choose, self.profiles)))
            message = f"This key may not choose the profile '{shown}'{f'; it may choose {names}' if names else ''}."
            raise Forbidden(message, param=param, code="profile_not_allowed")
        if wished not in self.profiles:
            raise unknown_name("profile", wished, filter(self.may_choose, self.profiles))
        return self.profiles[wished]

    def may_choose(self, name: str) -> bool:
        """Whether clients may choose this name, be there such a profile or not."""
        # An empty list would let every name pass, as the list of a team does that may use all models.
        return bool(self.allowed) and allows([self.allowed], [name])

    def _given(self, model: str, team: str, key_id: str) -> str:
        if key_id in self.keys:
            return self.keys[key_id]
        if team in self.teams:
            return self.teams[team]
        found = fitting(self.models, self.names_of(model)) if self.models else []
        return self.models[found[-1]] if found else self.profile

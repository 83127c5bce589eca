"""Finds the prompts and the context window of a request, and checks what its client chooses."""

from typing import NamedTuple

from proxy.core.model_patterns import matches_any
from proxy.core.prompts.terms import ClientWish, OnFailure, PromptRules, PromptTerms, client_terms
from proxy.core.value import dataclass, replace
from proxy.core.window.profile import CapabilityProfile, WindowRules


class Whose(NamedTuple):
    """The subject of the rules: the model that a request names, and the team and the id of its key."""

    model: str
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a configuration for prompts and context windows. A reload makes new rules."""

    prompts: PromptRules = PromptRules()
    windows: WindowRules = WindowRules()

    @property
    def is_empty(self) -> bool:
        """Whether they hold for no request."""
        return self.prompts.is_empty and self.windows.is_empty

    @property
    def may_compose(self) -> bool:
        """Whether any request may get a prompt of the registry."""
        has_template = any(profile.template for profile in self.windows.profiles.values())
        return not self.prompts.is_empty or (has_template and not self.windows.is_empty)

    def terms_for(self, whose: Whose, wish: ClientWish | None = None) -> tuple[PromptTerms, CapabilityProfile | None]:
        """The terms of the request, and the profile of its context window; None: it has none. If there is a capability
        profile with the name that a client asks for, it is meant. Otherwise the name is a profile of the prompts alone.
        Raises Forbidden for what the client may not choose."""
        terms = self.prompts.terms_for(*whose)
        if wish is None:
            profile = self.windows.profile_for(*whose)
            return _with_profile(terms, profile), profile
        wanted = wish.profile or ""
        is_prompts_own = wanted not in self.windows.profiles and (
            wanted == terms.profile or matches_any(terms.allowed.profiles, wanted)
        )
        param = "x-stratiform-profile" if "profile" in wish.by_header else "stratiform.window.profile"
        profile = self.windows.profile_for(*whose, "" if is_prompts_own else wanted, param)
        asked = client_terms(terms, replace(wish, profile=wanted if is_prompts_own else None))
        return _with_profile(asked, profile), profile

    def window_for(self, whose: Whose, wished: str) -> CapabilityProfile | None:
        """The budget of a request that is no chat. If the model is not known (""), it may be any. Raises Forbidden,
        InvalidRequest."""
        models = (whose.model,) if whose.model else ("", *self.windows.models)
        param = "x-stratiform-profile"
        found = (self.windows.profile_for(*whose._replace(model=model), wished, param) for model in models)
        return next(filter(None, found), None)

    def requires_prompts(self, whose: Whose) -> bool:
        """Whether the request must not go without the operator's prompts. If the model is not known (""), it may be
        any."""
        if not self.may_compose:
            return False
        models = (whose.model,) if whose.model else ("", *self.prompts.models, *self.windows.models)
        all_terms = (self.terms_for(whose._replace(model=model))[0] for model in models)
        return any(not terms.is_empty and terms.on_failure is OnFailure.REFUSE for terms in all_terms)


def _with_profile(terms: PromptTerms, profile: CapabilityProfile | None) -> PromptTerms:
    """The terms for requests of a capability profile, which may have a prompt of its own."""
    if profile is None:
        return terms
    use = (*terms.use, profile.template) if profile.template else terms.use
    return replace(terms, use=use, profile=terms.profile or profile.name)

"""The terms of one request: what the configuration says, with what its client asks for as far as it may."""

from dataclasses import replace

from proxy.core.model_patterns import matches
from proxy.core.prompts.layers import client_terms
from proxy.core.prompts.rules import PromptRules
from proxy.core.prompts.terms import PromptTerms
from proxy.core.prompts.wish import ClientWish
from proxy.core.window.profile import CapabilityProfile
from proxy.core.window.rules import WindowRules

Whose = tuple[str, str, str]
"""The model that a request names, and the team and the id of its key."""


def asked_terms(
    rules: PromptRules, windows: WindowRules, whose: Whose, wish: ClientWish
) -> tuple[PromptTerms, CapabilityProfile | None]:
    """By which terms the request is composed, and which budget its context window has. The profile that a client asks
    for is a capability profile where there is one of that name, else it is one of the prompts alone. Raises Forbidden
    for what the client may not choose."""
    terms, wanted = rules.terms_for(*whose), wish.profile
    is_prompts_own = wanted not in windows.profiles and (
        wanted == terms.profile or any(matches(pattern, wanted) for pattern in terms.allowed.profiles)
    )
    profile = windows.profile_for(*whose, "" if is_prompts_own else wanted)
    asked = client_terms(terms, replace(wish, profile=wanted if is_prompts_own else ""))
    return _with_profile(asked, profile), profile


def _with_profile(terms: PromptTerms, profile: CapabilityProfile | None) -> PromptTerms:
    """The terms for requests of a capability profile, which may have a prompt of its own."""
    if profile is None:
        return terms
    use = (*terms.use, profile.template) if profile.template else terms.use
    return replace(terms, use=use, profile=terms.profile or profile.name)

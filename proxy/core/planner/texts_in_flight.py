"""The operator's texts of a request on its way."""

from dataclasses import dataclass, field

from proxy.core.prompts.composition import Inset
from proxy.core.prompts.turn_texts import AppliedTexts
from proxy.core.providers import ASSUMED, CacheProfile, Family


@dataclass(frozen=True, slots=True)
class TextsInFlight:
    """``inset`` stands around the newest user message and adds ``tokens``; ``applied`` is what stands around earlier
    ones."""

    applied: AppliedTexts
    inset: Inset = field(repr=False)
    tokens: int


def priced(profile: CacheProfile) -> CacheProfile:
    """The rules by which texts are priced: assumed ones where nothing is known of the upstream's cache."""
    return ASSUMED if profile.family is Family.NONE else profile

"""Each tier has a header of its own for its files."""

from proxy.core.layout.tiers import Tier
from tests.contexts import TEXTS


def test_every_tier_has_its_own_header() -> None:
    assert list(TEXTS.files) == list(Tier)
    assert len(set(TEXTS.files.values())) == len(Tier)
    assert TEXTS.files[Tier.L2] == TEXTS.reference_l2

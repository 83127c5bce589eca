"""The tiers of a placement, by the keys of its items."""

from proxy.context.placement import TierItems
from proxy.planner.tiers import Tier
from tests.contexts import placed


def test_the_tier_of_a_path_is_that_of_its_file_or_its_symbols() -> None:
    placement = placed(L1=TierItems(("a",), ("b",), (0,)), ACTIVE=TierItems((), ("c",), (1,)))

    assert placement.tier_of() == {"symbol:a": Tier.L1, "file:b": Tier.L1, "file:c": Tier.ACTIVE}

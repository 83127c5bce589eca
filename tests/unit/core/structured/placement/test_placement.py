"""A tier is empty where no item of any kind stands in it."""

import pytest

from proxy.core.structured.placement.placement import TierItems


@pytest.mark.parametrize(
    ("items", "is_empty"),
    [
        (TierItems(), True),
        (TierItems(symbols=("a.py",)), False),
        (TierItems(files=("a.py",)), False),
        (TierItems(history=(0,)), False),
    ],
)
def test_a_tier_is_empty_without_any_item(items: TierItems, is_empty: bool) -> None:
    assert items.is_empty is is_empty

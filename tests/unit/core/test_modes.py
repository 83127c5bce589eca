import pytest

from proxy.core.modes import Mode


@pytest.mark.parametrize("text", ["tier", " Tier ", "TIER"])
def test_a_mode_is_parsed_by_its_name(text: str) -> None:
    assert Mode.parse(text) is Mode.TIER


@pytest.mark.parametrize("text", ["", "3", "tiers", "tier;"])
def test_any_other_name_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ValueError, match="passthrough, observe, mark, tier"):
        Mode.parse(text)


def test_a_lower_mode_changes_less() -> None:
    assert Mode.PASSTHROUGH < Mode.OBSERVE < Mode.MARK < Mode.TIER
    assert min(Mode.parse("mark"), Mode.TIER) is Mode.MARK

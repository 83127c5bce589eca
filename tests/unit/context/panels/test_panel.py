"""A panel's identity, and what is expected of its kind."""

from proxy.context.panels import HAZARDS, OWN_KIND, Panel


def test_the_digest_covers_what_is_shown_and_nothing_else() -> None:
    panel = Panel("a", "file", "File", "x")
    assert panel.digest == Panel("b", "todo", "File", "x").digest
    assert panel.digest != Panel("a", "file", "File", "y").digest
    assert panel.digest != Panel("a", "file", "Other", "x").digest
    assert Panel("a", "file", "b", "c").digest != Panel("a", "file", "", "b\nc").digest


def test_there_are_fifteen_kinds_besides_those_of_clients() -> None:
    assert len(HAZARDS) == 15 + 1
    assert OWN_KIND in HAZARDS
    assert all(0 <= hazard < 1 for hazard in HAZARDS.values())

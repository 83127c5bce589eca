"""What counts as an empty composition."""

from proxy.core.prompts.composition import Composition
from proxy.core.prompts.inset import Inset


def test_a_composition_without_texts_is_empty() -> None:
    assert Composition(skipped={"one": "condition"}).is_empty


def test_a_composition_with_any_text_is_not_empty() -> None:
    assert not Composition(system="Be brief.").is_empty
    assert not Composition(inset=Inset(after="Close every block.")).is_empty

"""What counts as an empty composition."""

from proxy.core.prompts.prompt import Composition, Inset


def test_a_composition_without_texts_is_empty() -> None:
    assert Composition(skipped={"one": "condition"}).is_empty


def test_a_composition_with_any_text_is_not_empty() -> None:
    assert not Composition(system="Be brief.").is_empty
    assert not Composition(inset=Inset(after="Close every block.")).is_empty


def test_an_inset_is_true_where_it_adds_a_text() -> None:
    assert not Inset()
    assert Inset(before="a")
    assert Inset(after="b")

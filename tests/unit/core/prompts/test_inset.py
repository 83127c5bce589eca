"""Whether an inset adds anything."""

from proxy.core.prompts.inset import Inset


def test_an_inset_is_true_where_it_adds_a_text() -> None:
    assert not Inset()
    assert Inset(before="a")
    assert Inset(after="b")

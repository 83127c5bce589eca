"""The text of one item stands between fences that its content cannot close."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.blocks.blocks import fence_for, file_block


def test_a_file_stands_under_its_path_between_fences_without_a_language() -> None:
    assert file_block("src/a.py", "x = 1") == "src/a.py\n```\nx = 1\n```"


def test_fences_grow_past_the_longest_run_of_backticks() -> None:
    assert fence_for("a `` b") == "```"
    assert fence_for("a ``` b") == "````"
    assert file_block("a.md", "`````\n") == "a.md\n``````\n`````\n\n``````"


@given(st.text(alphabet="`a\n", max_size=60))
def test_the_fence_never_stands_in_the_text(text: str) -> None:
    fence = fence_for(text)
    assert fence not in text
    assert len(fence) == 3 or fence[1:] in text

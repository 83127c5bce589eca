"""An item has the digest of what is sent of it, and a fence that its text cannot close."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.context.blocks import ContextItem, ContextSection, ItemKind, fence_for, file_block
from proxy.kit.value import digest

FILE = ContextItem(ItemKind.FILES, "file:a", "a\n```\n\n```")
TURN = ContextItem(ItemKind.HISTORY, "history:0", raw=b'{"role":"user"}')


def test_a_digest_is_that_of_the_bytes_that_are_sent() -> None:
    assert FILE.digest == digest(b"a\n```\n\n```")
    assert TURN.digest == digest(b'{"role":"user"}')
    assert ContextItem(ItemKind.FILES, "file:a", "\ud83d").digest == digest(b"\xed\xa0\xbd")


def test_words_are_all_that_is_sent_besides_the_items() -> None:
    one = ContextSection(ItemKind.FILES, (FILE, FILE, FILE), "H:", "--", "Ok.")

    assert one.text == "H:" + "--".join([FILE.text] * 3)
    assert one.words == "H:----Ok."


# The text of one item stands between fences that its content cannot close.


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

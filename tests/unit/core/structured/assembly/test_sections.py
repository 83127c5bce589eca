"""Each part of the context is a header and the items below it, and is left out without any."""

from proxy.core.structured.assembly.sections import (
    file_items,
    page_text,
    pages_section,
    review_section,
    section,
    symbol_items,
    tree_section,
)
from proxy.core.structured.blocks.blocks import Item, Kind, Skip, Skipped
from proxy.core.structured.context import Page, Review, StructuredContext
from tests.contexts import TEXTS, a_file, fenced


def test_a_header_never_stands_alone() -> None:
    assert section(Kind.FILES, "# Header\n\n", []) is None
    assert tree_section(None, TEXTS) is None
    assert tree_section((), TEXTS) is None
    assert pages_section((), TEXTS, Skipped()) is None
    assert review_section(StructuredContext(), TEXTS) is None
    assert review_section(StructuredContext(review=Review()), TEXTS) is None


def test_items_stand_below_the_header_with_the_joint_between_them() -> None:
    found = section(Kind.FILES, "H:", file_items([a_file("a"), a_file("b")]), "\n\n", "Ok.")

    assert found is not None
    assert found.text == f"H:{fenced('a')}\n\n{fenced('b')}"
    assert found.words == "H:\n\nOk."
    assert [item.key for item in found.items] == ["file:a", "file:b"]


def test_symbols_are_sent_as_they_are() -> None:
    assert symbol_items(["b"], {"a": "1", "b": "b:\n  f"}) == (Item(Kind.SYMBOLS, "symbol:b", "b:\n  f"),)


def test_the_tree_is_flat_and_sorted_and_counts_each_path_once() -> None:
    found = tree_section(("src/b.py", "README.md", "src/a.py", "README.md"), TEXTS)

    assert found is not None
    assert found.text == TEXTS.file_tree + "# File Tree (3 files)\n\nREADME.md\nsrc/a.py\nsrc/b.py"


def test_a_page_says_its_title_its_url_its_content_and_its_symbols() -> None:
    assert page_text(Page("http://x", "Title", "Body", "f()")) == "Title\nhttp://x\n\nBody\n\nf()"
    assert page_text(Page("http://x", "", "Body")) == "http://x\n\nBody"


def test_pages_without_content_are_skipped_and_counted() -> None:
    skipped = Skipped()
    pages = (Page("http://a", "A", "1"), Page("http://b", "B", ""), Page("http://c", "C", "", "f()"))
    found = pages_section(pages, TEXTS, skipped)

    assert found is not None
    assert found.text == TEXTS.urls + "A\nhttp://a\n\n1\n---\nC\nhttp://c\n\nf()"
    assert skipped == {Skip.EMPTY_PAGE: 1}


def test_a_review_leaves_out_what_it_does_not_have() -> None:
    context = StructuredContext(files=(a_file("a"), a_file("b", is_selected=False)), review=Review(log="one\ntwo"))
    found = review_section(context, TEXTS)

    assert found is not None
    assert found.text == TEXTS.review + TEXTS.review_log + "one\ntwo"


def test_a_review_has_the_diffs_of_selected_files_only_in_fences_that_they_cannot_close() -> None:
    diffs = {"b": "-b", "a": "-```", "c": ""}
    files = (a_file("a", None), a_file("b", is_selected=False), a_file("c"))
    found = review_section(StructuredContext(files=files, review=Review(reverse_diffs=diffs)), TEXTS)

    assert found is not None
    assert found.text == TEXTS.review + TEXTS.review_diffs + "a\n````\n-```\n````"

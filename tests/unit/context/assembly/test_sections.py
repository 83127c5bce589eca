"""Each part of the context is a header and the items below it, and is left out without any."""

import orjson
import pytest

from proxy.context import Conversation, FetchedPage, Review, StructuredContext, Turn
from proxy.context.assembly import (
    active_blocks,
    file_items,
    map_sections,
    not_shown,
    page_text,
    pages_section,
    prompt_block,
    raw_block,
    review_section,
    section,
    symbol_items,
    system_messages,
    tree_section,
    turns_section,
    without_last_answer,
)
from proxy.context.blocks import Block, ContextItem, ContextSection, ItemKind, Skip, Skipped
from tests.contexts import MAP, TEXTS, a_file, conversation_of, exchanges, fenced, talk_of
from tests.talk import Body, calling, result, system, text_part, user


def test_a_header_never_stands_alone() -> None:
    assert section(ItemKind.FILES, "# Header\n\n", []) is None
    assert tree_section(None, TEXTS) is None
    assert tree_section((), TEXTS) is None
    assert pages_section((), TEXTS) is None
    assert review_section(StructuredContext(), TEXTS) is None
    assert review_section(StructuredContext(review=Review()), TEXTS) is None


def test_items_stand_below_the_header_with_the_joint_between_them() -> None:
    found = section(ItemKind.FILES, "H:", file_items([a_file("a"), a_file("b")]), "\n\n", "Ok.")

    assert found.text == f"H:{fenced('a')}\n\n{fenced('b')}"
    assert found.words == "H:\n\nOk."
    assert [item.key for item in found.items] == ["file:a", "file:b"]


def test_symbols_are_sent_as_they_are() -> None:
    assert symbol_items(["b"], {"a": "1", "b": "b:\n  f"}) == (ContextItem(ItemKind.SYMBOLS, "symbol:b", "b:\n  f"),)


def test_the_tree_is_flat_and_sorted_and_counts_each_path_once() -> None:
    found = tree_section(("src/b.py", "README.md", "src/a.py", "README.md"), TEXTS)

    assert found.text == TEXTS.file_tree + "# File Tree (3 files)\n\nREADME.md\nsrc/a.py\nsrc/b.py"


def test_a_page_says_its_title_its_url_its_content_and_its_symbols() -> None:
    assert page_text(FetchedPage("http://x", "Body", "Title", "f()")) == "Title\nhttp://x\n\nBody\n\nf()"
    assert page_text(FetchedPage("http://x", "Body", "")) == "http://x\n\nBody"


def test_pages_without_content_are_skipped_and_counted() -> None:
    pages = (
        FetchedPage("http://a", "1", "A"),
        FetchedPage("http://b", "", "B"),
        FetchedPage("http://c", "", "C", "f()"),
    )
    found = pages_section(pages, TEXTS)

    assert found.text == TEXTS.urls + "A\nhttp://a\n\n1\n---\nC\nhttp://c\n\nf()"
    assert not_shown(StructuredContext(pages=pages)) == {Skip.EMPTY_PAGE: 1}


def test_a_review_leaves_out_what_it_does_not_have() -> None:
    context = StructuredContext(files=(a_file("a"), a_file("b", is_selected=False)), review=Review(log="one\ntwo"))
    found = review_section(context, TEXTS)

    assert found.text == TEXTS.review + TEXTS.review_log + "one\ntwo"


def test_a_review_has_the_diffs_of_selected_files_only_in_fences_that_they_cannot_close() -> None:
    diffs = {"b": "-b", "a": "-```", "c": ""}
    files = (a_file("a", None), a_file("b", is_selected=False), a_file("c"))
    found = review_section(StructuredContext(files=files, review=Review(reverse_diffs=diffs)), TEXTS)

    assert found.text == TEXTS.review + TEXTS.review_diffs + "a\n````\n-```\n````"


# What is added to the system prompt stands behind the client's own bytes.


ADDED = map_sections("c=class", (), (), TEXTS)
MAP_TEXT = f"{MAP}c=class"


def written(conversation: Conversation, sections: tuple[ContextSection, ...] = ADDED) -> list[object]:
    return [orjson.loads(raw) for raw in system_messages(conversation.system, sections)[0]]


def test_the_map_is_legend_symbols_and_files_under_one_header() -> None:
    symbols = symbol_items(("a", "b"), {"a": "a:", "b": "b:"})
    files = file_items([a_file("f")])

    found = map_sections("c=class", symbols, files, TEXTS)
    assert "".join(one.text for one in found) == f"{MAP_TEXT}\n\na:\nb:\n\n{TEXTS.reference_l0}{fenced('f')}"
    assert [one.text for one in map_sections("", symbols, (), TEXTS)] == [f"{MAP}a:\nb:"]
    assert map_sections("", (), (), TEXTS) == ()


def test_the_map_stands_behind_the_system_prompt_after_a_blank_line() -> None:
    assert written(conversation_of(system("Be kind."))) == [system(f"Be kind.\n\n{MAP_TEXT}")]
    assert written(conversation_of(system(""))) == [system(MAP_TEXT)]
    assert written(conversation_of()) == [system(MAP_TEXT)]


def test_of_several_system_messages_the_last_one_carries_the_map() -> None:
    two = conversation_of(system("a"), {"role": "developer", "content": "b", "name": "n"})

    assert written(two) == [system("a"), {"role": "developer", "content": f"b\n\n{MAP_TEXT}", "name": "n"}]


def test_a_list_gets_a_part_more() -> None:
    parts = [text_part("a"), text_part("b")]
    assert written(conversation_of(system(parts))) == [system([*parts, text_part(f"\n\n{MAP_TEXT}")])]
    assert written(conversation_of(system([]))) == [system([text_part(f"\n\n{MAP_TEXT}")])]


@pytest.mark.parametrize("content", [None, 7, {"a": 1}, True])
def test_what_is_neither_text_nor_list_stays_and_the_map_is_a_message_of_its_own(content: object) -> None:
    assert written(conversation_of(system(content))) == [system(content), system(MAP_TEXT)]


def test_the_clients_bytes_stay_as_they_are() -> None:
    raw = rb'{ "role": "system", "content": "\u00e9 \ud83d" }'
    ((found,), _) = system_messages(Conversation.of([raw]).system, ADDED)

    assert rb'"\u00e9 \ud83d\n\n# Repository Structure\n' in found
    assert system_messages(Conversation.of([raw]).system, ()) == ((raw,), ())


@pytest.mark.parametrize(("content", "lead"), [("s", "\n\n"), ([], "\n\n"), ("", ""), (7, "")])
def test_what_parts_the_map_from_the_system_prompt_belongs_to_the_map(content: object, lead: str) -> None:
    _, found = system_messages(conversation_of(system(content)).system, ADDED)

    assert [one.lead for one in found] == [lead]
    assert [one.lead for one in system_messages((), ADDED)[1]] == [""]


@pytest.mark.parametrize("raw", [b"7", b'{"role":"system","content":[1,}', b'{"role":"system"}'])
def test_what_is_no_message_stays_as_it_is(raw: bytes) -> None:
    found, _ = system_messages((Turn.of(raw),), ADDED)

    assert found[0] == raw
    assert len(found) == 2


# The active part: pairs in their order, then the client's own messages, and images behind the prompt's own content.


URL = "data:image/png;base64,AAAA"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}


def full() -> list[Block]:
    context = StructuredContext(tree=("a",), pages=(FetchedPage("u", "c", "t"),), review=Review(branch="main"))
    return list(active_blocks(context, file_items([a_file("a")]), TEXTS))


def test_each_part_is_a_pair_with_its_own_acknowledgement() -> None:
    assert [block.name for block in full()] == ["tree", "urls", "review", "files"]
    assert [orjson.loads(block.messages[1])["content"] for block in full()] == [
        "Ok.",
        "Ok, I've reviewed the URL content.",
        "Ok, I've reviewed the code changes.",
        "Ok.",
    ]
    assert all(len(block.messages) == 2 for block in full())


def prompt_of(conversation: Conversation, images: tuple[str, ...]) -> tuple[list[object], Skipped]:
    skipped = Skipped()
    blocks = list(prompt_block(conversation.prompt, images, skipped))
    return [orjson.loads(raw) for block in blocks for raw in block.messages], skipped


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("look", [text_part("look"), IMAGE]),
        ("", [IMAGE]),
        (None, [IMAGE]),
        ([], [IMAGE]),
        ([text_part("look"), IMAGE], [text_part("look"), IMAGE, IMAGE]),
    ],
)
def test_images_stand_behind_the_prompts_own_content(content: object, expected: list[Body]) -> None:
    found, skipped = prompt_of(conversation_of(user(content, name="ann")), (URL,))

    assert found == [user(expected, name="ann")]
    assert not skipped


def test_in_a_tool_loop_images_stay_with_the_user_message() -> None:
    found, _ = prompt_of(conversation_of(user("look"), calling("1"), result("1", "r")), (URL,))

    assert found == [user([text_part("look"), IMAGE]), calling("1"), result("1", "r")]


@pytest.mark.parametrize("messages", [[], [calling("1")], [user(7)], [user({"a": 1})]])
def test_images_without_a_place_are_skipped_and_counted(messages: list[Body]) -> None:
    found, skipped = prompt_of(conversation_of(*messages), (URL, URL))

    assert found == messages
    assert skipped == {Skip.NO_PROMPT: 2}


def test_history_keeps_its_numbers_and_its_bytes() -> None:
    turns = conversation_of(*exchanges(2), user("now?")).history
    (block,) = raw_block("history", turns_section(ItemKind.HISTORY, turns, (1, 3)))

    assert [item.key for item in block.sections[0].items] == ["history:1", "history:3"]
    assert block.messages == (turns[1].raw, turns[3].raw)
    assert list(raw_block("history", turns_section(ItemKind.HISTORY, turns, ()))) == []


def test_an_acknowledgement_is_never_the_last_message() -> None:
    blocks = full()
    open_ended = without_last_answer(blocks)

    assert open_ended[:-1] == tuple(blocks[:-1])
    assert open_ended[-1].messages == blocks[-1].messages[:1]
    assert open_ended[-1].sections[0].ok == ""
    with_prompt = (*blocks, *prompt_block(talk_of().prompt, (), Skipped()))
    assert without_last_answer(with_prompt) == with_prompt
    assert without_last_answer(()) == ()

"""The active part: pairs in their order, then the client's own messages, and images behind the prompt's own content."""

import orjson
import pytest

from proxy.core.structured.assembly.sections import (
    active_blocks,
    file_items,
    prompt_block,
    raw_block,
    turns_section,
    without_last_answer,
)
from proxy.core.structured.blocks.blocks import Block, Kind, Skip, Skipped
from proxy.core.structured.context import Page, Review, StructuredContext
from proxy.core.structured.messages import Conversation
from tests.contexts import TEXTS, a_file, conversation_of, exchanges, talk_of
from tests.talk import Body, calling, result, text_part, user

URL = "data:image/png;base64,AAAA"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}


def full() -> list[Block]:
    context = StructuredContext(tree=("a",), pages=(Page("u", "t", "c"),), review=Review(branch="main"))
    return list(active_blocks(context, file_items([a_file("a")]), TEXTS, Skipped()))


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


def test_a_prompt_without_images_is_the_clients_own_bytes() -> None:
    raw = b'{ "role": "user", "content": "q" }'
    (block,) = prompt_block(Conversation.of([raw]).prompt, (), Skipped())

    assert block.messages == (raw,)


def test_images_are_items_of_their_own() -> None:
    (block,) = prompt_block(talk_of().prompt, (URL,), Skipped())

    assert [(one.kind, [item.key for item in one.items]) for one in block.sections] == [
        (Kind.PROMPT, ["prompt:0"]),
        (Kind.IMAGES, ["image:0"]),
    ]


def test_history_keeps_its_numbers_and_its_bytes() -> None:
    turns = conversation_of(*exchanges(2), user("now?")).history
    (block,) = raw_block("history", turns_section(Kind.HISTORY, turns, (1, 3)))

    assert [item.key for item in block.sections[0].items] == ["history:1", "history:3"]
    assert block.messages == (turns[1].raw, turns[3].raw)
    assert list(raw_block("history", turns_section(Kind.HISTORY, turns, ()))) == []


def test_an_acknowledgement_is_never_the_last_message() -> None:
    blocks = full()
    open_ended = without_last_answer(blocks)

    assert open_ended[:-1] == tuple(blocks[:-1])
    assert open_ended[-1].messages == blocks[-1].messages[:1]
    assert open_ended[-1].sections[0].ok == ""
    with_prompt = (*blocks, *prompt_block(talk_of().prompt, (), Skipped()))
    assert without_last_answer(with_prompt) == with_prompt
    assert without_last_answer(()) == ()

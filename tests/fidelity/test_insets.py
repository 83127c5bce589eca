"""The operator's texts around user messages."""

from itertools import product

import pytest

from tests.examples import for_every

from .cases import aider, edited, parts, rules, run
from .violations import Rule

TEXTS = ("Read this.", "Be kind.")
PICTURE = {"type": "image_url", "image_url": {"url": "u"}}
WHOLE = "Read this.\n\nThe block did not match.\n\nBe kind."


@pytest.mark.parametrize("mode", ["passthrough", "observe", "mark", "tier"])
def test_the_operators_texts_may_stand_around_the_last_user_message(mode: str) -> None:
    assert run(aider(), edited(aider(), 9, content=WHOLE), inset=TEXTS, mode=mode) == []
    assert run(aider(), aider(), inset=TEXTS, mode=mode) == []


@for_every(
    product(
        ["passthrough", "observe", "mark", "tier"],
        [
            "Read this.\nThe block did not match.\n\nBe kind.",
            "The block did not match.\n\nBe kind.\n\nRead this.",
            "Read this.\n\nRead this.\n\nThe block did not match.\n\nBe kind.",
            "Read this.\n\nThe block did match.\n\nBe kind.",
            "Read this.\n\nBe kind.",
            "Read that.\n\nThe block did not match.\n\nBe kind.",
        ],
    )
)
def test_nothing_else_may(mode: str, content: str) -> None:
    assert rules(aider(), edited(aider(), 9, content=content), inset=TEXTS, mode=mode)


def test_a_text_that_was_not_the_operators_may_not() -> None:
    assert rules(aider(), edited(aider(), 9, content=WHOLE))
    assert rules(aider(), edited(aider(), 9, content=WHOLE), inset=("", "Be kind."))


def test_a_turn_in_front_has_what_it_had_and_no_other_text() -> None:
    sent = edited(aider(), 3, content="Read this.\n\nrename it\n\nBe kind.")
    for mode in ("observe", "mark", "tier"):
        assert run(aider(), sent, earlier={3: TEXTS}, mode=mode) == []
        assert rules(aider(), sent, earlier={3: ("", "Be kind.")}, mode=mode)
        assert rules(aider(), sent, earlier={4: TEXTS}, mode=mode)
        assert rules(aider(), sent, inset=TEXTS, mode=mode)


def test_texts_are_parts_of_their_own_beside_parts() -> None:
    original = edited(aider(), 9, content=[*parts("see"), PICTURE])
    around = [*parts("Read this.\n\n"), *parts("see"), PICTURE, *parts("\n\nBe kind.")]
    assert run(original, edited(aider(), 9, content=around), inset=TEXTS) == []
    assert rules(original, edited(aider(), 9, content=around[1:]), inset=TEXTS)
    assert rules(original, edited(aider(), 9, content=[around[0], around[2], around[1], around[3]]), inset=TEXTS)


def test_a_list_stays_a_list() -> None:
    original = edited(aider(), 9, content=parts("The block did not match."))
    for mode in ("observe", "tier"):
        assert rules(original, edited(aider(), 9, content=WHOLE), inset=TEXTS, mode=mode)


def test_the_clients_marker_stays_on_its_part_behind_a_text() -> None:
    own = [{**parts("see")[0], "cache_control": {"type": "ephemeral"}}]
    original = edited(aider(), 9, content=own)
    around = [*parts("Read this.\n\n"), *own, *parts("\n\nBe kind.")]
    assert run(original, edited(aider(), 9, content=around), inset=TEXTS, mode="mark") == []
    moved = [{**around[0], "cache_control": {"type": "ephemeral"}}, *parts("see"), around[2]]
    assert Rule.MARKER_LOST in rules(original, edited(aider(), 9, content=moved), inset=TEXTS, mode="mark")

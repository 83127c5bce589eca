"""Which prompts change within a conversation, where they go for it, and what only looks like a sign of change."""

import pytest

from proxy.prompts import (
    Composition,
    Json,
    Position,
    Prompt,
    PromptTerms,
    Seen,
    Steadiness,
    merged,
    volatile_in,
    volatile_name,
    volatile_values,
)
from proxy.prompts.assembler import assemble
from tests.examples import for_every


def composed(**texts: str) -> Composition:
    """Prompts whose names begin with ``context`` have that position; all others are ``system``."""
    prompts = [
        Prompt(name, Position.CONTEXT if name.startswith("context") else Position.SYSTEM, text, is_literal=True)
        for name, text in texts.items()
    ]
    return assemble(prompts, PromptTerms(use=("*",)), merged(), lambda prompt, *_: prompt.text)


def seen(steadiness: Steadiness, conversation: bytes = b"one", scope: str = "red", **texts: str) -> Seen:
    return steadiness.seen(scope, conversation, composed(**texts))


def test_a_first_request_changes_nothing() -> None:
    assert seen(Steadiness(), context_a="x", main="y") == Seen()


def test_a_context_that_changes_goes_to_the_tail_and_stays_there() -> None:
    steadiness = Steadiness()
    seen(steadiness, context_a="x", main="y")
    assert seen(steadiness, context_a="z", main="y") == Seen(frozenset({"context_a"}), ("context_a",))
    assert seen(steadiness, context_a="z", main="y") == Seen(frozenset({"context_a"}))


def test_a_prompt_of_another_position_stays_and_its_change_is_told() -> None:
    steadiness = Steadiness()
    seen(steadiness, main="y")
    assert seen(steadiness, main="z") == Seen(changed=("main",))


def test_a_prompt_that_comes_or_goes_has_changed() -> None:
    steadiness = Steadiness()
    seen(steadiness, main="y", flag="on")
    assert seen(steadiness, main="y").changed == ("flag",)
    assert seen(steadiness, main="y", flag="on").changed == ("flag",)


def test_conversations_and_clients_do_not_know_each_other() -> None:
    steadiness = Steadiness()
    seen(steadiness, context_a="x")
    assert seen(steadiness, b"two", context_a="z") == Seen()
    assert seen(steadiness, b"one", "blue", context_a="z") == Seen()


def test_a_new_conversation_begins_with_a_volatile_context_at_the_tail() -> None:
    steadiness = Steadiness()
    for turn in range(8):
        seen(steadiness, context_a=str(turn), context_b="same")
    assert seen(steadiness, b"two", context_a="0", context_b="same").at_tail == {"context_a"}
    assert seen(steadiness, b"two", "blue", context_a="0").at_tail == frozenset()


def test_a_condition_that_flips_often_is_told_as_volatile() -> None:
    steadiness, told = Steadiness(), list[tuple[str, ...]]()
    for turn in range(12):
        told.append(seen(steadiness, main="y", **({"flag": "on"} if turn % 2 else {})).volatile)
    assert told[0] == ()
    assert told[-1] == ("flag",)


def test_a_rare_change_is_not_volatile() -> None:
    steadiness = Steadiness()
    for turn in range(40):
        found = seen(steadiness, main=str(turn // 10))
        assert found.volatile == ()


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("Today is 2026-11-23.", "date", "2026-11-23"),
        ("As of November 23rd, 2026 this holds.", "date", "November 23rd, 2026"),
        ("As of 23 November 2026 this holds.", "date", "23 November 2026"),
        ("It is 14:05:09 now.", "time", "14:05:09"),
        ("started at 1763895600", "time", "1763895600"),
        ("Run 0b1e6f0c-9a52-4f0e-8a3e-2f4c8d9e7a11", "random", "0b1e6f0c-9a52-4f0e-8a3e-2f4c8d9e7a11"),
        ("This is turn number 7.", "counter", "turn number 7"),
    ],
)
def test_a_sign_is_found_with_its_line(text: str, kind: str, shown: str) -> None:
    (found,) = volatile_in(f"First line.\n{text}\nLast line.")
    assert (found.kind, found.shown, found.line) == (kind, shown, 2)


@pytest.mark.parametrize(
    "text",
    [
        "Version 1.2.3 of port 8080, ratio 3:2, chapter 12:1, 2026 alone.",
        "Amounts below 1000000 are fine.",
        "```\ndate: 2026-11-23\n```",
        "~~~~\n```\n2026-11-23 14:05\n~~~~",
        "{# Written on 2026-11-23,\nat 14:05. #}",
        "Release build-2026-11-23-x",
    ],
)
def test_what_only_looks_like_a_sign_is_left_alone(text: str) -> None:
    assert volatile_in(text) == ()


def test_lines_behind_a_comment_and_a_fence_keep_their_numbers() -> None:
    assert [found.line for found in volatile_in("{# a\nb #}\n```\nx\n```\non 2026-11-23")] == [6]


def test_no_more_than_twenty_signs_are_told() -> None:
    assert len(volatile_in("2026-11-23 " * 1_000)) == 20


@for_every(
    [
        ("custom.now", "time"), ("agent.current_time", "time"), ("agent.currentTime", "time"),
        ("memory.request_id", "random"), ("custom.requestID", "random"), ("custom.uuid", "random"),
        ("agent.turn", "counter"), ("agent.time_zone", ""), ("custom.time_limit", ""), ("custom.timeout", ""),
        ("target.user_id", ""), ("time.zone_name", ""), ("target.service", ""),
    ]
)  # fmt: skip
def test_a_name_says_what_its_value_is(path: str, kind: str) -> None:
    assert volatile_name(path) == kind


def test_values_of_a_context_are_judged_by_their_names_and_texts() -> None:
    target: dict[str, Json] = {"since": "2026-11-23", "team": ["red", {"now": "later"}], "count": 3, "nothing": None}
    found = [(path, sign.kind, sign.shown) for path, sign in volatile_values({"target": target})]
    assert found == [("target.since", "date", "2026-11-23"), ("target.team.now", "time", "now")]

"""Signs of clocks, dates, counters and random ids, and what only looks like one."""

import pytest

from proxy.core.prompts.prompt import Json
from proxy.core.prompts.steadiness import volatile_in, volatile_name, volatile_values
from tests.examples import for_every


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
        ("custom.now", "time"),
        ("agent.current_time", "time"),
        ("agent.currentTime", "time"),
        ("memory.request_id", "random"),
        ("custom.requestID", "random"),
        ("custom.uuid", "random"),
        ("agent.turn", "counter"),
        ("agent.time_zone", ""),
        ("custom.time_limit", ""),
        ("custom.timeout", ""),
        ("target.user_id", ""),
        ("time.zone_name", ""),
        ("target.service", ""),
    ]
)
def test_a_name_says_what_its_value_is(path: str, kind: str) -> None:
    assert volatile_name(path) == kind


def test_values_of_a_context_are_judged_by_their_names_and_texts() -> None:
    target: dict[str, Json] = {"since": "2026-11-23", "team": ["red", {"now": "later"}], "count": 3, "nothing": None}
    found = [(path, sign.kind, sign.shown) for path, sign in volatile_values({"target": target})]
    assert found == [("target.since", "date", "2026-11-23"), ("target.team.now", "time", "now")]

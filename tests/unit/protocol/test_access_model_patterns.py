"""Allow-lists of models."""

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.access import allows, captured, fitting, matches
from tests.examples import for_every
from tests.growth import assert_linear

FEW = st.text("ab/*", max_size=8)


@for_every(
    [
        ("sonnet", "sonnet", True), ("sonnet", "sonnet-4", False), ("*", "", True),
        ("openai/*", "openai/gpt-5", True), ("openai/*", "openai", False), ("*/gpt-*", "openai/gpt-5", True),
        ("a*a", "a", False), ("a*b*c", "abbc", True), ("a*b*c", "acb", False), ("gpt-[45]", "gpt-4", False),
    ]
)  # fmt: skip
def test_a_star_stands_for_any_text_and_nothing_else_is_special(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_model_patterns_agree_with_the_shell(pattern: str, name: str) -> None:
    assert matches(pattern, name) is fnmatch.fnmatchcase(name, pattern)


def test_many_stars_take_linear_time() -> None:
    pattern = "*a" * 1000 + "b"
    assert not matches(pattern, "a" * 100_000)
    assert_linear(lambda name: matches(pattern, name), lambda size: "a" * size, 25_000)


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([], True), ([[], []], True), ([["sonnet"], []], True), ([["sonnet", "haiku"], ["s*"]], True),
        ([["haiku"], ["*"]], False), ([["*"], ["haiku"]], False), ([["fast"]], True),
    ],
)  # fmt: skip
def test_the_narrower_list_wins(lists: list[list[str]], expected: bool) -> None:
    assert allows(lists, ["sonnet", "fast"]) is expected


@pytest.mark.parametrize(
    ("lists", "expected"),
    [([["beta"]], True), ([["beta"], ["haiku"]], False), ([["b*"]], False), ([["beta-2"]], False), ([[]], True)],
)
def test_a_group_is_listed_by_its_whole_name(lists: list[list[str]], expected: bool) -> None:
    assert allows(lists, ["sonnet", "fast"], ("beta",)) is expected


def test_patterns_that_fit_come_with_the_most_general_first() -> None:
    patterns = ["gpt-5", "*", "gpt-*", "openai/*", "claude", "*-5"]

    assert fitting(patterns, ["openai/gpt-5", "gpt-5"]) == ["*", "*-5", "gpt-*", "openai/*", "gpt-5"]
    assert fitting(["b", "a"], ["a", "b", "c", "a"]) == ["a", "b"]
    assert fitting(["gpt-*"], ["claude"]) == []


@given(FEW, st.text("ab/", max_size=10))
def test_each_star_stands_for_what_a_regular_expression_would_find(pattern: str, name: str) -> None:
    found = re.fullmatch(re.escape(pattern).replace(r"\*", "(.*)"), name, re.DOTALL)
    assert captured(pattern, name) == (found.groups() if found is not None else None)


def test_a_star_stands_for_line_ends_too() -> None:
    assert captured("a*c", "a\nb\nc") == ("\nb\n",)
    assert captured("a", "a") == ()
    assert captured("a", "b") is None

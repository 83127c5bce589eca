"""Patterns of conditions, and what they may cost."""

import pytest

from proxy.core.prompts.failures import ConditionError
from proxy.core.prompts.pattern import MOST_PATTERN_CHARS, compiled, is_found
from tests.examples import for_every


def refusal(pattern: str, text: str) -> ConditionError:
    with pytest.raises(ConditionError) as error:
        is_found(pattern, text)
    return error.value


@for_every(
    [
        ("prod", "the product", True),
        ("^prod$", "the product", False),
        ("(?i)PROD", "prod", True),
        ("", "", True),
        ("é.ü", "é🙂ü", True),
        (r"\bprod\b", "in prod.", True),
        ("a.b", "a\nb", False),
        ("(a)(b)", "ab", True),
    ]
)
def test_a_pattern_is_found_anywhere_in_a_text(pattern: str, text: str, expected: bool) -> None:
    assert is_found(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1001}", "[b-a]"])
def test_what_is_no_pattern_of_the_library_is_refused(pattern: str) -> None:
    assert refusal(pattern, "a").code == "invalid_pattern"


@pytest.mark.parametrize("pattern", ["a" * (MOST_PATTERN_CHARS + 1), "(a{100}){100}", ".{500}c", "(a?){1000}"])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    assert refusal(pattern, "a").code == "invalid_pattern"


def test_the_size_that_is_allowed_can_be_smaller() -> None:
    compiled("a{100}", 200)
    with pytest.raises(ConditionError):
        compiled("a{100}", 50)


def test_a_long_text_is_searched_by_a_small_pattern_only() -> None:
    assert is_found("b", "a" * 64_000 + "b")
    assert refusal("[ab]*a[ab]{200}c", "ab" * 32_000).code == "too_long"


def test_the_text_that_a_pattern_may_look_at_shrinks_with_the_size_of_the_pattern() -> None:
    size = compiled("a{50}b").programsize

    assert not is_found("a{50}b", "a" * (1_000_000 // size))
    assert refusal("a{50}b", "a" * (1_000_000 // size + 1)).code == "too_long"


def test_half_a_surrogate_pair_is_a_character_like_any_other() -> None:
    assert is_found("^a.b$", "a\ud800b")
    assert is_found("\ud800", "a\ud800b")
    assert not is_found("\ud801", "a\ud800b")


def test_no_message_holds_the_pattern_or_the_text(capfd: pytest.CaptureFixture[str]) -> None:
    for error in (refusal("(secret", "text"), refusal("(?P<secret", "text"), refusal("[ab]*a[ab]{200}c", "b" * 64_000)):
        assert "secret" not in str(error)
        assert "bbb" not in str(error)

    assert capfd.readouterr() == ("", "")

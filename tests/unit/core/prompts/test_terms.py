"""Terms by which nothing can be composed."""

from dataclasses import replace

import pytest

from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.terms import PromptTerms


def test_terms_that_name_no_text_are_empty_whatever_else_they_say() -> None:
    assert PromptTerms(profile="chat", tools=True, context={"custom": {"a": 1}}).is_empty


@pytest.mark.parametrize(
    "said",
    [{"use": ("system",)}, {"persona": "terse"}, {"override": "x"}, {"extras": (Prompt("a", Position.USER, "x"),)}],
)
def test_terms_that_name_a_text_are_not_empty(said: dict[str, object]) -> None:
    assert not replace(PromptTerms(), **said).is_empty  # type: ignore[arg-type]

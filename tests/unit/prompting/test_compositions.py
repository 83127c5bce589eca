"""Compositions are made once for everything that they depend on."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.aside import Aside
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.failures import PromptFailure
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Json, Prompt, PromptContext
from proxy.core.prompts.terms import PromptTerms
from proxy.prompting.compositions import MOST_CHARS, Compositions

TERMS = PromptTerms(use=("*",), context={"custom": {"a": 1}})


@dataclass
class Set:
    """Prompts that count how often they are rendered."""

    prompts: tuple[Prompt, ...] = (Prompt("a", Position.SYSTEM, "A"),)
    version: str = "1"
    rendered: int = 0

    def render(self, prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
        self.rendered += 1
        return prompt.text


@dataclass
class Made:
    """Compositions, and what they said of those that they made."""

    seen: list[Composition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compositions = Compositions(Aside(), lambda composition, terms: self.seen.append(composition))

    def by(self, terms: PromptTerms, prompts: Set) -> Composition:
        return asyncio.run(self.compositions.by(terms, prompts)).composition


def test_an_unchanged_context_is_composed_once() -> None:
    made, prompts = Made(), Set()
    assert made.by(TERMS, prompts) is made.by(replace(TERMS, context={"custom": {"a": 1}}), prompts)
    assert (prompts.rendered, len(made.seen)) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"context": {"custom": {"a": "1"}}},
        {"context": {"custom": {"a": True}}},
        {"use": ("a",)},
        {"persona": "p"},
        {"profile": "p"},
        {"override": "o"},
        {"tools": True},
        {"strict": True},
        {"extras": (Prompt("b", Position.USER, "\ud800", is_literal=True),)},
    ],
)
def test_whatever_changes_the_texts_is_composed_anew(change: dict[str, Any]) -> None:
    made, prompts = Made(), Set()
    made.by(TERMS, prompts)
    made.by(replace(TERMS, **change), prompts)
    assert len(made.seen) == 2


def test_other_prompts_are_composed_anew() -> None:
    made = Made()
    made.by(TERMS, Set())
    assert made.by(TERMS, Set((Prompt("a", Position.SYSTEM, "B"),), "2")).system == "B"


def test_many_prompts_are_composed_beside_the_event_loop() -> None:
    made = Made()
    prompts = Set(tuple(Prompt(str(i), Position.SYSTEM, "A") for i in range(200)))
    assert len(made.by(TERMS, prompts).parts) == 200


def test_all_prompts_together_have_a_bound() -> None:
    made, half = Made(), "x" * (MOST_CHARS // 2)
    fitting = (Prompt("a", Position.SYSTEM, half), Prompt("b", Position.SYSTEM, half))
    assert len(made.by(TERMS, Set(fitting)).parts) == 2
    with pytest.raises(PromptFailure, match="together"):
        made.by(TERMS, Set((*fitting, Prompt("c", Position.SYSTEM, "y")), "2"))

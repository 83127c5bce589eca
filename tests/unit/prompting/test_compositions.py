"""Compositions are made once for everything that they depend on."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.aside import Aside
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.failures import PromptFailure
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.terms import PromptTerms
from proxy.prompting.compositions import MOST_CHARS, Compositions
from proxy.prompting.snapshot import Snapshot
from tests.examples import for_every

TERMS = PromptTerms(use=("*",), context={"custom": {"a": 1}})


def prompts_of(*prompts: Prompt) -> Snapshot:
    return Snapshot.of(prompts or (Prompt("a", Position.SYSTEM, "A"),))


@dataclass
class Made:
    """Compositions, and what they said of those that they made."""

    seen: list[Composition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compositions = Compositions(Aside(), lambda composition, terms: self.seen.append(composition))

    def by(self, terms: PromptTerms, prompts: Snapshot) -> Composition:
        return asyncio.run(self.compositions.by(terms, prompts)).composition


def test_an_unchanged_context_is_composed_once() -> None:
    made, prompts = Made(), prompts_of()
    assert made.by(TERMS, prompts) is made.by(replace(TERMS, context={"custom": {"a": 1}}), prompts)
    assert len(made.seen) == 1


@for_every(
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
    ]
)
def test_whatever_changes_the_texts_is_composed_anew(change: dict[str, Any]) -> None:
    made, prompts = Made(), prompts_of()
    made.by(TERMS, prompts)
    made.by(replace(TERMS, **change), prompts)
    assert len(made.seen) == 2


def test_other_prompts_are_composed_anew() -> None:
    made = Made()
    made.by(TERMS, prompts_of())
    assert made.by(TERMS, prompts_of(Prompt("a", Position.SYSTEM, "B"))).system == "B"


def test_many_prompts_are_composed_beside_the_event_loop() -> None:
    made = Made()
    prompts = prompts_of(*(Prompt(str(i), Position.SYSTEM, "A") for i in range(200)))
    assert len(made.by(TERMS, prompts).parts) == 200


def test_all_prompts_together_have_a_bound() -> None:
    made, half = Made(), "x" * (MOST_CHARS // 2)
    fitting = [Prompt(name, Position.SYSTEM, half, is_literal=True) for name in ("a", "b")]
    assert len(made.by(TERMS, prompts_of(*fitting)).parts) == 2
    with pytest.raises(PromptFailure, match="together"):
        made.by(TERMS, prompts_of(*fitting, Prompt("c", Position.SYSTEM, "y")))

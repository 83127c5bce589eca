"""What is composed of which prompts. ``assembly.vectors`` says how to read it."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.prompts import Condition, Position, Prompt, PromptFailure, PromptTerms, Variable, merged
from proxy.prompts.assembler import assemble
from proxy.services.prompting.sources import CompiledTemplates
from tests.examples import for_every
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(
    Path(__file__).with_name("assembly.vectors"),
    "prompt extra context terms system before after used skipped fails",
    "document code both ours",
)


def prompt(text: str, *, is_literal: bool = False) -> Prompt:
    prompt_id, position, rest = text.split(" ", 2)
    template, end = json.JSONDecoder().raw_decode(rest)
    more: dict[str, Any] = json.loads(rest[end:] or "{}")
    more["conditions"] = tuple(Condition(*each) for each in more.get("conditions", ()))
    more["variables"] = tuple(Variable(**each) for each in more.get("variables", ()))
    return Prompt(prompt_id, Position(position), template, is_literal=is_literal, **more)


def terms(vector: Vector) -> PromptTerms:
    said: dict[str, Any] = {"use": ["*"], **json.loads(vector.one("terms", "{}"))}
    said["extras"] = tuple(prompt(each, is_literal=True) for each in vector.all("extra"))
    return PromptTerms(**{**said, "use": tuple(said["use"])})


@for_every(VECTORS)
def test_the_texts_are_composed_as_the_rule_says(vector: Vector) -> None:
    prompts = [prompt(each) for each in vector.all("prompt")]
    context = merged(json.loads(vector.one("context", "{}")))
    render = CompiledTemplates(prompts).render
    if fails := vector.one("fails"):
        with pytest.raises(PromptFailure) as failure:
            assemble(prompts, terms(vector), context, render)
        assert ["operator", "client"][failure.value.is_client] + " " + failure.value.prompt_id == fails
        return

    found = assemble(prompts, terms(vector), context, render)

    assert found.system == json.loads(vector.one("system", '""'))
    assert found.inset.before == json.loads(vector.one("before", '""'))
    assert found.inset.after == json.loads(vector.one("after", '""'))
    assert [part.id for part in found.parts] == vector.one("used").split()
    assert found.skipped == json.loads(vector.one("skipped", "{}"))

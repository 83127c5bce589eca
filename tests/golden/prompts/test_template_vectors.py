"""What templates print. ``templates.vectors`` says how to read it."""

import json
from pathlib import Path

import pytest

from proxy.prompts import Position, Prompt, PromptContext, RenderError, merged
from proxy.services.prompting.sources import CompiledTemplates
from tests.examples import for_every
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(Path(__file__).with_name("templates.vectors"), "context given fails", "document code both ours")


def printed(template: str, context: PromptContext) -> str:
    prompt = Prompt("p", Position.SYSTEM, template)
    return CompiledTemplates([prompt]).render(prompt, context, {})


@for_every(VECTORS)
def test_templates_print_what_the_rule_says(vector: Vector) -> None:
    context = merged(json.loads(vector.one("context")))

    for text in vector.all("given"):
        template, _, expected = text.rpartition(" => ")
        assert printed(json.loads(template), context) == json.loads(expected), text
    for text in vector.all("fails"):
        with pytest.raises(RenderError):
            printed(json.loads(text), context)
    assert len(vector.lines) > 1

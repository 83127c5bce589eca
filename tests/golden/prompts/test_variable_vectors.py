"""The value of a variable. ``variables.vectors`` says how to read it."""

import json
from pathlib import Path

import pytest

from proxy.prompts import RenderError, Variable, merged, resolved
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(
    Path(__file__).with_name("variables.vectors"), "context given missing", "document code both ours"
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.says)
def test_variables_have_the_values_that_the_rule_says(vector: Vector) -> None:
    context = merged(json.loads(vector.one("context")))

    for text in vector.all("given"):
        given, _, value = text.partition(" => ")
        variable = Variable(**json.loads(given))
        assert resolved((variable,), context) == {variable.name: json.loads(value)}, text
    for text in vector.all("missing"):
        with pytest.raises(RenderError):
            resolved((Variable(**json.loads(text)),), context)
    assert len(vector.lines) > 1

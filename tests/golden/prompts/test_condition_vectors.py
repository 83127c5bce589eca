"""Which condition holds in which context. ``conditions.vectors`` says how to read it."""

import json
from pathlib import Path

import pytest

from proxy.prompts import Condition, ConditionError, merged
from proxy.prompts.assembler import holds
from tests.examples import for_every
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(
    Path(__file__).with_name("conditions.vectors"), "context yes no refused", "document code both ours"
)


def condition(text: str) -> Condition:
    field, operator, *value = text.split(" ", 2)
    return Condition("" if field == '""' else field, operator, json.loads(value[0]) if value else None)


@for_every(VECTORS)
def test_conditions_hold_as_the_rule_says(vector: Vector) -> None:
    context = merged(json.loads(vector.one("context")))

    assert [text for text in vector.all("yes") if not holds(condition(text), context)] == []
    assert [text for text in vector.all("no") if holds(condition(text), context)] == []
    for text in vector.all("refused"):
        code, _, rest = text.partition(" ")
        with pytest.raises(ConditionError) as error:
            holds(condition(rest), context)
        assert error.value.code == code, text
    assert len(vector.lines) > 1

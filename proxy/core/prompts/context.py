"""The context of conditions and templates: merges several contexts, finds the value at a path, and gives the values of
the variables that a prompt names."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import orjson

from proxy.core.prompts.prompt import ROOTS, Json, PromptContext, RenderError, Variable

MOST_CONTEXT_BYTES = 64 << 10
"""The longest JSON of a client's context."""
MOST_LEVELS = 16
"""The most objects and arrays within each other in a context. A root is the first one."""
MOST_VALUES = 2_000
"""The most objects, arrays and values within them in a context."""
_MOST_NUMBER = 2**63


def merged(*contexts: Mapping[str, Mapping[str, Json]]) -> PromptContext:
    """The contexts, merged as by ``added``, with every root. A root that no context has is an empty object."""
    return reduce(added, contexts, {root: {} for root in ROOTS})


def added(context: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The first context with the second one added. Objects are merged name by name; any other value of the second
    context replaces that of the first one."""
    both = dict(context)
    for name, value in more.items():
        old = both.get(name)
        both[name] = added(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def value_at(context: PromptContext, path: str) -> tuple[bool, Json]:
    """Whether the context has a value at this path of names and dots, and the value. Null counts as a value. A name
    with a dot in it, and an element of an array, have no path."""
    root, *names = path.split(".")
    if root not in context:
        return False, None
    value: object = context[root]
    for name in names:
        if not isinstance(value, (dict, Mapping)) or name not in value:
            return False, None
        value = value[name]
    return True, value  # type: ignore[return-value]  # an object of the context


def exceeded_bound(context: Mapping[str, Mapping[str, Json]]) -> str:
    """The bound that the context exceeds, in words that follow "it has". "" if it exceeds none."""
    values = 0
    level: list[object] = list(context.values())
    for _ in range(MOST_LEVELS):
        values += len(level)
        if values > MOST_VALUES:
            return f"more than {MOST_VALUES} values"
        if any(isinstance(each, int) and not -_MOST_NUMBER <= each < _MOST_NUMBER for each in level):
            return "a whole number of more than 64 bits"
        level = [
            inner
            for each in level
            if isinstance(each, (list, Mapping))
            for inner in (each if isinstance(each, list) else each.values())
        ]
        if not level:
            return ""
    return f"more than {MOST_LEVELS} levels"


def is_json(value: object) -> bool:
    """Whether the value can be written as JSON. JSON has no dates, no names that are numbers, no half of a surrogate
    pair, and no infinite number."""
    try:
        return bool(orjson.loads(orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME)) == value)
    except orjson.JSONEncodeError:
        return False


def resolved(variables: Sequence[Variable], context: PromptContext) -> Mapping[str, Json]:
    """The value of each variable: the root of the context that has its name, or else the value at its source, or else
    its default. Raises RenderError for a required variable that has neither of the first two."""
    return {variable.name: _value(variable, context) for variable in variables}


def _value(variable: Variable, context: PromptContext) -> Json:
    is_there, value = value_at(context, variable.name if variable.name in ROOTS else variable.source)
    if is_there:
        return value
    if variable.required:
        raise RenderError(f"the required variable '{variable.name}' has no value")
    return variable.default

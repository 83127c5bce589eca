"""The values of the variables that a prompt names."""

from collections.abc import Mapping, Sequence

from proxy.core.prompts.context import value_at
from proxy.core.prompts.failures import RenderError
from proxy.core.prompts.prompt import ROOTS, Json, PromptContext, Variable


def resolved(variables: Sequence[Variable], context: PromptContext) -> Mapping[str, Json]:
    """The value of each variable: the root of the context that has its name, or else what stands at its source, or else
    its default. Raises RenderError for a required one that has neither of the first two."""
    return {variable.name: _value(variable, context) for variable in variables}


def _value(variable: Variable, context: PromptContext) -> Json:
    is_there, value = value_at(context, variable.name if variable.name in ROOTS else variable.source)
    if is_there:
        return value
    if variable.required:
        raise RenderError(f"the required variable '{variable.name}' has no value")
    return variable.default

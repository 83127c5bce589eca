"""From the prompts of the registry and the terms of a request to the texts that are added to it."""

from collections.abc import Callable, Mapping, Sequence

from proxy.core.prompts.composition import ComposedPart, Composition
from proxy.core.prompts.conditions import holds
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import ConditionError, PromptFailure, RenderError
from proxy.core.prompts.inset import Inset
from proxy.core.prompts.position import AFTER_USER, BEFORE_USER, SYSTEM_POSITIONS, Position
from proxy.core.prompts.prompt import Json, Prompt, PromptContext
from proxy.core.prompts.selection import chosen, missing_persona
from proxy.core.prompts.terms import PromptTerms
from proxy.core.prompts.variables import resolved

Render = Callable[[Prompt, PromptContext, Mapping[str, Json]], str]
"""The text of a prompt, from its template, the context and its variables. Raises RenderError."""


def assemble(prompts: Sequence[Prompt], terms: PromptTerms, context: PromptContext, render: Render) -> Composition:
    """The composition of these prompts, which are in the order of their registration. Where a prompt's condition cannot
    be evaluated or its template cannot be rendered, it is left out; in strict mode PromptFailure is raised. In any mode
    it is raised where a registered prompt fails for what the client adds to the context: a client must not have it left
    out."""
    parts: list[ComposedPart] = []
    skipped = missing_persona(prompts, terms)
    for prompt in chosen(prompts, terms):
        try:
            text, reason = _text(prompt, context, render)
        except (ConditionError, RenderError) as error:
            is_extra = any(prompt is extra for extra in terms.extras)
            is_broken = not is_extra and _is_broken(prompt, terms, render)
            if terms.strict or is_broken:
                raise PromptFailure(prompt.id, is_client=is_extra or is_broken, why=str(error)) from error
            text, reason = "", "bad_condition" if isinstance(error, ConditionError) else "render_error"
        if text:
            parts.append(ComposedPart(prompt.id, prompt.position, text))
        else:
            skipped[prompt.id] = reason
    return Composition(
        system=terms.override or _joined(parts, SYSTEM_POSITIONS),
        inset=Inset(_joined(parts, BEFORE_USER), _joined(parts, AFTER_USER)),
        parts=tuple(parts),
        skipped=skipped,
    )


def _text(prompt: Prompt, context: PromptContext, render: Render) -> tuple[str, str]:
    """The trimmed text of the prompt, or "" and the reason why there is none."""
    if not all(holds(condition, context) for condition in prompt.conditions):
        return "", "condition"
    text = prompt.text if prompt.is_literal else render(prompt, context, resolved(prompt.variables, context))
    return text.strip(), "blank"


def _is_broken(prompt: Prompt, terms: PromptTerms, render: Render) -> bool:
    """Whether a prompt that fails would not fail without what the client adds to the context."""
    if terms.own_context is None:
        return False
    try:
        _text(prompt, merged(terms.own_context), render)
    except (ConditionError, RenderError):
        return False
    return True


def _joined(parts: Sequence[ComposedPart], positions: Sequence[Position]) -> str:
    return "\n\n".join(part.text for part in parts if part.position in positions)

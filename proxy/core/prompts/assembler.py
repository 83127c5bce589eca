"""Chooses and orders the prompts of the registry for a request, and puts together the texts that are added to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from proxy.core.digest import digest
from proxy.core.model_patterns import matches_any
from proxy.core.prompts.composition import Composition, Inset
from proxy.core.prompts.conditions import holds
from proxy.core.prompts.context import merged, resolved
from proxy.core.prompts.prompt import (
    AFTER_USER,
    BEFORE_USER,
    SYSTEM_POSITIONS,
    ConditionError,
    Json,
    Position,
    Prompt,
    PromptContext,
    PromptFailure,
    RenderError,
)
from proxy.core.prompts.terms import FLAGS, PromptTerms
from proxy.core.value import replace
from proxy.core.wire.surrogates import utf8

_ORDER: Mapping[Position, int] = MappingProxyType({position: rank for rank, position in enumerate(Position)})
PERSONA_PREFIX = "persona:"
"""A prompt whose id begins with this is composed only if the terms choose its persona."""


def chosen(prompts: Sequence[Prompt], terms: PromptTerms) -> tuple[Prompt, ...]:
    """The prompts that the terms choose, in the order in which they are composed: by position, then by descending
    priority, then by registration. An extra prompt replaces the registered one with the same id, but it never replaces
    the registered prompt of the chosen persona."""
    persona = PERSONA_PREFIX + terms.persona if terms.persona else ""
    found = {prompt.id: prompt for prompt in prompts if prompt.id == persona or matches_any(terms.use, prompt.id)}
    ranks = {prompt.id: rank for rank, prompt in enumerate(prompts)}
    for extra in terms.extras:
        if extra.id != persona or persona not in found:
            found[extra.id] = extra
        ranks.setdefault(extra.id, len(ranks))
    fitting = [prompt for prompt in found.values() if _fits(prompt, persona, terms)]
    return in_order(sorted(fitting, key=lambda prompt: ranks[prompt.id]))


def in_order(prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    """The prompts by position, then by descending priority, then in their present order."""
    return tuple(sorted(prompts, key=lambda prompt: (_ORDER[prompt.position], -prompt.priority)))


def _fits(prompt: Prompt, persona: str, terms: PromptTerms) -> bool:
    if prompt.profile not in ("", terms.profile):
        return False
    if prompt.id.startswith(PERSONA_PREFIX) and prompt.id != persona:
        return False
    if terms.override and prompt.position.is_system:
        return False
    return prompt.position not in FLAGS or bool(getattr(terms, prompt.position))


Render = Callable[[Prompt, PromptContext, Mapping[str, Json]], str]
"""The text of a prompt, from its template, the context and its variables. Raises RenderError."""


def assemble(prompts: Sequence[Prompt], terms: PromptTerms, context: PromptContext, render: Render) -> Composition:
    """The composition of these prompts, which are in the order of their registration. If a prompt's condition cannot be
    evaluated or its template cannot be rendered, the prompt is left out; in strict mode, PromptFailure is raised. It is
    raised in any mode if a registered prompt fails because of what the client adds to the context: a client must not be
    able to leave out a prompt in this way."""
    parts: list[Prompt] = []
    persona = PERSONA_PREFIX + terms.persona
    has_persona = not terms.persona or any(prompt.id == persona for prompt in (*prompts, *terms.extras))
    skipped = {} if has_persona else {persona: "missing"}
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
            parts.append(replace(prompt, text=text))
        else:
            skipped[prompt.id] = reason
    return Composition(
        system=terms.override or _joined(parts, SYSTEM_POSITIONS),
        inset=Inset(_joined(parts, BEFORE_USER), _joined(parts, AFTER_USER)),
        parts=tuple(parts),
        skipped=skipped,
        prints={part.id: digest(utf8(part.text)) for part in parts if part.position.is_system},
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


def _joined(parts: Sequence[Prompt], positions: Sequence[Position]) -> str:
    return "\n\n".join(part.text for part in parts if part.position in positions)

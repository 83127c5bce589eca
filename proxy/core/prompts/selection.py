"""Which prompts are composed for a request, before their conditions are asked."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from proxy.core.model_patterns import matches_any
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.terms import PromptTerms

_FLAGS: Mapping[Position, str] = MappingProxyType(
    {Position.TOOLS: "tools", Position.PLUGINS: "plugins", Position.AGENTS: "agents"}
)
_ORDER: Mapping[Position, int] = MappingProxyType({position: rank for rank, position in enumerate(Position)})
PERSONA_PREFIX = "persona:"
"""A prompt whose id begins so is composed only where the terms choose this persona."""


def chosen(prompts: Sequence[Prompt], terms: PromptTerms) -> tuple[Prompt, ...]:
    """The prompts that the terms choose, in the order in which they are composed: by position, then by descending
    priority, then as they are registered. An extra prompt takes the place of the registered one with its id; the chosen
    persona's registered prompt gives way to none."""
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
    """The prompts by position, then by descending priority, then as they stand."""
    return tuple(sorted(prompts, key=lambda prompt: (_ORDER[prompt.position], -prompt.priority)))


def missing_persona(prompts: Sequence[Prompt], terms: PromptTerms) -> dict[str, str]:
    """That the chosen persona has no prompt, as a reason by its id; empty where it has one or none is chosen."""
    persona = PERSONA_PREFIX + terms.persona
    if not terms.persona or any(prompt.id == persona for prompt in (*prompts, *terms.extras)):
        return {}
    return {persona: "missing"}


def _fits(prompt: Prompt, persona: str, terms: PromptTerms) -> bool:
    if prompt.profile not in ("", terms.profile):
        return False
    if prompt.id.startswith(PERSONA_PREFIX) and prompt.id != persona:
        return False
    if terms.override and prompt.position.is_system:
        return False
    flag = _FLAGS.get(prompt.position)
    return flag is None or bool(getattr(terms, flag))

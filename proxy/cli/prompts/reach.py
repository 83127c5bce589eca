"""Which prompts some request can get, and why others never are composed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from proxy.cli.prompts.setup import PromptSetup
from proxy.cli.prompts.variants import Variant, terms_of, variants
from proxy.core.model_patterns import matches
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.selection import PERSONA_PREFIX, chosen
from proxy.core.prompts.terms import PromptTerms

_FLAGS = (Position.TOOLS, Position.PLUGINS, Position.AGENTS)


@dataclass(frozen=True, slots=True)
class Reach:
    """``used`` are the ids of prompts that some request can get, by each of its terms in ``all_terms``; ``unused`` says
    of the others why."""

    all_terms: tuple[tuple[Variant, PromptTerms], ...]
    used: frozenset[str]
    unused: dict[str, str] = field(default_factory=dict)


def reach(prompts: Sequence[Prompt], setup: PromptSetup) -> Reach:
    """What requests can get by the rules of a setup, whatever their context is. Raises ConfigError."""
    all_terms = tuple((variant, terms_of(setup, variant)) for variant in variants(prompts, setup))
    used = {prompt.id for _, terms in all_terms for one in _with_flags(terms) for prompt in chosen(prompts, one)}
    unused = {prompt.id: _why(prompt, [terms for _, terms in all_terms]) for prompt in prompts if prompt.id not in used}
    return Reach(all_terms, frozenset(used), unused)


def _with_flags(terms: PromptTerms) -> Iterator[PromptTerms]:
    """The terms with the flags as they are, and as a client may set them."""
    yield terms
    if terms.allowed.flags:
        yield replace(terms, tools=True, plugins=True, agents=True)


def _why(prompt: Prompt, all_terms: Sequence[PromptTerms]) -> str:
    """Why no request gets the prompt."""
    if prompt.id.startswith(PERSONA_PREFIX):
        name = prompt.id.removeprefix(PERSONA_PREFIX)
        return f"the persona '{name}' is never chosen: no configuration names it, and no client may choose it"
    if not any(matches(pattern, prompt.id) for terms in all_terms for pattern in terms.use):
        return "no configuration uses it"
    if prompt.profile and all(terms.profile != prompt.profile for terms in all_terms):
        return f"the profile '{prompt.profile}' is never chosen"
    if prompt.position in _FLAGS and not any(getattr(terms, prompt.position.value) for terms in all_terms):
        return f"the flag '{prompt.position.value}' is never set"
    return "an override takes the place of the system text, or another setting rules it out, wherever it is used"

"""Composes prompts as the proxy does, and says what became of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from proxy.cli.prompt_contexts import GivenContext
from proxy.cli.prompt_sources import PromptSource
from proxy.cli.prompt_variants import Variant, terms_of
from proxy.core.prompts.assembler import assemble
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import PromptFailure
from proxy.core.prompts.terms import PromptTerms
from proxy.core.request.tokens import Encode
from proxy.prompting.snapshot import Snapshot

_WHY = {
    "condition": "a condition does not hold",
    "bad_condition": "a condition cannot be evaluated",
    "render_error": "the template cannot be rendered",
    "blank": "the text is blank",
    "missing": "there is no such prompt",
}
MISTAKES = frozenset({"bad_condition", "render_error", "missing"})
"""The reasons that nobody can want."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the composed texts, as counted on this machine."""

    system: int
    before_user: int
    after_user: int

    @property
    def user(self) -> int:
        """Tokens around the newest user message."""
        return self.before_user + self.after_user


def why(reason: str) -> str:
    """What a reason for which a prompt is left out means."""
    return _WHY.get(reason, reason)


def composed(source: PromptSource, snapshot: Snapshot, variant: Variant, context: GivenContext) -> Composition:
    """What such a request gets with this context. Raises Forbidden and PromptFailure."""
    return composed_by(terms_of(source, variant), snapshot, context)


def composed_by(terms: PromptTerms, snapshot: Snapshot, context: GivenContext) -> Composition:
    """What a request of these terms gets with this context. Raises PromptFailure."""
    return assemble(snapshot.prompts, terms, merged(terms.context, context), snapshot.render)


def why_not(source: PromptSource, snapshot: Snapshot, variant: Variant, context: GivenContext) -> str:
    """What is wrong with the first prompt that is left out by mistake, in words."""
    try:
        composition = composed_by(replace(terms_of(source, variant), strict=True), snapshot, context)
    except PromptFailure as error:
        return str(error)
    return "; ".join(f"'{name}': {why(reason)}" for name, reason in mistakes(composition))


def sizes(composition: Composition, encode: Encode) -> Sizes:
    """The tokens of the composed texts."""
    inset = composition.inset
    return Sizes(encode(composition.system), encode(inset.before), encode(inset.after))


def mistakes(composition: Composition) -> Iterator[tuple[str, str]]:
    """The ids of the prompts that were left out by mistake, with the reason."""
    return ((name, reason) for name, reason in composition.skipped.items() if reason in MISTAKES)

"""The prompts of a setup as they are at one time, composed as the proxy composes them, and what became of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from proxy.cli.prompts.setup import GivenContext, PromptSetup
from proxy.cli.prompts.variants import Variant, terms_of
from proxy.core.prompts.assembler import assemble
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import PromptFailure
from proxy.core.request.tokens import Encode
from proxy.prompting.snapshot import Snapshot

WHY: Mapping[str, str] = {
    "condition": "a condition does not hold",
    "bad_condition": "a condition cannot be evaluated",
    "render_error": "the template cannot be rendered",
    "blank": "the text is blank",
    "missing": "there is no such prompt",
}
"""What a reason for which a prompt is left out means."""
_MISTAKES = frozenset({"bad_condition", "render_error", "missing"})
"""The reasons that nobody can want."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the composed texts, as counted on this machine."""

    system: int
    before_user: int
    after_user: int

    @classmethod
    def of(cls, composition: Composition, encode: Encode) -> "Sizes":
        """The tokens of these texts."""
        inset = composition.inset
        return cls(encode(composition.system), encode(inset.before), encode(inset.after))

    @property
    def user(self) -> int:
        """Tokens around the newest user message."""
        return self.before_user + self.after_user


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """A setup with its prompts; ``snapshot.version`` names it."""

    setup: PromptSetup
    snapshot: Snapshot

    def composition(self, variant: Variant, context: GivenContext, *, is_strict: bool = False) -> Composition:
        """What such a request gets with this context. ``is_strict``: in strict mode, whatever the configuration says.
        Raises Forbidden and PromptFailure."""
        terms = terms_of(self.setup, variant)
        terms = replace(terms, strict=terms.strict or is_strict)
        return assemble(self.snapshot.prompts, terms, merged(terms.context, context), self.snapshot.templates.render)

    def mistake(self, variant: Variant, context: GivenContext) -> str:
        """What is wrong with the first prompt that is left out by mistake, in words; "" where none is. Raises
        Forbidden."""
        try:
            composition = self.composition(variant, context, is_strict=True)
        except PromptFailure as error:
            return str(error)
        return "; ".join(f"'{name}': {WHY[reason]}" for name, reason in mistakes(composition))


def mistakes(composition: Composition) -> Iterator[tuple[str, str]]:
    """The ids of the prompts that were left out by mistake, with the reason."""
    return ((name, reason) for name, reason in composition.skipped.items() if reason in _MISTAKES)

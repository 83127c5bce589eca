"""What a change of prompts does to the composed texts of each kind of request, and to its cached prefix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from os.path import commonprefix

from proxy.cli.prompts.setup import GivenContext
from proxy.cli.prompts.variants import Variant, variants
from proxy.cli.prompts.version import WHY, PromptVersion, Sizes, mistakes
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.failures import PromptFailure
from proxy.core.request.tokens import Encode
from proxy.errors import ProxyError


@dataclass(frozen=True, slots=True)
class Side:
    """What a request gets before, or after, the change. ``problem`` says what is wrong there, or is empty."""

    composition: Composition = Composition()
    sizes: Sizes = Sizes(0, 0, 0)
    problem: str = ""

    @property
    def texts(self) -> Mapping[str, str]:
        """The composed texts by their places."""
        inset = self.composition.inset
        return {"system": self.composition.system, "before_user": inset.before, "after_user": inset.after}


@dataclass(frozen=True, slots=True)
class Difference:
    """The change for some kinds of requests, whose texts are the same on both sides. ``cases`` are these kinds, each
    with the name of the context that was given. ``kept_tokens`` is how much of the composed system text a session that
    is open at the change still finds in the cache; None: the change leaves the cached prefix as it is."""

    cases: tuple[tuple[Variant, str], ...]
    old: Side
    new: Side
    kept_tokens: int | None = None

    @property
    def is_changed(self) -> bool:
        """Whether anything differs."""
        return self.old.texts != self.new.texts or self.old.problem != self.new.problem

    def lines(self) -> Iterator[str]:
        """The change as a unified diff of the texts."""
        for place, text in self.old.texts.items():
            before, after = text.splitlines(), self.new.texts[place].splitlines()
            yield from unified_diff(before, after, f"old {place}", f"new {place}", lineterm="")


def differences(
    old: PromptVersion, new: PromptVersion, contexts: Mapping[str, GivenContext], encode: Encode
) -> Sequence[Difference]:
    """The change for every kind of request that either side tells apart, in each of the contexts; kinds with the same
    texts are together. Raises ConfigError."""
    prompts = {prompt.id: prompt for prompt in (*old.snapshot.prompts, *new.snapshot.prompts)}
    found: dict[tuple[object, ...], Difference] = {}
    for variant in variants(prompts.values(), old.setup, new.setup):
        for name, context in contexts.items():
            one = difference(old, new, variant, context, encode)
            key = (*one.old.texts.values(), one.old.problem, *one.new.texts.values(), one.new.problem)
            known = found.get(key)
            cases = (*known.cases, (variant, name)) if known is not None else ((variant, name),)
            found[key] = Difference(cases, one.old, one.new, one.kept_tokens)
    return list(found.values())


def difference(
    old: PromptVersion, new: PromptVersion, variant: Variant, context: GivenContext, encode: Encode
) -> Difference:
    """The change for one kind of request."""
    before, after = _side(old, variant, context, encode), _side(new, variant, context, encode)
    old_text, new_text = before.composition.system, after.composition.system
    kept_tokens = None if old_text == new_text else encode(commonprefix([old_text, new_text]))
    return Difference(((variant, ""),), before, after, kept_tokens)


def _side(version: PromptVersion, variant: Variant, context: GivenContext, encode: Encode) -> Side:
    try:
        composition = version.composition(variant, context)
    except ProxyError as error:
        return Side(problem=error.message)
    except PromptFailure as error:
        return Side(problem=f"the request is refused: {error}")
    wrong = "; ".join(f"'{name}' is left out: {WHY[reason]}" for name, reason in mistakes(composition))
    return Side(composition, Sizes.of(composition, encode), wrong)

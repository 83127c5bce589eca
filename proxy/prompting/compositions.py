"""Compositions, made once for everything that they depend on."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from proxy.aside import LARGE_BYTES, Aside
from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.prompts.assembler import assemble
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import PromptFailure
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.steadiness import Prints, prints_of
from proxy.core.prompts.terms import PromptTerms

if TYPE_CHECKING:
    from proxy.prompting.snapshot import Snapshot

_MOST_BYTES = 32 << 20
MOST_CHARS = 1 << 20
"""Of all texts of a composition: the bounds of templates hold for each of them alone."""
_MANY = 50
"""With more prompts than this a composition that is not known is made beside the event loop."""


@dataclass(frozen=True, slots=True)
class KnownComposition:
    """A composition, and what it is known by."""

    composition: Composition
    prints: Prints


def _effort(terms: PromptTerms, prompts: Sequence[Prompt]) -> int:
    """How large the work is, as bytes. What clients add to the context decides how long patterns and loops take, so
    that the operator's own texts say little of it."""
    return LARGE_BYTES if terms.is_of_client or len(prompts) > _MANY else sum(len(prompt.text) for prompt in prompts)


def _weight(known: KnownComposition) -> int:
    return 1_000 + sum(200 + 2 * len(part.text) for part in known.composition.parts)


@dataclass(slots=True)
class Compositions:
    """Composes by terms, and remembers the result. ``on_made`` hears of each composition that was not known, with its
    terms."""

    aside: Aside
    on_made: Callable[[Composition, PromptTerms], None]
    _known: Bounded[bytes, KnownComposition] = field(default_factory=lambda: Bounded(_MOST_BYTES, _weight))

    async def by(self, terms: PromptTerms, snapshot: "Snapshot") -> KnownComposition:
        """The composition by these terms. Raises PromptFailure where it is too long, or where the terms are strict."""
        name = digest(snapshot.version.encode(), _fingerprint(terms))
        known = self._known.get(name)
        if known is not None:
            self._known.used(name)
            return known
        work = partial(assemble, snapshot.prompts, terms, merged(terms.context), snapshot.templates.render)
        composition = await self.aside.run_large(_effort(terms, snapshot.prompts), work)
        if sum(len(part.text) for part in composition.parts) > MOST_CHARS:
            longest = max(composition.parts, key=lambda part: len(part.text))
            why = f"the prompts have more than {MOST_CHARS} characters together"
            raise PromptFailure(longest.id, is_client=terms.is_of_client, why=why)
        self.on_made(composition, terms)
        known = KnownComposition(composition, prints_of(composition.parts))
        self._known.put(name, known)
        return known


def _fingerprint(terms: PromptTerms) -> bytes:
    """Everything in the terms that a composition depends on. Texts may hold halves of surrogate pairs."""
    said = [
        terms.use, terms.persona, terms.profile, terms.override, terms.tools, terms.plugins, terms.agents,
        terms.context, [asdict(extra) for extra in terms.extras], terms.strict, terms.own_context,
    ]  # fmt: skip
    return json.dumps(said, sort_keys=True, default=dict).encode()

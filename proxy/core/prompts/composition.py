"""The results of composing: the system text, and the texts around a user message."""

from collections.abc import Collection, Mapping

from proxy.core.prompts.prompt import Prompt
from proxy.core.value import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Inset:
    """Texts of the operator around the client's own text in one user message; "" adds nothing. There is a blank line
    between each of them and the client's text."""

    before: str = ""
    after: str = ""

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    def followed_by(self, text: str) -> "Inset":
        """The same with a further text at the very end."""
        return Inset(self.before, "\n\n".join(part for part in (self.after, text) if part))


@dataclass(frozen=True, slots=True)
class Composition:
    """The composed texts. ``parts`` are the prompts that are in them, in order, each with its rendered text, which is
    trimmed and never blank. ``skipped`` gives, by the id of each prompt that was left out, the reason: ``condition``,
    ``bad_condition``, ``render_error``, ``blank``, or ``missing`` for a chosen persona that has no prompt. ``prints``
    are the digests of the system texts, by the ids of their prompts."""

    system: str = field(default="", repr=False)
    inset: Inset = Inset()
    parts: tuple[Prompt, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    prints: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is added to the request."""
        return not (self.system or self.inset)

    def placed(self, at_tail: Collection[str]) -> tuple[str, Inset]:
        """The system text without the prompts with these ids, and the texts around the newest user message with these
        prompts in front."""
        moved = [part.text for part in self.parts if part.id in at_tail and part.position.is_system]
        if not moved:
            return self.system, self.inset
        stays = [part.text for part in self.parts if part.position.is_system and part.id not in at_tail]
        before = [*moved, self.inset.before] if self.inset.before else moved
        return "\n\n".join(stays), replace(self.inset, before="\n\n".join(before))

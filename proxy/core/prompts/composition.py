"""What composing gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.prompts.inset import Inset
from proxy.core.prompts.position import Position


@dataclass(frozen=True, slots=True)
class ComposedPart:
    """The rendered text of one prompt, trimmed; never blank."""

    id: str
    position: Position
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Composition:
    """The composed texts. ``parts`` are those of all prompts that are in them, in order. ``skipped`` says why a prompt
    was left out, by its id: ``condition``, ``bad_condition``, ``render_error``, ``blank``."""

    system: str = field(default="", repr=False)
    inset: Inset = Inset()
    parts: tuple[ComposedPart, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is added to the request."""
        return not (self.system or self.inset)

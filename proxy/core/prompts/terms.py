"""What a configuration says about composing, what a client may add to it, and what a client asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.prompts.prompt import Json, Prompt


class OnFailure(StrEnum):
    """What happens to a request whose prompts cannot be composed."""

    REFUSE = "refuse"
    SEND_WITHOUT = "send_without"


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a client may say about composing: ``personas`` and ``profiles`` by name, with ``*`` for all; ``context`` are
    the roots that a request may add to. By default a client may say nothing."""

    override: bool = False
    extras: bool = False
    flags: bool = False
    personas: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    context: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PromptTerms:
    """What is composed for one request. ``use`` are ids of prompts, with ``*`` for any characters; where it is empty
    and nothing else asks for a text, nothing is composed. ``override`` takes the place of all system positions."""

    use: tuple[str, ...] = ()
    persona: str = ""
    profile: str = ""
    override: str = field(default="", repr=False)
    tools: bool = False
    plugins: bool = False
    agents: bool = False
    context: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, repr=False)
    extras: tuple[Prompt, ...] = ()
    own_context: Mapping[str, Mapping[str, Json]] | None = field(default=None, repr=False)
    """The context without what the client adds to it; None: the client adds nothing."""
    strict: bool = False
    on_failure: OnFailure = OnFailure.REFUSE
    allowed: Allowed = Allowed()

    @property
    def is_of_client(self) -> bool:
        """Whether anything in them is a client's text or value."""
        return bool(self.extras) or self.own_context is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be composed by these terms."""
        return not (self.use or self.override or self.persona or self.extras)


@dataclass(frozen=True, slots=True)
class PromptLayer:
    """What one level of a configuration (all, a model, a team, a key) says; None: nothing. A later level wins; its
    ``context`` is added root by root and name by name."""

    use: tuple[str, ...] | None = None
    persona: str | None = None
    profile: str | None = None
    override: str | None = field(default=None, repr=False)
    tools: bool | None = None
    plugins: bool | None = None
    agents: bool | None = None
    context: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, repr=False)
    strict: bool | None = None
    on_failure: OnFailure | None = None
    allowed: Allowed | None = None


@dataclass(frozen=True, slots=True)
class ClientWish:
    """What a request says; "" and None say nothing. ``extras`` are literal, and ``context`` has roots of the context
    only. ``by_header`` are those of ``persona`` and ``profile`` that a header says. Whether the client may ask for it
    is decided in ``proxy.core.prompts.layers``."""

    persona: str = ""
    profile: str = ""
    override: str = field(default="", repr=False)
    tools: bool | None = None
    plugins: bool | None = None
    agents: bool | None = None
    context: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, repr=False)
    extras: tuple[Prompt, ...] = ()
    by_header: frozenset[str] = frozenset()

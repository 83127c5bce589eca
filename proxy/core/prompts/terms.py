"""The terms of composing for a request. A configuration has them in levels (all requests, models, teams, keys). A later
level takes precedence, and a client adds what it is allowed to add."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Generic, TypeVar

from proxy.core.model_patterns import fitting, matches_any
from proxy.core.prompts.prompt import Json, Prompt, added
from proxy.core.value import dataclass, field, replace
from proxy.errors import Forbidden


class OnFailure(StrEnum):
    """The treatment of a request whose prompts cannot be composed."""

    REFUSE = "refuse"
    SEND_WITHOUT = "send_without"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The permissions of a client: ``personas`` and ``profiles`` by name, with ``*`` for all; ``context`` are the roots
    that a request may add to. By default a client may say nothing."""

    override: bool = False
    extras: bool = False
    flags: bool = False
    personas: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    context: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PromptTerms:
    """The terms of one request. ``use`` are ids of prompts, with ``*`` for any characters. If it is empty and nothing
    else asks for a text, nothing is composed. ``override`` replaces all system positions."""

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
        """Whether the terms have any text or value of a client."""
        return bool(self.extras) or self.own_context is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be composed by these terms."""
        return not (self.use or self.override or self.persona or self.extras)


@dataclass(frozen=True, slots=True)
class _Said:
    """The statements that a level of a configuration or a client can make. None: it says nothing. The ``context`` is
    added to the context of the earlier levels."""

    persona: str | None = None
    profile: str | None = None
    override: str | None = field(default=None, repr=False)
    tools: bool | None = None
    plugins: bool | None = None
    agents: bool | None = None
    context: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PromptLayer(_Said):
    """One level of a configuration (all, a model, a team, a key). A later level takes precedence. Its ``context`` is
    added root by root and name by name."""

    use: tuple[str, ...] | None = None
    strict: bool | None = None
    on_failure: OnFailure | None = None
    allowed: Allowed | None = None


@dataclass(frozen=True, slots=True)
class ClientWish(_Said):
    """The wishes of a client for one request. An empty text also says nothing. ``extras`` are literal, and ``context``
    has only roots of the context. ``by_header`` names those of ``persona`` and ``profile`` that come from a header.
    ``client_terms`` checks the permissions."""

    extras: tuple[Prompt, ...] = ()
    by_header: frozenset[str] = frozenset()


_REPLACED = tuple(field.name for field in fields(PromptLayer) if field.name != "context")
FLAGS = ("tools", "plugins", "agents")
"""The positions that are composed only if the terms say so."""
_ASKED = ("persona", "profile", "override", *FLAGS)
_PARAM = "stratiform.prompts"


def layered(base: PromptTerms, *layers: PromptLayer) -> PromptTerms:
    """The terms with the statements of each layer. A later layer takes precedence. The contexts are added: objects are
    merged name by name."""
    for layer in layers:
        said = {name: value for name in _REPLACED if (value := getattr(layer, name)) is not None}
        base = replace(base, **said, context=added(base.context, layer.context) if layer.context else base.context)
    return base


def client_terms(terms: PromptTerms, wish: ClientWish) -> PromptTerms:
    """The terms with the client's wishes. Raises Forbidden (``prompts_not_allowed``) for a wish that the terms do not
    allow. A client may always ask for what the terms already say."""
    asked = {name: value for name in _ASKED if (value := getattr(wish, name)) not in ("", None, getattr(terms, name))}
    refused = [name for name, value in asked.items() if not _is_allowed(terms, name, value)]
    refused += ["extra"] if wish.extras and not terms.allowed.extras else []
    refused += [f"context.{root}" for root in wish.context if root not in terms.allowed.context]
    if refused:
        raise _refusal(refused[0], wish)
    if wish.context:
        terms = replace(terms, context=added(terms.context, wish.context), own_context=terms.context)
    return replace(terms, **asked, extras=(*terms.extras, *wish.extras))


def _is_allowed(terms: PromptTerms, name: str, value: str) -> bool:
    allowed = terms.allowed
    if name == "persona":
        return matches_any(allowed.personas, value)
    if name == "profile":
        return matches_any(allowed.profiles, value)
    return allowed.flags if name in FLAGS else allowed.override


def _refusal(field: str, wish: ClientWish) -> Forbidden:
    header = f" and the header x-stratiform-{field}" if field in ("persona", "profile") else ""
    message = f"the configuration of this key does not allow '{_PARAM}.{field}'{header}: leave it out"
    param = f"x-stratiform-{field}" if field in wish.by_header else f"{_PARAM}.{field}"
    return Forbidden(message, param=param, code="prompts_not_allowed")


Said = TypeVar("Said")
NamesOf = Callable[[str], Sequence[str]]
"""Returns every name of a model, the most general one first and the client's own last."""


def only_itself(name: str) -> Sequence[str]:
    """The names of a model that has one name."""
    return (name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels(Generic[Said]):
    """The levels of a configuration: for models (patterns of ``proxy.core.model_patterns``), for teams, and for the ids
    of keys. A later level takes precedence.

    A model is known by all of its names (``names_of``). So a client cannot avoid the rules for a model by using an
    alias or the provider's prefix.
    """

    models: Mapping[str, Said] = field(default_factory=dict)
    teams: Mapping[str, Said] = field(default_factory=dict)
    keys: Mapping[str, Said] = field(default_factory=dict)
    names_of: NamesOf = only_itself

    @property
    def has_levels(self) -> bool:
        """Whether there is a level for any model, team or key."""
        return bool(self.models or self.teams or self.keys)

    def said_for(self, model: str, team: str, key_id: str) -> list[Said]:
        """All levels that hold for a request of that model with this key of that team, the most general one first."""
        found = [self.models[name] for name in fitting(self.models, self.names_of(model))] if self.models else []
        found += [levels[name] for levels, name in ((self.teams, team), (self.keys, key_id)) if name in levels]
        return found


@dataclass(frozen=True, slots=True)
class PromptRules(Levels[PromptLayer]):
    """The rules of a configuration: for all requests (``base``), and for single models, teams and keys."""

    base: PromptTerms = PromptTerms()

    @property
    def is_empty(self) -> bool:
        """Whether no request gets a prompt, whatever the request says."""
        return not self.has_levels and self.base == PromptTerms()

    def terms_for(self, model: str, team: str, key_id: str) -> PromptTerms:
        return layered(self.base, *self.said_for(model, team, key_id))

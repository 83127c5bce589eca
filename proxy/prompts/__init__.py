"""Prompts of the operator. A set of prompts, terms and a context come in; the system text and the texts around the
newest user message go out. Nothing here reads files, compiles templates, or knows about upstreams. No error message has
a text of a prompt or a value of the context.

This file has a prompt with its position, conditions and variables; the context that conditions and templates see; and
the result of composing: the system text, and the texts around a user message. At the end are the terms of composing for
a request. A configuration has them in levels (all requests, models, teams, keys). A later level takes precedence, and a
client adds what it is allowed to add.

``assembler`` reads the wishes of a client, chooses and orders the prompts, evaluates their conditions in a context, and
joins the texts into a composition. Whether texts of earlier turns are sent again is decided by
``proxy.planner.observation``.

The last part here finds prompts that change within a conversation. A text that changes invalidates the cached prefix
after it, and after the system text that is the whole conversation. A prompt of the position ``context`` that has
changed in a conversation is moved to the newest user message from then on, where a change costs only the prompt itself.
If a prompt changes in most conversations of its client, new conversations begin in this way. Prompts of other positions
stay in their places, and their changes are reported.

Such texts are also looked for before they are sent: clocks, dates, counters and random ids. Names and texts are only
signs of them: a date in a text may be the date of a law, and a field named ``turn`` may never change. Code in fences is
an example and is not looked at.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import reduce
from typing import Annotated, Any, Generic, TypeVar

import orjson
from msgspec import Meta, Struct

from proxy.kit.errors import Forbidden
from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.value import dataclass, field, replace
from proxy.protocol.access import fitting, matches_any
from proxy.protocol.request import Inset


class Position(StrEnum):
    """The positions, in the order in which they are composed. ``LAST_USER`` is the very end of the newest user
    message."""

    SYSTEM_PREFIX = "system_prefix"
    SYSTEM = "system"
    SYSTEM_SUFFIX = "system_suffix"
    CONTEXT = "context"
    TOOLS = "tools"
    PLUGINS = "plugins"
    AGENTS = "agents"
    CONSTRAINTS = "constraints"
    EXAMPLES = "examples"
    USER_PREFIX = "user_prefix"
    USER = "user"
    USER_SUFFIX = "user_suffix"
    LAST_USER = "last_user"

    @property
    def is_system(self) -> bool:
        return self in SYSTEM_POSITIONS


SYSTEM_POSITIONS = tuple(Position)[:9]
BEFORE_USER = (Position.USER_PREFIX, Position.USER)
"""In front of the client's own text, in this order."""
AFTER_USER = (Position.USER_SUFFIX, Position.LAST_USER)
"""After the client's own text, in this order."""


ROOTS = ("mission", "target", "agent", "memory", "variables", "custom")
"""The roots of the context that conditions and templates see. Time is none of them."""

MOST_PRIORITY = 1_000_000
"""The highest priority of a prompt. Its negative is the lowest."""

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
ID_RULE = "1 to 128 letters, digits and . _ : / -, and begin with a letter or a digit"
"""``ID_PATTERN`` in words that follow "must be"."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A value of the context."""
PromptContext = Mapping[str, Mapping[str, Json]]
"""The context, with an object for each root. Every root is present."""


_Needed = Annotated[str, Meta(min_length=1)]


class Condition(Struct, frozen=True, forbid_unknown_fields=True):
    """A condition that must hold for a prompt to be composed, as a file states it. ``field`` is a path with dots that
    begins with a root; ``operator`` is one of ``proxy.prompts.assembler.OPERATORS``, and ``value`` is JSON."""

    field: _Needed
    operator: _Needed
    value: Any = None


class Variable(Struct, frozen=True, forbid_unknown_fields=True):
    """A name that the prompt's template may use, as a file states it. Its value is that of ``source``, which is a path
    as in a condition, or else the ``default``, which is JSON. A prompt never sees what another prompt resolves."""

    name: _Needed
    source: str = ""
    required: bool = False
    default: Any = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is registered. ``text`` is the template; if it ``is_literal``, it is sent unchanged. The prompt is
    composed only in the capability profile ``profile`` ("": in each). For messages, ``origin`` says where the prompt
    comes from, and ``first_line`` where its text begins in a file."""

    id: str
    position: Position
    text: str = field(repr=False)
    priority: int = 0
    conditions: tuple[Condition, ...] = ()
    variables: tuple[Variable, ...] = ()
    profile: str = ""
    description: str = ""
    is_literal: bool = False
    origin: str = ""
    first_line: int = field(default=1, compare=False)


class ConditionError(Exception):
    """A condition cannot be evaluated. ``code`` is one of ``invalid_operator``, ``invalid_path``, ``invalid_pattern``,
    ``invalid_type`` and ``too_long``. The error's text says why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class RenderError(Exception):
    """A template cannot be rendered with this context, or a variable that the prompt requires has no value in it. The
    error's text says why."""


class PromptFailure(Exception):
    """In strict mode: a prompt cannot be composed. ``is_client`` says whether the prompt came with the request, so that
    the mistake is the client's and not the operator's. ``why`` says what is wrong."""

    def __init__(self, prompt_id: str, *, is_client: bool, why: str) -> None:
        super().__init__(f"the prompt '{prompt_id}' cannot be composed: {why}")
        self.prompt_id = prompt_id
        self.is_client = is_client
        self.why = why


MOST_CONTEXT_BYTES = 64 << 10
"""The longest JSON of a client's context."""
MOST_LEVELS = 16
"""The most objects and arrays within each other in a context. A root is the first one."""
MOST_VALUES = 2_000
"""The most objects, arrays and values within them in a context."""
_MOST_NUMBER = 2**63


def merged(*contexts: Mapping[str, Mapping[str, Json]]) -> PromptContext:
    """The contexts, merged as by ``added``, with every root. A root that no context has is an empty object."""
    return reduce(added, contexts, {root: {} for root in ROOTS})


def added(context: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The first context with the second one added. Objects are merged name by name; any other value of the second
    context replaces that of the first one."""
    both = dict(context)
    for name, value in more.items():
        old = both.get(name)
        both[name] = added(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def value_at(context: PromptContext, path: str) -> tuple[bool, Json]:
    """Whether the context has a value at this path of names and dots, and the value. Null counts as a value. A name
    with a dot in it, and an element of an array, have no path."""
    root, *names = path.split(".")
    if root not in context:
        return False, None
    value: object = context[root]
    for name in names:
        if not isinstance(value, (dict, Mapping)) or name not in value:
            return False, None
        value = value[name]
    return True, value  # type: ignore[return-value]  # an object of the context


def exceeded_bound(context: Mapping[str, Mapping[str, Json]]) -> str:
    """The bound that the context exceeds, in words that follow "it has". "" if it exceeds none."""
    values = 0
    level: list[object] = list(context.values())
    for _ in range(MOST_LEVELS):
        values += len(level)
        if values > MOST_VALUES:
            return f"more than {MOST_VALUES} values"
        if any(isinstance(each, int) and not -_MOST_NUMBER <= each < _MOST_NUMBER for each in level):
            return "a whole number of more than 64 bits"
        level = [
            inner
            for each in level
            if isinstance(each, (list, Mapping))
            for inner in (each if isinstance(each, list) else each.values())
        ]
        if not level:
            return ""
    return f"more than {MOST_LEVELS} levels"


def is_json(value: object) -> bool:
    """Whether the value can be written as JSON. JSON has no dates, no names that are numbers, no half of a surrogate
    pair, and no infinite number."""
    try:
        return bool(orjson.loads(orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME)) == value)
    except orjson.JSONEncodeError:
        return False


def resolved(variables: Sequence[Variable], context: PromptContext) -> Mapping[str, Json]:
    """The value of each variable: the root of the context that has its name, or else the value at its source, or else
    its default. Raises RenderError for a required variable that has neither of the first two."""
    found: dict[str, Json] = {}
    for variable in variables:
        is_there, value = value_at(context, variable.name if variable.name in ROOTS else variable.source)
        if variable.required and not is_there:
            raise RenderError(f"the required variable '{variable.name}' has no value")
        found[variable.name] = value if is_there else variable.default
    return found


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
        before = "\n\n".join(filter(None, (*moved, self.inset.before)))
        return "\n\n".join(stays), replace(self.inset, before=before)


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
    """The levels of a configuration: for models (patterns of ``proxy.protocol.access``), for teams, and for the ids
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


VOLATILE_SHARE = 0.2
"""A prompt is volatile for a client if more than this share of the requests of known conversations change it."""
_LEAST_REQUESTS = 5
_MOST_BYTES = 32 << 20
_MOST_COUNTS = 20_000
_BYTES_PER_PRINT = 120


@dataclass(slots=True)
class ChangeCount:
    """The number of requests of known conversations, and how many of them changed a prompt."""

    requests: int = 0
    changes: int = 0

    @property
    def is_volatile(self) -> bool:
        """Whether the prompt changes so often that it does not belong in front of a conversation."""
        return self.requests >= _LEAST_REQUESTS and self.changes > VOLATILE_SHARE * self.requests


@dataclass(frozen=True, slots=True)
class Seen:
    """The result for one request. ``at_tail`` are the ids of the prompts that are moved to the newest user message.
    ``changed`` are those whose text differs from that in the request before, and those that were added or removed.
    ``volatile`` are those of the changed prompts that change in too many requests of their client."""

    at_tail: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()


@dataclass(slots=True)
class Steadiness:
    """The remembered conversations of all clients: the prints of each, and the prompts that are moved. The memory is
    bounded."""

    _conversations: Bounded[tuple[str, bytes], tuple[Mapping[str, bytes], frozenset[str]]] = field(
        default_factory=lambda: Bounded(_MOST_BYTES, lambda one: 300 + _BYTES_PER_PRINT * len(one[0]))
    )
    _counts: LastUsed[tuple[str, str], ChangeCount] = field(default_factory=lambda: LastUsed(_MOST_COUNTS))

    def seen(self, scope: str, conversation: bytes, composition: Composition) -> Seen:
        """Count a request with its composition. ``conversation`` names the conversation within the ``scope`` of its
        client."""
        key, prints = (scope, conversation), composition.prints
        movable = {part.id for part in composition.parts if part.position is Position.CONTEXT}
        before = self._conversations.get(key)
        if before is None:
            at_tail = frozenset(
                name for name in movable if (self._counts.get((scope, name)) or ChangeCount()).is_volatile
            )
            self._conversations.put(key, (prints, at_tail))
            return Seen(at_tail)
        former, at_tail = before
        names = tuple(dict.fromkeys((*former, *prints)))
        changed = tuple(name for name in names if former.get(name) != prints.get(name))
        counts = {name: self._counts.get((scope, name)) or ChangeCount() for name in names}
        for name, count in counts.items():
            self._counts.put((scope, name), count)
            count.requests += 1
            count.changes += name in changed
        at_tail |= movable.intersection(changed)
        self._conversations.put(key, (prints, at_tail))
        return Seen(at_tail, changed, tuple(name for name in changed if counts[name].is_volatile))


_MOST_CHARS = 60
_MOST_FINDINGS = 20
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_COMMENT = re.compile(r"\{#(?:[^#]|#(?!\}))*+(?:#\})?")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_SIGNS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("date", re.compile(r"(?<![\w-])\d{4}-[01]\d-[0-3]\d(?![\w-]|T\d)")),
    ("date", re.compile(rf"\b(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b|\b\d{{1,2}} (?:{_MONTHS}) \d{{4}}\b")),
    ("time", re.compile(r"(?<![\d:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?![\d:])")),
    ("time", re.compile(r"(?<![\w.-])1[5-9]\d{8}(?:\d{3})?(?![\w.-])")),
    ("random", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)),
    ("counter", re.compile(r"\b(?:turn|request|attempt|message|step) (?:number |no\. |#)\d", re.IGNORECASE)),
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CLOCK = frozenset({
    "now", "today", "clock", "time", "date", "datetime", "timestamp", "timestamps", "weekday", "hour", "minute",
    "uptime", "elapsed", "epoch",
})  # fmt: skip
_RANDOM = frozenset({"random", "rand", "uuid", "guid", "nonce", "salt", "seed"})
_COUNTER = frozenset({"counter", "turn", "turns", "iteration", "attempt", "attempts", "tick"})
_OF_A_REQUEST = frozenset({"request", "trace", "span", "correlation", "message", "session", "conversation"})
_UNITS = frozenset({"limit", "max", "min", "zone", "format", "budget", "type", "out", "created", "updated"})


@dataclass(frozen=True, slots=True)
class Volatile:
    """A sign of content that changes. ``kind`` is "date", "time", "random" or "counter". ``line`` counts from 1, and is
    0 if the sign is not in a line of a text. ``shown`` is the sign itself."""

    kind: str
    shown: str
    line: int = 0


def volatile_in(text: str) -> tuple[Volatile, ...]:
    """The signs in a text, which may be a template, by line. There are at most 20."""
    found: list[Volatile] = []
    for number, line in _lines(text):
        for kind, pattern in _SIGNS:
            found += [Volatile(kind, match[0][:_MOST_CHARS], number) for match in pattern.finditer(line)]
        if len(found) >= _MOST_FINDINGS:
            break
    return tuple(found[:_MOST_FINDINGS])


def volatile_name(path: str) -> str:
    """The kind of value that the name at the end of a path suggests: "time", "random" or "counter". "" if it suggests
    none of these. Limits, zones and formats of a time do not count."""
    words = [word.lower() for word in _WORD.findall(path.rpartition(".")[2][:_MOST_CHARS])]
    if not words or _UNITS.intersection(words):
        return ""
    if _CLOCK.intersection(words):
        return "time"
    if _RANDOM.intersection(words) or (words[-1] == "id" and _OF_A_REQUEST.intersection(words)):
        return "random"
    return "counter" if _COUNTER.intersection(words) else ""


def volatile_values(context: Mapping[str, Mapping[str, Json]]) -> Iterator[tuple[str, Volatile]]:
    """The signs in the names and values of a context, each with the path of the value."""
    stack: list[tuple[str, Json]] = [(root, dict(values)) for root, values in reversed(list(context.items()))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{path}.{name}", inner) for name, inner in reversed(list(value.items()))]
        elif isinstance(value, list):
            stack += [(path, inner) for inner in reversed(value)]
        elif value is not None and (kind := volatile_name(path)):
            yield path, Volatile(kind, path.rpartition(".")[2][:_MOST_CHARS])
        elif isinstance(value, (str, int)) and not isinstance(value, bool):
            yield from ((path, sign) for sign in volatile_in(str(value))[:1])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of fences and of a template's comments, each with its number."""
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    fence = ""
    for number, line in enumerate(text.split("\n"), start=1):
        opening = _FENCE.match(line)
        if opening is not None and (not fence or opening[1].startswith(fence)):
            fence = "" if fence else opening[1]
        elif not fence:
            yield number, line

"""What is known of a prompt cache, as one value: how entries come to be, what finds them, what they cost."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from proxy.core.value import dataclass, field, replace


class Family(StrEnum):
    """How entries come to be: at markers, on a grid of tokens, as units (ends and intervals), or not at all."""

    MARKER = "marker"
    GRID = "grid"
    UNIT = "unit"
    NONE = "none"


class Dialect(StrEnum):
    """How a marker is written on the wire."""

    CACHE_CONTROL = "cache_control"
    PART_CACHE_CONTROL = "cache_control on parts"
    """``cache_control`` on content parts and nowhere else, also inside a tool result."""
    BREAKPOINT = "prompt_cache_breakpoint"
    NONE = "none"

    @property
    def key(self) -> str:
        """The member that a marker is; empty where there is none."""
        return _KEYS[self]


_KEYS: Mapping[Dialect, str] = MappingProxyType(
    {
        Dialect.CACHE_CONTROL: "cache_control",
        Dialect.PART_CACHE_CONTROL: "cache_control",
        Dialect.BREAKPOINT: "prompt_cache_breakpoint",
        Dialect.NONE: "",
    }
)


class MarkPlace(StrEnum):
    """Where a marker on a tool result stands.

    ``MESSAGE``: on the message; inside its parts it is refused. ``PART``: on its last part; on the message it is not
    read. ``EITHER``: on either.
    """

    MESSAGE = "message"
    PART = "part"
    EITHER = "either"


class UsageForm(StrEnum):
    """The fields in which a provider reports what it read and wrote; see ``proxy.upstream.embedded.wire``."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OPENAI_WRITES = "openai-writes"
    DASHSCOPE = "dashscope"
    DEEPSEEK = "deepseek"
    KIMI = "kimi"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Breaking:
    """Request members that render into the prompt, by place: a change breaks everything behind that place.

    An explicit default is the same as none (``DEFAULTS``). ``images`` says that the presence of any image counts as a
    setting in front of the messages.
    """

    before_tools: tuple[str, ...] = ()
    before_system: tuple[str, ...] = ()
    before_messages: tuple[str, ...] = ()
    images: bool = False


DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "thinking": MappingProxyType({"type": "disabled"}),
        "service_tier": "auto",
    }
)
"""Members whose explicit default changes nothing (Anthropic, "Prompt caching": "explicit default = omitted")."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How requests of one conversation are kept on the machine that holds their prefix.

    ``is_needed``: the provider's own page asks for a key, or it was measured to raise hits; else sending one changes
    nothing. ``by_prefix``: one key for all conversations that begin alike, so that they find each other's beginning;
    else one for each conversation.
    ``servers`` are the providers (``proxy.core.providers.hosts``) whose documents say that it is accepted. ``aliases``
    are other members by which a client may say the same, ``reads_hint``: the client's own session header says it, too.
    """

    place: Literal["body", "header"]
    name: str
    is_needed: bool = True
    max_chars: int = 64
    by_prefix: bool = False
    servers: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    reads_hint: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A field of which no source says enough. The profile holds the default; an ``Unknown`` holds one value for a bad
    day and one for a good day. ``why`` names the sources that disagree or are silent."""

    field: str
    pessimistic: Any
    optimistic: Any
    why: str


@dataclass(frozen=True, slots=True)
class CacheProfile:
    """One provider's rules. Tokens, seconds, and price multipliers of the input price.

    Two profiles are equal where their rules are: ``unknowns`` and ``sources`` say where these come from.
    """

    name: str
    family: Family
    dialect: Dialect = Dialect.NONE

    # What a token costs: read, and written at the shorter and at the longer life (MARKER, or where writes are metered).
    read: float = 1.0
    write: float = 1.0
    write_long: float = 1.0
    meters_writes: bool = False
    listed_read: bool = True
    """The price map's price of a read is for this kind of read."""

    # What is stored, and for how long. ``delay_s`` runs from the first byte, or from the end where ``after_answer``.
    min_tokens: int = 1024
    life_s: float = 300.0
    long_life_s: float = 0.0
    slack_s: float = 0.0
    delay_s: float = 0.0
    after_answer: bool = False
    caches_output: bool = False
    capacity_tokens: int = 0
    """The least recently used go beyond so many tokens; 0: no bound is known."""

    # What finds an entry: steps of a grid, or units.
    step: int = 1
    report_step: int = 0
    """Reads are reported rounded down to this; 0: to ``step``."""
    hidden_tokens: int = 0
    """Tokens of the provider's own in front of the prompt: the grid counts from there."""
    interval_tokens: int = 0
    """A unit ends at least this often; 0: at every step."""

    # What finds an entry: markers.
    max_marks: int = 4
    lookback: int = 20
    """Positions that one marker looks back over, its own counted."""
    collapses_runs: bool = True
    """A run of tool calls, or of tool results, is one position of the look-back."""
    cross_life_read: bool = True
    """A marker of one life reads an entry of the other."""
    refresh: Literal["prefix", "hit"] = "prefix"
    """A read renews every entry on the prefix, or only the one that was hit."""
    below_hit_free_entry: bool = False
    """A marker below the hit where nothing is stored makes an entry at no price."""
    implicit_marks: int = 0
    """Slots of ``max_marks`` that the provider takes for boundaries of its own, unless it is told not to."""
    first_marks: int = 0
    latest_marks: int = 0
    endings: int = 0
    """Boundaries that are looked up: the first and the latest explicit ones, and in implicit mode so many earlier
    message endings and the end of the opening instructions (0: neither)."""

    # What keeps requests apart, and what keeps them together.
    breaking: Breaking = Breaking()
    routing: Routing | None = None
    key_required: bool = False
    """Without the routing member nothing is cached."""
    hit_chance: float = 1.0
    """P(a request lands where its prefix is held)."""
    stores: int = 1
    """Independent stores, one of which is chosen by the head of the raw body."""

    # Where a marker may stand, and what else is safe.
    tool_mark: bool = False
    result_mark: MarkPlace = MarkPlace.MESSAGE
    message_mark: bool = False
    """A marker beside string content is read (litellm translates it)."""
    answer_mark: bool = False
    """A marker on the text of an assistant's message is read."""
    declares_tools: bool = False
    """A conversation in which tool calls stand is refused where the request declares no tools."""
    begins_with_user: bool = False
    """A conversation that begins with an assistant's message is refused."""
    answers_results: bool = False
    """A user's message directly behind the result of a tool is refused."""
    thinks_in_calls: bool = False
    """With thinking switched on a request is refused whose newest call of a tool has no thinking in front of it."""
    plain_call_ids: bool = False
    """Ids of tool calls that are not nine letters and digits are refused."""
    body_mark: bool = False
    """A marker on the whole request stands for one on its last block."""
    refuses_unknown: bool = False
    """A marker where none is known is an error, not ignored."""
    mid_system: bool = False
    """The provider's page says that a system message within the conversation stays where it is."""
    hoists_system: bool = False
    """A system message within the conversation is taken to the front, behind the leading ones. No page says so: it is
    learnt from reports, or assumed of a provider for a test."""
    caches_instructions: bool = True
    """``instructions`` of the Responses API are part of the cached prefix."""
    ttls: tuple[str, str] = ("5m", "1h")
    """How the wire names the two lives."""

    usage: UsageForm = UsageForm.NONE
    unknowns: tuple[Unknown, ...] = field(default=(), compare=False, repr=False)
    sources: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def stores_prefixes(self) -> bool:
        """Whether the provider stores every prefix of a request by itself, also within a text."""
        return self.family in (Family.GRID, Family.UNIT)

    @property
    def least_marked(self) -> int:
        """The shortest prefix that is marked: what the provider counts may be more than our estimate (15 % at the 95th
        percentile, ``request.token_estimate``), and a marker that it ignores costs nothing."""
        return self.min_tokens * 17 // 20 if self.family is Family.MARKER else self.min_tokens

    @property
    def slots(self) -> int:
        """Markers that a request may carry besides the provider's own."""
        return self.max_marks - self.implicit_marks


def pessimistic(profile: CacheProfile) -> CacheProfile:
    """The profile if every unknown turns out badly."""
    return replace(profile, **{unknown.field: unknown.pessimistic for unknown in profile.unknowns}, unknowns=())


def optimistic(profile: CacheProfile) -> CacheProfile:
    """The profile if every unknown turns out well."""
    return replace(profile, **{unknown.field: unknown.optimistic for unknown in profile.unknowns}, unknowns=())


STICKY = Routing(
    "body", "session_id", max_chars=256, servers=("openrouter",), aliases=("prompt_cache_key",), reads_hint=True
)
"""OpenRouter's: a conversation stays with one provider for 10 idle minutes, where it says which it is ("``session_id``
in the body or ``x-session-id`` (up to 256 characters), else ``prompt_cache_key``"); without one it begins after the
first hit that is seen (https://openrouter.ai/docs/features/prompt-caching)."""

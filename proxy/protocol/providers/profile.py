"""The known rules of a prompt cache, as one value: how entries are created, what finds them, what they cost.

Single models differ from their provider's rules in the shortest prefix that is cached, the price of a read, the grid,
and in prices that litellm's price map does not know yet. Every row of these facts has its source with the date of the
copy (``Source``). ``stratiform check-config`` names the models of a configuration whose rows are old. For Mythos
Preview, Anthropic's page says 2048 and litellm's map says 512.

Routing keys keep the requests of one conversation on the machine that holds their prefix. The profile says how a
provider takes a key (``CacheProfile.routing``). A key is added only if the client did not send such information itself,
if the provider needs a key, and if this server is known to accept it. The key is a digest. It names no team, user or
session (OpenAI, Mistral and OpenRouter ask for keys without personal data). The same session of two scopes has two
different keys, so that they never meet.
"""

import re
from collections.abc import Container, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from proxy.kit.value import dataclass, digest, field, replace


class Family(StrEnum):
    """How entries are created: at markers, on a grid of tokens, as units (ends and intervals), or not at all."""

    MARKER = "marker"
    GRID = "grid"
    UNIT = "unit"
    NONE = "none"


class Dialect(StrEnum):
    """How a marker is written on the wire."""

    CACHE_CONTROL = "cache_control"
    PART_CACHE_CONTROL = "cache_control on parts"
    """``cache_control`` only on content parts, also on those inside a tool result."""
    BREAKPOINT = "prompt_cache_breakpoint"
    NONE = "none"

    @property
    def key(self) -> str:
        """The name of the member that is a marker. Empty if there are no markers."""
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
    """The place of a marker on a tool result.

    ``MESSAGE``: on the message; a marker inside its parts is refused. ``PART``: on its last part; a marker on the
    message is not read. ``EITHER``: both places work.
    """

    MESSAGE = "message"
    PART = "part"
    EITHER = "either"


class UsageForm(StrEnum):
    """The fields in which a provider reports reads and writes (see ``proxy.upstream.embedded.provider``)."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OPENAI_WRITES = "openai-writes"
    DASHSCOPE = "dashscope"
    DEEPSEEK = "deepseek"
    KIMI = "kimi"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Breaking:
    """Request members that render into the prompt, by place. A change of a member breaks everything behind its place.

    An explicit default is the same as an absent member (``DEFAULTS``). ``images`` says that the presence of any image
    counts as a setting in front of the messages.
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

    ``is_needed``: the provider's own page asks for a key, or a key was measured to raise hits; otherwise sending one
    changes nothing. ``by_prefix``: there is one key for all conversations with the same beginning, so that they find
    each other's beginning; otherwise one key for each conversation. ``servers`` are the providers
    (``proxy.protocol.providers.hosted``) whose documents say that the key is accepted. ``aliases`` are other members in
    which a client may send the same information. ``reads_hint``: the provider also reads the client's own session
    header.
    """

    place: Literal["body", "header"]
    name: str
    is_needed: bool = True
    by_prefix: bool = False
    servers: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    reads_hint: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A field about which no source says enough. The profile holds the default. An ``Unknown`` holds one value for a
    bad day and one for a good day. ``why`` names the sources that disagree or are silent."""

    field: str
    pessimistic: Any
    optimistic: Any
    why: str


@dataclass(frozen=True, slots=True)
class CacheProfile:
    """One provider's rules, in tokens, seconds, and multiples of the input price.

    Two profiles are equal if their rules are equal. ``unknowns`` and ``sources`` do not count: they say where the rules
    come from.
    """

    name: str
    family: Family
    dialect: Dialect = Dialect.NONE

    # The price of a token: for a read, and for a write with the shorter and with the longer life (MARKER, or if writes
    # are metered).
    read: float = 1.0
    write: float = 1.0
    write_long: float = 1.0
    meters_writes: bool = False
    listed_read: bool = True
    """Whether the price map's price of a read is for this kind of read."""

    # The rules of storing, and the lives. ``delay_s`` runs from the first byte, or from the end if ``after_answer``.
    min_tokens: int = 1024
    life_s: float = 300.0
    long_life_s: float = 0.0
    slack_s: float = 0.0
    delay_s: float = 0.0
    after_answer: bool = False
    caches_output: bool = False
    capacity_tokens: int = 0
    """Beyond this number of tokens the least recently used entries are dropped. 0: no bound is known."""

    # The rules of finding an entry on a grid, or as a unit.
    step: int = 1
    report_step: int = 0
    """Reported reads are rounded down to a multiple of this. 0: to a multiple of ``step``."""
    hidden_tokens: int = 0
    """The provider's own tokens in front of the prompt. The grid counts from their beginning."""
    interval_tokens: int = 0
    """A unit ends at least once in this number of tokens. 0: at every step."""

    # The rules of finding an entry by markers.
    max_marks: int = 4
    lookback: int = 20
    """The number of positions that one marker looks back over, including its own."""
    collapses_runs: bool = True
    """Whether a run of tool calls, or of tool results, is one position of the look-back."""
    cross_life_read: bool = True
    """Whether a marker of one life reads an entry of the other life."""
    refresh: Literal["prefix", "hit"] = "prefix"
    """Whether a read renews every entry on the prefix, or only the entry that was hit."""
    below_hit_free_entry: bool = False
    """Whether a marker in front of the hit creates an entry for free if none is stored at its position."""
    implicit_marks: int = 0
    """The number of ``max_marks`` slots that the provider uses for boundaries of its own, unless it is told not to."""
    first_marks: int = 0
    latest_marks: int = 0
    endings: int = 0
    """The numbers of boundaries that are looked up: the first explicit ones, the latest ones, and in implicit mode the
    earlier message endings together with the end of the opening instructions (``endings`` of 0: neither)."""

    # The rules that keep requests apart, and those that keep them together.
    breaking: Breaking = Breaking()
    routing: Routing | None = None
    key_required: bool = False
    """Whether nothing is cached without the routing member."""
    hit_chance: float = 1.0
    """P(a request reaches a machine that holds its prefix)."""
    stores: int = 1
    """The number of independent stores. The head of the raw body selects one of them."""

    # The places where a marker may stand, and other rules about what is accepted.
    tool_mark: bool = False
    result_mark: MarkPlace = MarkPlace.MESSAGE
    message_mark: bool = False
    """Whether a marker beside string content is read (litellm translates it)."""
    answer_mark: bool = False
    """Whether a marker on the text of an assistant's message is read."""
    declares_tools: bool = False
    """Whether a conversation that contains tool calls is refused if the request declares no tools."""
    begins_with_user: bool = False
    """Whether a conversation that begins with an assistant's message is refused."""
    answers_results: bool = False
    """Whether a user's message directly behind a tool result is refused."""
    thinks_in_calls: bool = False
    """Whether a request with thinking switched on is refused if its newest tool call has no thinking in front of it."""
    plain_call_ids: bool = False
    """Whether ids of tool calls are refused if they are not nine letters and digits."""
    body_mark: bool = False
    """Whether a marker on the whole request counts as a marker on its last block."""
    refuses_unknown: bool = False
    """Whether a marker that the provider does not know is an error and not ignored."""
    mid_system: bool = False
    """Whether the provider's page says that a system message within the conversation stays where it is."""
    hoists_system: bool = False
    """Whether a system message within the conversation is moved to the front, behind the leading ones. No page says so:
    it is learnt from reports, or assumed for a provider in a test."""
    caches_instructions: bool = True
    """Whether ``instructions`` of the Responses API are part of the cached prefix."""
    ttls: tuple[str, str] = ("5m", "1h")
    """The names of the two lives on the wire."""

    usage: UsageForm = UsageForm.NONE
    unknowns: tuple[Unknown, ...] = field(default=(), compare=False, repr=False)
    sources: tuple[str, ...] = field(default=(), compare=False, repr=False)

    # What follows from the facts above.
    stores_prefixes: bool = field(init=False, compare=False, repr=False)
    """Whether the provider stores every prefix of a request by itself, also within a text."""
    least_marked: int = field(init=False, compare=False, repr=False)
    """The shortest prefix that is marked, in tokens by our estimate. The provider may count more than that (15 % at the
    95th percentile, ``request.tokens``), and a marker that it ignores costs nothing."""
    slots: int = field(init=False, compare=False, repr=False)
    """The number of markers that a request may carry besides the provider's own."""

    def __post_init__(self) -> None:
        is_marked = self.family is Family.MARKER
        object.__setattr__(self, "stores_prefixes", self.family in (Family.GRID, Family.UNIT))
        object.__setattr__(self, "least_marked", self.min_tokens * 17 // 20 if is_marked else self.min_tokens)
        object.__setattr__(self, "slots", self.max_marks - self.implicit_marks)


def pessimistic(profile: CacheProfile) -> CacheProfile:
    """The profile if every unknown turns out badly."""
    return replace(profile, **{unknown.field: unknown.pessimistic for unknown in profile.unknowns}, unknowns=())


def optimistic(profile: CacheProfile) -> CacheProfile:
    """The profile if every unknown turns out well."""
    return replace(profile, **{unknown.field: unknown.optimistic for unknown in profile.unknowns}, unknowns=())


STICKY = Routing("body", "session_id", servers=("openrouter",), aliases=("prompt_cache_key",), reads_hint=True)
"""OpenRouter's sticky routing: a conversation stays with one provider for 10 idle minutes if it sends its id
("``session_id`` in the body or ``x-session-id`` (up to 256 characters), else ``prompt_cache_key``"). Without an id the
stickiness begins after the first hit that is seen (https://openrouter.ai/docs/features/prompt-caching)."""


_CLAUDE = ("anthropic", "vertex", "foundry", "openrouter-anthropic")
_ALL_CLAUDE = (*_CLAUDE, "bedrock")
_OPENAI = ("openai", "azure", "openrouter-openai")
_OPENAI_EXPLICIT = ("openai-explicit", "azure-explicit", "openrouter-openai-explicit")
_GEMINI = ("gemini", "vertex-gemini", "openrouter-gemini")
_DEEPSEEK = ("deepseek", "openrouter-deepseek")
_XAI = ("xai", "openrouter-xai")


class Source(NamedTuple):
    """A page, and the day (YYYY-MM-DD) of the copy that was read."""

    page: str
    read_on: str


_CLAUDE_PAGE = Source("https://platform.claude.com/docs/en/build-with-claude/prompt-caching", "2026-10-08")
_CLAUDE_PRICES = Source("https://platform.claude.com/docs/en/about-claude/pricing", "2026-11-09")
_AWS = Source("https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html", "2026-10-01")
_OPENAI_PAGE = Source("https://developers.openai.com/api/docs/guides/prompt-caching", "2026-09-20")
_GPT_6_2 = Source("https://developers.openai.com/api/docs/models/gpt-6.2-sol", "2026-11-18")
_GEMINI_PAGE = Source("https://ai.google.dev/gemini-api/docs/caching", "2026-10-13")
_PRICE_MAP = Source("litellm 1.109.1: model_prices_and_context_window_backup.json", "2026-11-21")


@dataclass(frozen=True, slots=True)
class Particular:
    """A ``field`` of the ``profiles`` has this ``value`` for models whose name contains one of the ``names``."""

    field: str
    value: Any
    profiles: tuple[str, ...]
    names: tuple[str, ...]
    source: Source


PARTICULARS = (
    Particular(
        "min_tokens", 512, _ALL_CLAUDE, ("opus-5", "opus-5-5", "sonnet-5-5", "haiku-5-5", "fable-5", "mythos-5"),
        _CLAUDE_PAGE,
    ),
    Particular("min_tokens", 2048, _ALL_CLAUDE, ("mythos-preview", "haiku-3-5", "3-5-haiku"), _CLAUDE_PAGE),
    Particular("min_tokens", 2048, _CLAUDE, ("opus-4-7",), _CLAUDE_PAGE),
    Particular("min_tokens", 4096, ("bedrock",), ("opus-4-7",), _AWS),
    Particular("min_tokens", 4096, _ALL_CLAUDE, ("opus-4-6", "opus-4-5", "haiku-4-5"), _CLAUDE_PAGE),
    Particular("read", 0.05, _ALL_CLAUDE, ("opus-5-5", "sonnet-5-5"), _CLAUDE_PRICES),
    Particular(
        "read", 0.025, _ALL_CLAUDE, ("fable-5-1", "mythos-5-1", "fable-5-2", "mythos-5-2"), _CLAUDE_PRICES,
    ),
    Particular(
        "mid_system", True, _CLAUDE, ("opus-4-8", "opus-5", "sonnet-5-5", "fable-5", "mythos-5"),
        Source(
            "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages",
            "2026-10-08",
        ),
    ),
    # There is one breakpoint every 2048 tokens. It is kept for 24 hours at most, and typically for 30 minutes.
    Particular("step", 2048, _OPENAI, ("gpt-5-5",), _OPENAI_PAGE),
    Particular("life_s", 1800.0, _OPENAI, ("gpt-5-5",), _OPENAI_PAGE),
    Particular("read", 0.25, _OPENAI, ("gpt-4-1", "o3", "o4-mini"), _PRICE_MAP),
    Particular("read", 0.5, _OPENAI, ("gpt-4o",), _PRICE_MAP),
    Particular("read", 0.05, _OPENAI_EXPLICIT, ("gpt-6-1", "gpt-6-2"), _GPT_6_2),
    # 14,000 uncached tokens in each step of an agent became 3 when its system text was sent as a message of the input.
    Particular(
        "caches_instructions", False, _OPENAI_EXPLICIT, ("gpt-6-2",),
        Source("https://github.com/anomalyco/opencode/issues/64542", "2026-11-18"),
    ),
    Particular("min_tokens", 2048, _GEMINI, ("gemini-2-5",), _GEMINI_PAGE),
    Particular(
        "min_tokens", 6144, ("vertex-gemini",),
        ("gemini-3-flash-preview", "gemini-3-1-pro", "gemini-3-7-flash", "gemini-3-8-flash"), _GEMINI_PAGE,
    ),
    Particular("read", 0.05, _GEMINI, ("gemini-4-argon",), _PRICE_MAP),
    Particular("read", 0.25, _GEMINI, ("gemini-2-0", "gemini-1-5"), _PRICE_MAP),
    Particular("read", 0.02, _DEEPSEEK, ("deepseek-flash", "deepseek-v4-flash", "deepseek-v4-1-flash"), _PRICE_MAP),
    Particular("read", 0.033, _DEEPSEEK, ("deepseek-v4-pro",), _PRICE_MAP),
    Particular("read", 0.15, _XAI, ("grok-4-5",), _PRICE_MAP),
    Particular("read", 0.16, _XAI, ("grok-4-3", "grok-4-20"), _PRICE_MAP),
    Particular("read", 0.2, _XAI, ("grok-build", "grok-code-fast"), _PRICE_MAP),
    # The price map has no item for writes, so there is only one life.
    Particular("read", 0.2, ("kimi",), ("kimi-k2",), _PRICE_MAP),
    Particular("write_long", 1.0, ("kimi",), ("kimi-k2",), _PRICE_MAP),
    Particular("long_life_s", 0.0, ("kimi",), ("kimi-k2",), _PRICE_MAP),
)  # fmt: skip

_FABLE_5_2 = {
    "input_cost_per_token": 8e-6,
    "output_cost_per_token": 4e-5,
    "cache_read_input_token_cost": 2e-7,
    "cache_creation_input_token_cost": 1e-5,
    "cache_creation_input_token_cost_above_1hr": 1.6e-5,
}
PRICES: Mapping[str, tuple[Mapping[str, float], Source]] = {
    "claude-fable-5-2": (_FABLE_5_2, _CLAUDE_PRICES),
    "claude-mythos-5-2": (_FABLE_5_2, _CLAUDE_PRICES),
    "gpt-6.2-sol": (
        {
            "input_cost_per_token": 2e-6,
            "output_cost_per_token": 1e-5,
            "cache_read_input_token_cost": 1e-7,
            "cache_creation_input_token_cost": 2.5e-6,
            "cache_creation_input_token_cost_above_12hr": 5e-6,
            "input_cost_per_token_above_272k_tokens": 4e-6,
            "output_cost_per_token_above_272k_tokens": 1.5e-5,
            "cache_read_input_token_cost_above_272k_tokens": 2e-7,
            "cache_creation_input_token_cost_above_272k_tokens": 5e-6,
            "cache_creation_input_token_cost_above_12hr_above_272k_tokens": 1e-5,
        },
        _GPT_6_2,
    ),
}
"""The prices, in USD per token, of models that litellm's price map does not know, with the map's field names. If the
installed map knows a model, the map's prices count."""


def sources_of(profile: CacheProfile, model: str) -> list[Source]:
    """The sources of the rows that apply to a model."""
    return [row.source for _, row in _rows(profile, model)]


def fitted(profile: CacheProfile, model: str) -> CacheProfile:
    """The profile with the facts about a model. If several names fit, the longest one wins."""
    found: dict[str, Any] = {}
    for _, row in sorted(_rows(profile, model), key=lambda pair: -pair[0]):
        found.setdefault(row.field, row.value)
    return replace(profile, **found) if found else profile


def _rows(profile: CacheProfile, model: str) -> Iterator[tuple[int, Particular]]:
    """The rows that apply to a model, each with the length of the longest of its names that fits. A name must fit as a
    whole: ``opus-50`` does not contain ``opus-5``."""
    name = model.rpartition("/")[2].lower().replace(".", "-")
    for row in PARTICULARS:
        if profile.name in row.profiles:
            fits = [part for part in row.names if re.search(rf"(?<![a-z0-9]){re.escape(part)}(?!\d)", name)]
            if fits:
                yield max(map(len, fits)), row


_PREFIX = "st-"


EMBEDDED = "embedded"
"""The server that can play every profile."""


def routing_key(scope: str, name: bytes) -> str:
    """The routing key for a ``name`` within a scope (team and key, hashed): 35 characters that are safe in headers."""
    return _PREFIX + digest(b"routing", scope.encode(), name).hex()


def may_add(profile: CacheProfile, members: Container[str], server: str, *, is_hinted: bool) -> bool:
    """Whether a key is added. ``members`` are the request's members, ``server`` is the server that is called.
    ``is_hinted``: the client sent a session id in a header."""
    routing = profile.routing
    if routing is None or not routing.is_needed or (is_hinted and routing.reads_hint):
        return False
    is_served = server == EMBEDDED or server in routing.servers
    return is_served and not any(name in members for name in (routing.name, *routing.aliases))


NO_BOUNDARIES = b'{"mode":"explicit"}'
"""The value of ``prompt_cache_options`` in a request whose end should not be stored."""
_TAKES_OPTIONS = frozenset({"openai", "azure", EMBEDDED})


def may_tell_explicit(profile: CacheProfile, members: Container[str], server: str) -> bool:
    """Whether the provider sets boundaries of its own, and may be told not to (OpenAI, Azure: "Prompt caching")."""
    return profile.implicit_marks > 0 and server in _TAKES_OPTIONS and "prompt_cache_options" not in members

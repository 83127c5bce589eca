"""Prices of tokens, the bill for an exchange, and the savings of a plan.

Prices are read from litellm's price map (``proxy.models.deployments``), whose fields are USD per token. Missing
prices are filled in such a way that a saving is never overstated: a cache read or a cache write without a price of its
own costs the input price. If the map has no price for a tool that the provider runs, the dearest known one is used:
Google's for a search (https://ai.google.dev/gemini-api/docs/pricing), and OpenAI's for all else
(https://platform.openai.com/docs/pricing#built-in-tools). All functions are pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from proxy.kit.value import dataclass, field, replace
from proxy.protocol.caches import Bill
from proxy.protocol.response.usage import Parts, Usage

_SEARCH = "search_context_cost_per_query"
_MAPS = "google_maps_grounding_cost_per_query"
_SPECIFIC = "provider_specific_entry"
_REGIONAL = ("regional_processing_uplift_multiplier_eu", "regional_processing_uplift_multiplier_us")
# The factors of the regions in which a deployment may serve.
_REGIONS = {
    "eu": _REGIONAL[0], "us": _REGIONAL[1], "fedramp": "fedramp_uplift_multiplier",
    "vertex": "regional_endpoint_uplift_multiplier",
}  # fmt: skip
_ALIAS = "alias_of"
_IMAGE = ("output_cost_per_image", "input_cost_per_image", "output_cost_per_image_1K", "output_cost_per_image_2K")
_SECOND = ("input_cost_per_second", "output_cost_per_second", "input_cost_per_audio_per_second")
_PIXEL = ("input_cost_per_pixel", "output_cost_per_pixel")
_CHARACTER = "input_cost_per_character"
_QUERY = "input_cost_per_query"
_REQUEST = "input_cost_per_request"
_TOKENS = (
    "input_cost_per_audio_token",
    "output_cost_per_audio_token",
    "input_cost_per_image_token",
    "input_cost_per_video_token",
    "output_cost_per_image_token",
    "output_cost_per_video_token",
)
_THOUGHT = "output_cost_per_reasoning_token"
# The fields that ``extras_of`` reads.
_FIELDS = frozenset(
    {_SEARCH, _MAPS, _SPECIFIC, _ALIAS, *_REGIONS.values(), *_IMAGE, *_SECOND, *_PIXEL, _CHARACTER, _QUERY, _REQUEST,
     *_TOKENS, _THOUGHT, "max_input_tokens"}
)  # fmt: skip

# No token costs as much. With any number of tokens, a cost below this is a finite number.
_MOST_USD = 1e9
MOST_AMOUNT = (1 << 53) - 1
"""The largest amount that a store counts exactly, of whatever unit. It is more than any hard limit, and larger amounts
count as this one."""
SEARCH_USD = 0.035
FILE_SEARCH_USD = 0.0025
CODE_USD = 0.03
FAST_FACTOR = 6.0
"""The factor of Claude's fast mode if the map has none:
https://platform.claude.com/docs/en/build-with-claude/fast-mode."""
LOCAL_FACTOR = 1.1
"""https://platform.claude.com/docs/en/build-with-claude/data-residency#pricing"""
SERVICE_FACTORS: Mapping[str, float] = {"priority": 2.5, "ultrafast": 6.0, "flex": 1.0, "batch": 1.0}
"""The highest factor of each tier: https://openai.com/api-fast-mode/. What any other tier costs is not known."""


@dataclass(frozen=True, slots=True)
class Extras:
    """Prices besides those of text tokens. None means that the map has no such price.

    ``second`` is the price of a second of sound, ``image`` of an image that is made, ``query`` of one search of a
    reranker. ``by_tokens`` says that text is billed by the token.
    """

    image: float | None = None
    pixel: float | None = None
    second: float | None = None
    character: float | None = None
    query: float | None = None
    request: float = 0.0
    search: float = SEARCH_USD
    audio_in: float = 0.0
    audio_out: float = 0.0
    image_in: float = 0.0
    image_out: float = 0.0
    video_in: float = 0.0
    video_out: float = 0.0
    fast: float = FAST_FACTOR
    local: float = LOCAL_FACTOR
    max_input_tokens: int | None = None
    by_tokens: bool = field(default=True)

    @property
    def is_priced(self) -> bool:
        """Whether anything besides text has a price."""
        units = (self.image, self.pixel, self.second, self.character, self.query)
        return any(unit is not None for unit in units) or max(self.audio_out, self.image_out) > 0


def extras_of(entry: Mapping[str, object]) -> Extras:
    """The prices in an entry of the map, without the prices of text."""
    searches = entry.get(_SEARCH)
    sizes = searches if isinstance(searches, dict) else {}
    known = [found for name in sizes if (found := usd(sizes, name)) is not None]
    if (maps := usd(entry, _MAPS)) is not None:
        known.append(maps)
    specific = entry.get(_SPECIFIC)
    factors = specific if isinstance(specific, dict) else {}
    audio_in, audio_out, image_in, video_in, image_out, video_out = (usd(entry, key) or 0.0 for key in _TOKENS)
    return Extras(
        image=_most(entry, _IMAGE),
        pixel=_most(entry, _PIXEL),
        second=_most(entry, _SECOND),
        character=usd(entry, _CHARACTER),
        query=usd(entry, _QUERY),
        request=usd(entry, _REQUEST) or 0.0,
        search=max(known, default=SEARCH_USD),
        fast=max(1.0, usd(factors, "fast") or FAST_FACTOR),
        local=max(1.0, usd(factors, "us") or _most(entry, _REGIONAL) or LOCAL_FACTOR),
        max_input_tokens=_longest(entry, "max_input_tokens"),
        audio_in=audio_in,
        audio_out=audio_out,
        image_in=image_in,
        image_out=image_out,
        video_in=video_in,
        video_out=video_out,
    )


def usd(entry: Mapping[str, object], key: str) -> float | None:
    """An amount in USD. None if the entry has no sensible amount."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST_USD:
        return None
    return float(value)


def _most(entry: Mapping[str, object], keys: tuple[str, ...]) -> float | None:
    return max((found for key in keys if (found := usd(entry, key)) is not None), default=None)


Entry = Mapping[str, object]

_INPUT = "input_cost_per_token"
_OUTPUT = "output_cost_per_token"
_READ = "cache_read_input_token_cost"
_WRITE = "cache_creation_input_token_cost"
_WRITE_LONG = ("cache_creation_input_token_cost_above_1hr", "cache_creation_input_token_cost_above_12hr")
_STEPPED = "tiered_pricing"
_ABOVE = re.compile(r"^(?:input|output)_cost_per_token_above_(\d+)k_tokens$")
_SERVICE = re.compile(r"^input_cost_per_token_([a-z]+)$")
# Prices for calls that do not wait for an answer.
_OTHER_CALLS = frozenset({"batches", "decisions"})
_NEEDED = re.compile(
    r"^(?:(?:in|out)put_cost_per_token|cache_(?:read|creation)_input_token_cost)"
    r"(?:_above_1hr|_above_12hr)?(?:_above_\d+k_tokens)?(?:_(?!batches$|decisions$)[a-z]+)?$"
    r"|^tiered_pricing$|^max_(?:in|out)put_tokens$"
)

_DATE = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_DECORATION = re.compile(r"(?:\[\w+\]|:(?:nitro|floor|online|exacto|extended|thinking))$")
_REGION = re.compile(r"^(?:us|eu|apac|jp|au|in|global|us-gov)\.(?=[a-z]+\.)")
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Price:
    """USD per token. ``tiers`` are the whole prices of longer prompts: (above so many prompt tokens, price), ascending.

    ``write_5m`` and ``write_1h`` are for the shorter and the longer TTL that the provider sells. ``thought`` is for a
    token of thinking, if that has a price of its own (Qwen's has). ``max_output_tokens`` is the longest answer, if it
    is known. ``services`` are whole prices by service tier ("priority"), and ``extras`` are the prices of what is
    billed besides tokens of text. ``regions`` are the factors of the regions in which tokens cost more. ``alias_of`` is
    the model that is served under the name of a deployment, if the map says that it is another one.
    """

    input: float
    output: float
    read: float
    write_5m: float
    write_1h: float
    tiers: tuple[tuple[int, "Price"], ...] = ()
    max_output_tokens: int | None = None
    thought: float = 0.0
    services: tuple[tuple[str, "Price"], ...] = field(default=(), compare=False, repr=False)
    extras: Extras = field(default=Extras(), compare=False, repr=False)
    regions: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)
    alias_of: str = field(default="", compare=False, repr=False)

    @classmethod
    def relative(cls, read: float, write: float, write_long: float) -> "Price":
        """A price in units of the input price, as in cache profiles. Output is free."""
        return cls(1.0, 0.0, read, write, write_long)

    def at(self, prompt_tokens: int) -> "Price":
        """The price for a prompt of this length. Beyond a threshold, every token has the price of the tier."""
        price = self
        for above, dearer in self.tiers:
            if prompt_tokens <= above:
                break
            price = dearer
        return price

    def served(self, service: str) -> "Price":
        """The price at a service tier. If the map has no tier of that name, it is this price."""
        return next((price for name, price in self.services if name == service), self)

    def times(self, factor: float) -> "Price":
        """The price with every rate multiplied by a factor."""
        tiers = tuple((above, price.times(factor)) for above, price in self.tiers)
        return replace(
            self, input=self.input * factor, output=self.output * factor, read=self.read * factor,
            write_5m=self.write_5m * factor, write_1h=self.write_1h * factor, thought=self.thought * factor,
            tiers=tiers,
        )  # fmt: skip

    def in_region(self, region: str) -> "Price":
        """The price in that region, in which all tokens may cost more."""
        factor = next((factor for name, factor in self.regions if name == region), 1.0)
        if factor <= 1.0:
            return self
        extras = {name: getattr(self.extras, name) * factor for name in _TOKEN_EXTRAS}
        services = tuple((name, price.times(factor)) for name, price in self.services)
        return replace(self.times(factor), services=services, extras=replace(self.extras, **extras))


_TOKEN_EXTRAS = ("audio_in", "audio_out", "image_in", "image_out", "video_in", "video_out")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an exchange, in USD."""

    input_usd: float
    output_usd: float

    @property
    def total_usd(self) -> float:
        return self.input_usd + self.output_usd


def input_cost(parts: Parts, price: Price) -> float:
    """USD for the prompt."""
    rate = price.at(parts.total) if price.tiers else price
    return (
        parts.read * rate.read
        + parts.write_5m * rate.write_5m
        + parts.write_1h * rate.write_1h
        + parts.plain * rate.input
    )


def uncached_cost(parts: Parts, price: Price) -> float:
    """USD for the same prompt if there were no cache."""
    return parts.total * price.at(parts.total).input


def cost(usage: Usage, price: Price) -> Cost:
    """The cost of the exchange."""
    return Cost(input_cost(usage, price), usage.output * price.at(usage.prompt).output)


def saved_on_shadow(own: Bill, predicted: Bill, price: Price) -> float:
    """USD saved against the client's own layout, both as the shadow cache bills them. Negative if the planned layout is
    dearer."""
    return input_cost(own, price) - input_cost(predicted, price)


def saved_as_reported(own: Bill, usage: Usage, price: Price) -> float:
    """USD saved against the client's own layout, with the planned layout as the provider reported it. Negative if the
    planned layout was dearer.

    The proxy's token counts differ from the provider's. So the shadow cache's bill of the client's layout is scaled to
    the reported prompt, and its shares are kept.
    """
    return input_cost(own.scaled(usage.prompt), price) - input_cost(usage, price)


def price_of(entry: Entry) -> Price | None:
    """The price in an entry of litellm's map, or in the same fields of a configuration. None if it has no price."""
    extras = extras_of(entry)
    steps = entry.get(_STEPPED)
    if isinstance(steps, list) and steps:
        stepped = _stepped(steps, _longest(entry))
        return stepped and replace(stepped, extras=extras)
    given = [key for key in (_INPUT, _OUTPUT) if entry.get(key) is not None]
    if any(usd(entry, key) is None for key in given) or not (given or extras.is_priced):
        return None  # a price that cannot be read is not a price of 0
    whole = _whole(entry, "", None)
    services = sorted({m[1] for m in map(_SERVICE.match, entry) if m} - _OTHER_CALLS)
    return replace(
        whole,
        max_output_tokens=_longest(entry),
        services=tuple((name, _whole(entry, f"_{name}", whole)) for name in services),
        extras=replace(extras, by_tokens=bool(given)),
        regions=tuple((name, factor) for name, key in _REGIONS.items() if (factor := usd(entry, key)) is not None),
    )


def _whole(entry: Entry, service: str, usual: Price | None) -> Price:
    """The price under one service's suffix, with its tiers. Missing rates keep their proportion to the usual price."""
    base = _rates(entry, service, usual)
    tiers = []
    for k in sorted({int(m[1]) for m in map(_ABOVE.match, entry) if m}):
        named = f"_above_{k}k_tokens"
        dearer = _rates(entry, named, usual or base)
        if usual is not None and usual.input and _INPUT + named + service not in entry:
            # A discount on short prompts is none on long ones.
            dearer = dearer.times(max(1.0, base.input / usual.input))
        tiers.append((k * 1000, _rates(entry, named + service, dearer)))
    return replace(base, tiers=tuple(tiers))


def without_aliases(rows: Mapping[str, Entry]) -> dict[str, Entry]:
    """The rows of the map, in which an alias has the row of the model that is served under it (since litellm 1.110)."""
    return {name: {**row, **rows.get(str(row[_ALIAS]), {})} if _ALIAS in row else row for name, row in rows.items()}


def needed(entry: Entry) -> dict[str, object]:
    """The fields of an entry that ``price_of`` reads."""
    return {key: entry[key] for key in entry if _is_needed(key)}


@lru_cache(maxsize=1024)
def _is_needed(key: str) -> bool:
    # Thousands of entries have the same few hundred keys.
    return _NEEDED.match(key) is not None or key in _FIELDS


def _rates(entry: Entry, suffix: str, base: Price | None) -> Price:
    """The rates under one suffix. A tier's missing rate keeps its proportion to the input price, but a discount on the
    input is none on what the map does not name."""
    flat, output, read = (usd(entry, name + suffix) for name in (_INPUT, _OUTPUT, _READ))
    if flat is None:
        flat = base.input if base else 0.0
    ratio = flat / base.input if base and base.input else 1.0
    usual = base.times(max(1.0, ratio)) if base else Price(flat, 0.0, flat, flat, 0.0)
    # In the map, 0 means "no write fee" (DeepSeek, GLM): such tokens cost the input price.
    short = usd(entry, _WRITE + suffix) or usual.write_5m
    long = next((found for key in _WRITE_LONG if (found := usd(entry, key + suffix))), None)
    if long is None:
        long = usual.write_1h if base else short
    unnamed = max(base.read * ratio, min(base.read, flat)) if base else flat
    thought = usd(entry, _THOUGHT + suffix)
    return Price(
        flat, usual.output if output is None else output, unnamed if read is None else read, short, long,
        thought=usual.thought if thought is None else thought,
    )  # fmt: skip


def _stepped(steps: list[object], longest: int | None) -> Price | None:
    """A price in DashScope's form: a list of prices, each with the range of prompt tokens for which it holds."""
    prices = []
    for step in steps:
        if not isinstance(step, dict) or not isinstance(step.get("range"), list) or not step["range"]:
            return None
        start = step["range"][0]
        if not isinstance(start, int | float):
            return None
        prices.append((int(start), _rates(step, "", None)))
    prices.sort(key=lambda pair: pair[0])
    return replace(prices[0][1], tiers=tuple(prices[1:]), max_output_tokens=longest)


def _longest(entry: Entry, key: str = "max_output_tokens") -> int | None:
    longest = entry.get(key)
    return longest if type(longest) is int and longest > 0 else None


class PriceMap:
    """Prices by model, from litellm's map and the config's own.

    ``overrides`` take precedence. They are entries with the map's fields, by exact name. ``given`` are their prices.
    """

    def __init__(self, entries: Mapping[str, Entry], overrides: Mapping[str, Entry] | None = None) -> None:
        self._entries = entries
        # Clients may choose names, and each request asks: a bounded number of answers is remembered.
        self.price = lru_cache(maxsize=_REMEMBERED)(self._find)
        """The price of the first of these names that is known in any of its forms. None if no name is known."""
        self.override_all(overrides or {})

    def __len__(self) -> int:
        return len(self._entries)

    def override_all(self, overrides: Mapping[str, Entry]) -> None:
        """From now on these entries are the overrides, in place of the earlier ones."""
        self._overrides = overrides
        self.given: Mapping[str, Price | None] = {name: price_of(entry) for name, entry in overrides.items()}
        self.price.cache_clear()

    def alias_of(self, *names: str) -> str:
        """The model that is served under the first of these names that is an alias in the map; empty if none is."""
        return next((str(self._entries[name][_ALIAS]) for name in names if _ALIAS in self._entries.get(name, {})), "")

    def _find(self, *names: str) -> Price | None:
        exact = ((table, name) for table in (self._overrides, self._entries) for name in names)
        alike = ((self._entries, form) for name in names for form in forms(name))
        found = (price_of(table[name]) for table, name in chain(exact, alike) if name in table)
        return next((price for price in found if price is not None), None)


def forms(name: str) -> Sequence[str]:
    """The names under which the map may know a model, the closest one first.

    ``openrouter/anthropic/claude-sonnet-4.5:nitro`` is reduced to ``claude-sonnet-4-5``: decorations, dates, provider
    prefixes and Bedrock's regions are removed one at a time.
    """
    found: dict[str, None] = {}
    route = name.strip()
    while route:
        found |= dict.fromkeys(_variants(route))
        route = route.partition("/")[2]
    return list(found)


def _variants(name: str) -> Iterator[str]:
    for text in (name, name.lower()):
        plain = _DECORATION.sub("", text)
        undated = _DATE.sub("", plain)
        for form in (text, plain, undated, _REGION.sub("", plain), _REGION.sub("", undated)):
            yield form
            if form.startswith("claude-") and "." in form:  # OpenRouter: 4.5; Anthropic: 4-5
                yield form.replace(".", "-")

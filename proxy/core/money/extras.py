"""What a provider bills besides tokens of text, read from the fields of litellm's price map; USD per unit. Pure.

Where the map has nothing for a tool that the provider runs, OpenAI's prices stand in:
https://platform.openai.com/docs/pricing#built-in-tools. They are the dearest of those that are published.
"""

from collections.abc import Mapping

from proxy.core.value import dataclass, field

_SEARCH = "search_context_cost_per_query"
_MAPS = "google_maps_grounding_cost_per_query"
_SPECIFIC = "provider_specific_entry"
_REGIONAL = ("regional_processing_uplift_multiplier_eu", "regional_processing_uplift_multiplier_us")
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
    "output_cost_per_image_token",
    "output_cost_per_reasoning_token",
)
_FIELDS = frozenset(
    {_SEARCH, _MAPS, _SPECIFIC, *_REGIONAL, *_IMAGE, *_SECOND, *_PIXEL, _CHARACTER, _QUERY, _REQUEST, *_TOKENS,
     "max_input_tokens"}
)  # fmt: skip

SEARCH_USD = 0.025
FILE_SEARCH_USD = 0.0025
CODE_USD = 0.03
FAST_FACTOR = 6.0
"""Claude's fast mode where the map has no factor: https://platform.claude.com/docs/en/build-with-claude/fast-mode."""
LOCAL_FACTOR = 1.1
"""https://platform.claude.com/docs/en/build-with-claude/data-residency#pricing"""
SERVICE_FACTORS: Mapping[str, float] = {"priority": 2.5, "ultrafast": 6.0}
"""The dearest of each tier: https://openai.com/api-fast-mode/."""


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
    reasoning: float = 0.0
    fast: float = FAST_FACTOR
    local: float = LOCAL_FACTOR
    max_input_tokens: int | None = None
    by_tokens: bool = field(default=True)

    @property
    def is_priced(self) -> bool:
        """Whether anything besides text has a price."""
        units = (self.image, self.pixel, self.second, self.character, self.query)
        return any(unit is not None for unit in units) or max(self.audio_out, self.image_out) > 0


NO_EXTRAS = Extras()


def is_extra(key: str) -> bool:
    """Whether ``extras_of`` reads this field."""
    return key in _FIELDS


def extras_of(entry: Mapping[str, object]) -> Extras:
    """The prices in an entry of the map that are not prices of text."""
    searches = entry.get(_SEARCH)
    sizes = searches if isinstance(searches, dict) else {}
    known = [found for name in sizes if (found := usd(sizes, name)) is not None]
    if (maps := usd(entry, _MAPS)) is not None:
        known.append(maps)
    specific = entry.get(_SPECIFIC)
    factors = specific if isinstance(specific, dict) else {}
    longest = entry.get("max_input_tokens")
    audio_in, audio_out, image_in, image_out, reasoning = (usd(entry, key) or 0.0 for key in _TOKENS)
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
        max_input_tokens=longest if type(longest) is int and longest > 0 else None,
        audio_in=audio_in,
        audio_out=audio_out,
        image_in=image_in,
        image_out=image_out,
        reasoning=reasoning,
    )


def usd(entry: Mapping[str, object], key: str) -> float | None:
    """An amount in USD. None where the entry holds no sensible one."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(value)


def _most(entry: Mapping[str, object], keys: tuple[str, ...]) -> float | None:
    return max((found for key in keys if (found := usd(entry, key)) is not None), default=None)

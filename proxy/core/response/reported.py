"""The report of an answer about what its price depends on besides tokens: the tier that served it, the tools that ran,
sound and images.

OpenAI names the tier beside the usage (https://platform.openai.com/docs/api-reference/chat/object). Anthropic names the
speed, the place and the number of its tool runs within the usage
(https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool#usage-and-pricing). The Responses API
lists every call in its output (https://platform.openai.com/docs/api-reference/responses/object). OpenRouter reports the
cost of the call (https://openrouter.ai/docs/use-cases/usage-accounting). Pure.
"""

from collections.abc import Mapping
from dataclasses import fields

from proxy.core.request.wants import tier_of
from proxy.core.response.usage import mapping
from proxy.core.value import dataclass

_MOST_CALLS = 10_000
_MOST_TOKENS = 10**12
_MOST_USD = 10_000.0
_MOST_SECONDS = 10**7
_MOST_ITEMS = 100_000
_SEARCH_ITEMS = frozenset({"web_search_call", "x_search_call"})
_FILE_ITEMS = frozenset({"file_search_call", "collections_search_call"})
_CODE_ITEMS = frozenset({"code_interpreter_call"})


@dataclass(frozen=True, slots=True)
class Reported:
    """The report of one answer. Its counters are cumulative."""

    tier: str = ""
    is_fast: bool = False
    is_local: bool = False
    searches: int = 0
    files: int = 0
    codes: int = 0
    audio_in: int = 0
    audio_out: int = 0
    image_in: int = 0
    image_out: int = 0
    images: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    """The cost of the call, as its provider states it."""

    def merged(self, other: "Reported") -> "Reported":
        """Both reports of one exchange."""
        if other == NOTHING_REPORTED:
            return self
        if self == NOTHING_REPORTED:
            return other
        return Reported(*(max(getattr(self, f.name), getattr(other, f.name)) for f in fields(Reported)))


NOTHING_REPORTED = Reported()


def reported_in(payload: Mapping[str, object]) -> Reported:
    """The report in an answer, or in an event of a stream."""
    outer = mapping(payload.get("response")) or mapping(payload.get("message")) or payload
    usage = mapping(outer.get("usage")) or mapping(payload.get("usage"))
    tier = outer.get("service_tier")
    prompt = mapping(usage.get("prompt_tokens_details")) or mapping(usage.get("input_tokens_details"))
    prompt = prompt or mapping(usage.get("input_token_details"))
    answer = mapping(usage.get("completion_tokens_details")) or mapping(usage.get("output_tokens_details"))
    tools = mapping(usage.get("server_tool_use"))
    items = outer.get("output")
    types = [
        kind
        for item in (items[:_MOST_ITEMS] if isinstance(items, list) else ())
        if isinstance(kind := mapping(item).get("type"), str)
    ]
    data = payload.get("data")
    gemini = mapping(outer.get("usageMetadata"))
    heard, made = (_by_mode(gemini.get(f"{one}TokensDetails")) if gemini else {} for one in ("prompt", "candidates"))
    return Reported(
        tier=tier_of(tier.lower()) if isinstance(tier, str) else "",
        is_fast=usage.get("speed") == "fast",
        is_local=usage.get("inference_geo") in ("us", "eu"),
        searches=max(_whole(tools.get("web_search_requests")), _whole(usage.get("num_search_queries")), _queries(outer),
                     sum(kind in _SEARCH_ITEMS for kind in types)),
        files=sum(kind in _FILE_ITEMS for kind in types),
        codes=min(1, max(_whole(tools.get("code_execution_requests")), sum(kind in _CODE_ITEMS for kind in types))),
        audio_in=_whole(prompt.get("audio_tokens", heard.get("AUDIO")), _MOST_TOKENS),
        audio_out=_whole(answer.get("audio_tokens", made.get("AUDIO")), _MOST_TOKENS),
        image_in=_whole(prompt.get("image_tokens", heard.get("IMAGE")), _MOST_TOKENS),
        image_out=_whole(answer.get("image_tokens", made.get("IMAGE")), _MOST_TOKENS),
        images=min(len(data), _MOST_ITEMS) if isinstance(data, list) else 0,
        seconds=_amount(usage.get("seconds"), _MOST_SECONDS) or _amount(payload.get("duration"), _MOST_SECONDS),
        usd=_amount(usage.get("cost"), _MOST_USD),
    )  # fmt: skip


def _by_mode(found: object) -> Mapping[object, object]:
    """Gemini's tokens by modality: https://ai.google.dev/api/generate-content#ModalityTokenCount."""
    details = [mapping(one) for one in (found[:_MOST_ITEMS] if isinstance(found, list) else ())]
    return {one.get("modality"): one.get("tokenCount") for one in details if isinstance(one.get("modality"), str)}


def _queries(outer: Mapping[str, object]) -> int:
    """Gemini's searches: https://ai.google.dev/gemini-api/docs/google-search#understanding_the_grounding_response."""
    found = outer.get("candidates")
    grounds = [mapping(mapping(one).get("groundingMetadata")) for one in (found if isinstance(found, list) else ())]
    queries = [one.get("webSearchQueries") for one in grounds]
    return min(sum([len(one) for one in queries if isinstance(one, list)]), _MOST_CALLS)


def _whole(found: object, most: int = _MOST_CALLS) -> int:
    return found if type(found) is int and 0 <= found <= most else 0


def _amount(found: object, most: float) -> float:
    """The amount, if it is plausible: neither negative nor NaN, and at most ``most``. Otherwise 0."""
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and 0 <= found <= most else 0.0  # type: ignore[arg-type, operator]

"""Computes the most that a request can cost, and what it did cost: its tokens at the rates of its tier, and all else
that is billed. Both follow the same rules. All functions are pure.

The highest cost is reserved before a request is sent. It has the whole prompt at its dearest rate, all answers at their
longest, and every tool called as often as is allowed. Each tool call reads the prompt again, with all that was found
before. If a provider may first make a summary of the prompt, that is one more reading and one more answer. A discount
that a provider may not give (``flex``) does not lower the cost. None stands for an unknown cost.
"""

import math
from collections.abc import Sequence

from proxy.core.money.budget import UNKNOWN_OUTPUT_TOKENS, nanos_at_most, worst_case
from proxy.core.money.prices import CODE_USD, FILE_SEARCH_USD, SERVICE_FACTORS, Cost, Extras, Price, cost
from proxy.core.request.demand import Demand, Kind
from proxy.core.request.wants import Tool, Wants
from proxy.core.response.reported import Reported
from proxy.core.response.usage import Usage

UNKNOWN_PROMPT_TOKENS = 200_000
"""The longest prompt that is assumed if a part of it is not in the body and the model's limit is unknown."""
_STEPPED_TOKENS = 1_000_000
"""The longest prompt of a model that has a price for prompts beyond its usual limit. A client may ask for such prompts:
https://platform.claude.com/docs/en/build-with-claude/context-windows#1m-token-context-window."""
_FOUND_TOKENS = 8_000
"""The tokens that a search adds to the prompt: https://platform.openai.com/docs/pricing#built-in-tools. All other tools
may bring any amount: pages, files, a program's output."""
_IMAGE_TOKENS = 6_600
"""The tokens of the largest image at the highest quality, with the three partial images that a stream may show before:
https://platform.openai.com/docs/guides/image-generation#cost-and-latency."""
_MOST_PIXELS = 1792 * 1024
_SPOKEN_TOKENS_PER_S = 20
_HEARD_TOKENS_PER_S = 10
_DOCUMENTS_PER_QUERY = 100
"""A search has up to a hundred documents: https://docs.cohere.com/docs/how-does-cohere-pricing-work."""
_TOKENS_PER_DOCUMENT = 500
# Models that search before each answer, by a part of their names.
_SEARCHING: Sequence[str] = ("-search-preview", "-search-api", "/sonar", "perplexity", ":online")


def most_cost(
    price: Price, demand: Demand, prompt_tokens: int, output_tokens: int, *, long_life: bool, model: str = ""
) -> int | None:
    """The most nano-dollars that a request can cost. None if that is unknown."""
    match demand.kind:
        case Kind.FREE:
            return 0
        case Kind.UNKNOWN:
            return None
        case Kind.TEXT | Kind.PROMPT:
            return _most_text(price, demand, prompt_tokens, output_tokens, long_life=long_life, model=model)
        case _:
            usd = unit_cost(price, demand, prompt_tokens)
            return None if usd is None else nanos_at_most(usd)


def most_prompt(price: Price | None, demand: Demand, prompt_tokens: int) -> int:
    """The most tokens of a prompt with all that a request refers to."""
    return max(prompt_tokens, window_of(price)) if demand.wants.is_beyond else prompt_tokens


def most_read(price: Price | None, calls: Sequence[tuple[Tool, int]], prompt_tokens: int) -> int:
    """The most tokens that are read for a prompt, with what the provider's tools find in this many calls."""
    rounds = 1 + sum(count for _, count in calls)
    window = max(prompt_tokens, window_of(price))
    if any(tool is not Tool.SEARCH for tool, _ in calls):
        return rounds * window
    return min(rounds * window, rounds * prompt_tokens + _FOUND_TOKENS * (rounds * (rounds - 1) // 2))


def window_of(price: Price | None) -> int:
    """The longest prompt that the model may be sent."""
    known = (price.extras.max_input_tokens if price is not None else None) or UNKNOWN_PROMPT_TOKENS
    return _STEPPED_TOKENS if price is not None and any(above >= known for above, _ in price.tiers) else known


def unit_tokens(demand: Demand) -> int:
    """The most tokens that the images or the sound of a call can be billed as."""
    return demand.images * _IMAGE_TOKENS + math.ceil(demand.seconds * _SPOKEN_TOKENS_PER_S)


def unit_cost(price: Price, demand: Demand, prompt_tokens: int) -> float | None:
    """USD for a call that is billed by images, sound, characters or searches. None if the map has no such price."""
    extras = price.extras
    prompt_usd = most_prompt(price, demand, prompt_tokens) * max(price.input, extras.image_in)
    match demand.kind:
        case Kind.IMAGE:
            each = _image_usd(price)
            return None if each is None else prompt_usd + demand.images * each
        case Kind.SPEECH if extras.character is not None:
            return demand.characters * extras.character
        case Kind.SPEECH if extras.second is not None or extras.audio_out:
            per_s = max(extras.second or 0.0, extras.audio_out * _SPOKEN_TOKENS_PER_S)
            return prompt_usd + demand.seconds * per_s
        case Kind.TRANSCRIPTION if extras.second is not None or extras.audio_in:
            heard = (max(extras.audio_in, price.input) + price.output) * _HEARD_TOKENS_PER_S
            return demand.seconds * max(extras.second or 0.0, heard)
        case Kind.RERANK if extras.query is not None:
            by_size = math.ceil(prompt_tokens / (_DOCUMENTS_PER_QUERY * _TOKENS_PER_DOCUMENT))
            queries = max(1, math.ceil(demand.documents / _DOCUMENTS_PER_QUERY), by_size)
            return prompt_usd + queries * extras.query
        case Kind.RERANK if extras.by_tokens:
            return prompt_usd
        case _:
            return None


def bill(price: Price, demand: Demand, usage: Usage | None, reported: Reported, model: str = "") -> Cost | None:
    """The cost of an exchange, according to its report. None if nothing was reported and nothing is billed without a
    report."""
    if demand.kind in (Kind.TEXT, Kind.PROMPT, Kind.FREE, Kind.UNKNOWN):
        return None if usage is None else _text_bill(price, demand, usage, reported, model)
    if (usd := _reported_units(price, demand, usage, reported)) is None:
        usd = unit_cost(price, demand, usage.prompt if usage is not None else 0)
    return None if usd is None else Cost(0.0, max(usd, reported.usd))


def _most_text(
    price: Price, demand: Demand, prompt_tokens: int, output_tokens: int, *, long_life: bool, model: str
) -> int | None:
    extras, wants = price.extras, demand.wants
    if not extras.by_tokens:
        return None
    once = most_prompt(price, demand, prompt_tokens)
    prompt = most_read(price, wants.calls, once)
    rounds = 1 + sum(count for _, count in wants.calls)
    rate = _dearest(price, wants).at(min(prompt, max(once, window_of(price))))
    if wants.is_summarised:
        prompt, output_tokens = 2 * prompt, output_tokens + rounds * longest_output(None, price)
    nanos = worst_case(rate, prompt, output_tokens, long_life=long_life)
    usd = _more(output_tokens, _dearest_output(extras, wants), rate.output)
    # Content of unknown length may be sound.
    usd += _more(prompt, max(extras.image_in, extras.audio_in if wants.is_beyond else 0.0), rate.input)
    usd += sum(_call_usd(extras, tool, count) for tool, count in wants.calls) + extras.request
    usd += CODE_USD * wants.memory_gib
    if _searches(model) and not any(tool is Tool.SEARCH for tool, _ in wants.calls):
        usd += extras.search
    return nanos + nanos_at_most(usd)


def _dearest(price: Price, wants: Wants) -> Price:
    """The price at which the request may be served."""
    served = price
    if wants.tier:
        asked = price.served(wants.tier)
        if asked is price:
            asked = price.times(SERVICE_FACTORS.get(wants.tier, 1.0))
        served = max(price, asked, key=lambda one: one.input + one.output)
    factor = (price.extras.fast if wants.is_fast else 1.0) * (price.extras.local if wants.is_local else 1.0)
    return served if factor == 1.0 else served.times(factor)


def _dearest_output(extras: Extras, wants: Wants) -> float:
    """The dearest rate of the things other than text that an answer may contain."""
    return max(
        extras.reasoning,
        extras.audio_out if wants.has_audio else 0.0,
        extras.image_out,  # models that can draw may draw without being asked
    )


def _call_usd(extras: Extras, tool: Tool, count: int) -> float:
    by_tool = {Tool.SEARCH: count * extras.search, Tool.FILES: count * FILE_SEARCH_USD, Tool.CODE: CODE_USD}
    return by_tool.get(tool, 0.0)


def longest_output(given: int | None, price: Price | None) -> int:
    """The longest answer: the limit of the request or of a rule, or else the limit of the model."""
    if given is not None:
        return given
    return (price.max_output_tokens if price is not None else None) or UNKNOWN_OUTPUT_TOKENS


def _text_bill(price: Price, demand: Demand, usage: Usage, reported: Reported, model: str) -> Cost:
    extras, rate = price.extras, _served(price, demand, usage, reported)
    spent = cost(usage, rate)
    at = rate.at(usage.prompt)
    input_usd = _more(min(reported.audio_in, usage.prompt), extras.audio_in, at.input) + _more(
        reported.image_in, extras.image_in, at.input
    )
    output_usd = _more(min(reported.audio_out, usage.output), extras.audio_out, at.output)
    output_usd += _more(min(reported.image_out, usage.output), extras.image_out, at.output)
    if usage.estimated:
        output_usd = _more(usage.output, _dearest_output(extras, demand.wants), at.output)
    searches = reported.searches or int(demand.wants.searches_once or _searches(model))
    codes = max(reported.codes, demand.wants.memory_gib)
    other_usd = searches * extras.search + reported.files * FILE_SEARCH_USD + codes * CODE_USD + extras.request
    total = Cost(spent.input_usd + input_usd, spent.output_usd + output_usd + other_usd)
    return Cost(total.input_usd, max(total.output_usd, reported.usd - total.input_usd))


def _served(price: Price, demand: Demand, usage: Usage, reported: Reported) -> Price:
    """The price of the tier that served the request. If that tier is unknown, it is the price of the dearest tier that
    the request asked for."""
    if usage.estimated and not reported.tier:
        return _dearest(price, demand.wants)
    served = price.served(reported.tier)
    if served is price and reported.tier and reported.tier == demand.wants.tier:
        served = price.times(SERVICE_FACTORS.get(reported.tier, 1.0))
    factor = (price.extras.fast if reported.is_fast else 1.0) * (price.extras.local if reported.is_local else 1.0)
    return served if factor == 1.0 else served.times(factor)


def _more(tokens: int, own: float, usual: float) -> float:
    """The cost of tokens beyond the usual rate, if they have a price of their own."""
    return tokens * (own - usual) if own > usual else 0.0


def _reported_units(price: Price, demand: Demand, usage: Usage | None, reported: Reported) -> float | None:
    extras = price.extras
    if demand.kind is Kind.IMAGE and extras.image_out and usage is not None:
        text = usage.prompt - min(reported.image_in, usage.prompt)
        return text * price.input + reported.image_in * extras.image_in + usage.output * extras.image_out
    if demand.kind is Kind.IMAGE and reported.images and (each := _image_usd(price)) is not None:
        return reported.images * each
    if demand.kind is Kind.TRANSCRIPTION and extras.second is not None and reported.seconds:
        return reported.seconds * extras.second
    if demand.kind is Kind.TRANSCRIPTION and usage is not None and extras.by_tokens:
        return usage.prompt * max(extras.audio_in, price.input) + usage.output * price.output
    return None


def _image_usd(price: Price) -> float | None:
    extras = price.extras
    known = [
        *([extras.image] if extras.image is not None else []),
        *([extras.pixel * _MOST_PIXELS] if extras.pixel else []),
        *([extras.image_out * _IMAGE_TOKENS] if extras.image_out else []),
    ]
    return max(known, default=None)


def _searches(model: str) -> bool:
    return any(part in model.lower() for part in _SEARCHING)

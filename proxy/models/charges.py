"""Computes what a request can cost, and what it did cost. All functions are pure.

First stand the limits: a rule, the amounts that a request takes of it, and the text of a refusal. A hard limit holds
because a request is sent only if its *worst case* fits: the whole prompt at the dearest rate that its markers can
cause, all answers at their longest, and every tool called as often as is allowed. Each tool call reads the prompt
again, with all that was found before. If a provider may first make a summary of the prompt, that is one more reading
and one more answer. A discount that a provider may not give (``flex``) does not lower the cost. None stands for an
unknown cost.

The estimate is never below the bill on two conditions. The provider counts no more tokens than the prompt's bound
allows for (``proxy.models.bound``), and it answers within the request's own limit (or, if the request sets none,
within the model's limit or ``Rule.assumed_output_tokens``). Soft limits and forecasts use the *expected* cost: the
prompt as the shadow cache bills it, and an answer of the usual length.

The bill follows the same rules as the worst case: tokens at the rates of the tier that served them, and all else that
is billed.

Last stands what is booked for a call that was sent to an upstream and that has no usage, or only a part of it. The same
rules hold for every such call, whatever ended it early (the client left, the upstream was silent for too long, the
connection broke) and whoever made it:

- The prompt is booked in full, as it was reserved: no part of it counts as read from a cache.
- The received part of the answer is booked by the proxy's own count.
- The time in which nothing came is booked as thinking, at the fastest rate that is known of the model, for each of the
  answers. If the provider goes on with a call that the proxy has given up, it is booked as if it went on to its limit.
- A tool that the provider runs counts as called once a second, but not more often than the request allows.
- A summary of the prompt that the provider was allowed to make counts as made, and as long as the model's longest
  answer.
- The output is never more than the limit that was sent upstream, unless the model was seen to pass its limits, or this
  answer passes it. Then it may be longer by the model's longest answer, as it was reserved.

When the client of a call has left, some providers stop, and others go on to the end and bill all of it. The list comes
from OpenRouter, which calls all of them: https://openrouter.ai/docs/api-reference/streaming ("Stream Cancellation").
The same page says that a call without a stream always runs on. The names of providers are those of
``proxy.protocol.providers.hosted``. OpenRouter itself does what the provider behind it does, and it is not visible
which provider that is.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from proxy.kit.lru import LastUsed
from proxy.kit.value import dataclass, field, replace
from proxy.protocol.caches import Bill
from proxy.protocol.prices import (
    CODE_USD,
    FILE_SEARCH_USD,
    MOST_AMOUNT,
    SERVICE_FACTORS,
    Cost,
    Extras,
    Price,
    cost,
    input_cost,
)
from proxy.protocol.request.demand import BillingKind, Demand, Tool, Wants
from proxy.protocol.response.usage import Reported, Usage

Unit = Literal["usd", "tokens", "requests"]

NANOS_PER_USD = 1_000_000_000

UNKNOWN_OUTPUT_TOKENS = 8192
"""The longest answer that is assumed for a model without a known limit."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit that holds for one request: a budget, or a rate limit.

    ``whom`` says what the rule counts separately (a key's id, a user, a model); empty: the whole team together.
    ``models`` is the pattern of the models that it counts; empty: all.
    ``hard`` and ``soft`` are in the counter's unit: nano-dollars, tokens (prompt and output), requests. ``window`` is
    "total", "minute", "hour", "day", "week" (from Monday), "month" (calendar, in ``timezone``) or "rolling:SECONDS".
    ``assumed_output_tokens`` are used for a request that sets no limit of its own (None: the most that the model can
    answer). ``is_rate``: exceeding the limit is a 429 ``rate_limit_exceeded`` with a time to retry after, and not a
    spent budget.
    """

    id: str
    title: str
    """The rule's name in an error: "the monthly budget of team 'red'"."""
    unit: Unit = "usd"
    hard: int | None = None
    soft: int | None = None
    window: str = "total"
    timezone: str = "UTC"
    whom: str = ""
    models: str = ""
    assumed_output_tokens: int | None = None
    is_rate: bool = False
    webhook: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The amount of a unit that one request takes: at most, and probably."""

    most: int
    expected: int


def worst_case(price: Price, prompt_tokens: int, output_tokens: int, *, long_life: bool) -> int:
    """Nano-dollars for a prompt that is all written to the cache, with the longer TTL if it is asked for."""
    rate = price.at(prompt_tokens)
    dearest = max(rate.input, rate.read, rate.write_5m, rate.write_1h if long_life else 0.0)
    return nanos_at_most(prompt_tokens * dearest + output_tokens * rate.output)


def expected_cost(price: Price, bill: Bill | None, prompt_tokens: int, output_tokens: int) -> int:
    """Nano-dollars for a prompt as the shadow cache bills it. Without a bill from the shadow cache, the prompt counts
    as plain input."""
    prompt = bill if bill is not None else Bill(0, 0, 0, prompt_tokens)
    return nanos(input_cost(prompt, price) + output_tokens * price.at(prompt.total).output)


def nanos(usd: float) -> int:
    """An amount in nano-dollars, rounded."""
    return round(min(usd * NANOS_PER_USD, MOST_AMOUNT))


def nanos_at_most(usd: float) -> int:
    """An amount in nano-dollars, rounded up."""
    # The rounding errors of float products are smaller than the digits that are cut.
    return math.ceil(round(min(usd * NANOS_PER_USD, MOST_AMOUNT), 3))


def refusal(rule: Rule, spent: int, reserved: int, amount: int, again: str, why: str = "") -> str:
    """The reason for a refusal, as a text for the client. ``again`` says when the window ends ("" for never), and
    ``why`` says what the request's bound was made from."""
    limit = rule.hard or 0
    running = f", {amount_text(rule.unit, reserved)} reserved by running requests" if reserved > 0 else ""
    state = f"{amount_text(rule.unit, spent)} of {amount_text(rule.unit, limit)} spent{running}"
    if spent + reserved < limit and rule.unit != "requests":
        verb = "cost" if rule.unit == "usd" else "take"
        state += f", and this request may {verb} up to {amount_text(rule.unit, amount)}{why and f' ({why})'}"
    text = f"{rule.title[:1].upper()}{rule.title[1:]} does not allow this request: {state}."
    return f"{text} It begins anew at {again}." if again else text


def amount_text(unit: Unit, amount: int) -> str:
    """An amount for people: "$1.25", "1200 tokens", "3 requests"."""
    if unit != "usd":
        return f"{amount} {unit}"
    usd = amount / NANOS_PER_USD
    return f"${usd:.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}" if usd >= 1e-4 else f"${usd:.1e}"


UNKNOWN_PROMPT_TOKENS = 200_000
"""The longest prompt that is assumed if a part of it is not in the body and the model's limit is unknown."""
# The longest prompt of a model that has a price for prompts beyond its usual limit. A client may ask for such prompts:
# https://platform.claude.com/docs/en/build-with-claude/context-windows#1m-token-context-window.
_STEPPED_TOKENS = 1_000_000
# The tokens that a search adds to the prompt: https://platform.openai.com/docs/pricing#built-in-tools. All other tools
# may bring any amount: pages, files, a program's output.
_FOUND_TOKENS = 8_000
# The tokens of the largest image at the highest quality, with the three partial images that a stream may show before:
# https://platform.openai.com/docs/guides/image-generation#cost-and-latency.
_IMAGE_TOKENS = 6_600
_MOST_PIXELS = 1792 * 1024
_SPOKEN_TOKENS_PER_S = 20
_HEARD_TOKENS_PER_S = 10
# A search has up to a hundred documents: https://docs.cohere.com/docs/how-does-cohere-pricing-work.
_DOCUMENTS_PER_QUERY = 100
_TOKENS_PER_DOCUMENT = 500
# Models that search before each answer, by a part of their names.
_SEARCHING: Sequence[str] = ("-search-preview", "-search-api", "sonar", "perplexity", ":online")


def most_cost(
    price: Price, demand: Demand, prompt_tokens: int, output_tokens: int, *, long_life: bool, model: str = ""
) -> int | None:
    """The most nano-dollars that a request can cost. None if that is unknown."""
    match demand.kind:
        case BillingKind.FREE:
            return 0
        case BillingKind.UNKNOWN:
            return None
        case BillingKind.TEXT | BillingKind.PROMPT:
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
        case BillingKind.IMAGE:
            each = _image_usd(price)
            return None if each is None else prompt_usd + demand.images * each
        case BillingKind.SPEECH if extras.character is not None:
            return demand.characters * extras.character
        case BillingKind.SPEECH if extras.second is not None or extras.audio_out:
            return prompt_usd + demand.seconds * max(extras.second or 0.0, extras.audio_out * _SPOKEN_TOKENS_PER_S)
        case BillingKind.TRANSCRIPTION if extras.second is not None or extras.audio_in:
            heard = (max(extras.audio_in, price.input) + price.output) * _HEARD_TOKENS_PER_S
            return demand.seconds * max(extras.second or 0.0, heard)
        case BillingKind.RERANK if extras.query is not None:
            by_size = math.ceil(prompt_tokens / (_DOCUMENTS_PER_QUERY * _TOKENS_PER_DOCUMENT))
            return prompt_usd + max(1, math.ceil(demand.documents / _DOCUMENTS_PER_QUERY), by_size) * extras.query
        case BillingKind.RERANK if extras.by_tokens:
            return prompt_usd
        case _:
            return None


def bill(price: Price, demand: Demand, usage: Usage | None, reported: Reported, model: str = "") -> Cost | None:
    """The cost of an exchange, according to its report. None if nothing was reported and nothing is billed without a
    report."""
    if demand.kind in (BillingKind.TEXT, BillingKind.PROMPT, BillingKind.FREE, BillingKind.UNKNOWN):
        return None if usage is None else _text_bill(price, demand, usage, reported, model)
    if (usd := _reported_units(price, demand, usage, reported)) is None:
        usd = unit_cost(price, demand, usage.prompt if usage is not None else 0)
    return None if usd is None else Cost(0.0, max(usd, reported.usd))


def _most_text(
    price: Price, demand: Demand, prompt_tokens: int, output_tokens: int, *, long_life: bool, model: str
) -> int | None:
    extras, wants = price.extras, demand.wants
    is_tier_known = not wants.tier or wants.tier in SERVICE_FACTORS or price.served(wants.tier) is not price
    if not (extras.by_tokens and is_tier_known):
        return None
    once = most_prompt(price, demand, prompt_tokens)
    prompt = most_read(price, wants.calls, once)
    rounds = 1 + sum(count for _, count in wants.calls)
    if wants.is_summarised:
        prompt, output_tokens = 2 * prompt, output_tokens + rounds * longest_output(None, price)
    # The readings of a prompt are booked together, at the rate of a prompt of their length.
    rate = _dearest(price, wants, min(prompt, max(once, window_of(price))))
    nanos = worst_case(rate, prompt, output_tokens, long_life=long_life)
    usd = _more(output_tokens, max(rate.thought, _dearest_output(extras, wants)), rate.output)
    # Content of unknown length may be sound or a video.
    usd += _more(
        prompt, max(extras.image_in, max(extras.audio_in, extras.video_in) if wants.is_beyond else 0.0), rate.input
    )
    each = {Tool.SEARCH: extras.search, Tool.FILES: FILE_SEARCH_USD}
    usd += sum(CODE_USD if tool is Tool.CODE else count * each.get(tool, 0.0) for tool, count in wants.calls)
    usd += extras.request
    usd += CODE_USD * wants.memory_gib
    if _searches(model) and not any(tool is Tool.SEARCH for tool, _ in wants.calls):
        usd += extras.search
    return nanos + nanos_at_most(usd)


def _dearest(price: Price, wants: Wants, prompt_tokens: int) -> Price:
    """The price at which the request may be served, for a prompt of this length: of each kind of tokens the dearer one,
    of the tier that is asked for and of the usual one."""
    served = price.at(prompt_tokens)
    if wants.tier:
        named = price.served(wants.tier)
        asked = (price.times(SERVICE_FACTORS.get(wants.tier, 1.0)) if named is price else named).at(prompt_tokens)
        served = replace(
            served, input=max(served.input, asked.input), output=max(served.output, asked.output),
            read=max(served.read, asked.read), write_5m=max(served.write_5m, asked.write_5m),
            write_1h=max(served.write_1h, asked.write_1h), thought=max(served.thought, asked.thought), tiers=(),
        )  # fmt: skip
    factor = (price.extras.fast if wants.is_fast else 1.0) * (price.extras.local if wants.is_local else 1.0)
    return served if factor == 1.0 else served.times(factor)


def _dearest_output(extras: Extras, wants: Wants) -> float:
    """The dearest rate of the things other than text that an answer may contain."""
    return max(
        extras.audio_out if wants.has_audio else 0.0,
        extras.image_out,  # models that can draw may draw without being asked
        extras.video_out,
    )


def longest_output(given: int | None, price: Price | None) -> int:
    """The longest answer: the limit of the request or of a rule, or else the limit of the model."""
    if given is not None:
        return given
    return (price.max_output_tokens if price is not None else None) or UNKNOWN_OUTPUT_TOKENS


def _text_bill(price: Price, demand: Demand, usage: Usage, reported: Reported, model: str) -> Cost:
    extras, rate = price.extras, _served(price, demand, usage, reported)
    spent = cost(usage, rate)
    at = rate.at(usage.prompt)
    read = (
        (reported.audio_in, extras.audio_in),
        (reported.image_in, extras.image_in),
        (reported.video_in, extras.video_in),
    )
    made = (
        (reported.audio_out, extras.audio_out), (reported.image_out, extras.image_out),
        (reported.video_out, extras.video_out), (reported.thought, at.thought),
    )  # fmt: skip
    input_usd = spent.input_usd + sum(_more(min(tokens, usage.prompt), own, at.input) for tokens, own in read)
    output_usd = sum(_more(min(tokens, usage.output), own, at.output) for tokens, own in made)
    if usage.estimated:
        output_usd = _more(usage.output, max(at.thought, _dearest_output(extras, demand.wants)), at.output)
    searches = reported.searches or int(demand.wants.searches_once or _searches(model))
    codes = max(reported.codes, demand.wants.memory_gib)
    other_usd = searches * extras.search + reported.files * FILE_SEARCH_USD + codes * CODE_USD + extras.request
    return Cost(input_usd, max(spent.output_usd + output_usd + other_usd, reported.usd - input_usd))


def _served(price: Price, demand: Demand, usage: Usage, reported: Reported) -> Price:
    """The price of the tier that served the request. If that tier is unknown, it is the price of the dearest tier that
    the request asked for."""
    if usage.estimated and not reported.tier:
        return _dearest(price, demand.wants, usage.prompt)
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
    if demand.kind is BillingKind.IMAGE and extras.image_out and usage is not None:
        seen = min(reported.image_in, usage.prompt)
        return usage.prompt * price.input + _more(seen, extras.image_in, price.input) + usage.output * extras.image_out
    if demand.kind is BillingKind.IMAGE and reported.images and (each := _image_usd(price)) is not None:
        return reported.images * each
    if demand.kind is BillingKind.TRANSCRIPTION and extras.second is not None and reported.seconds:
        return reported.seconds * extras.second
    if demand.kind is BillingKind.TRANSCRIPTION and usage is not None and extras.by_tokens:
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


# The beginnings of their names: litellm has several for one provider.
_RUN_ON = (
    "gemini", "vertex_ai", "bedrock", "sagemaker", "groq", "mistral", "minimax", "dashscope", "openrouter",
    "perplexity", "huggingface", "replicate", "ai21", "featherless", "lambda_ai", "sambanova", "nebius",
)  # fmt: skip

_MOST_DEPLOYMENTS = 1000
# Output tokens a second of the fastest models: https://inference-docs.cerebras.ai/models/overview,
# https://console.groq.com/docs/models.
_TOKENS_PER_S: Mapping[str, float] = {"cerebras": 3000.0, "groq": 1200.0}
# The highest published speed of models at other providers: https://artificialanalysis.ai/models#speed.
_USUAL_TOKENS_PER_S = 300.0
# A faster answer was not written while it was awaited: a gateway had kept it.
_MOST_TOKENS_PER_S = 10_000.0
# No model is assumed to be slower than this: a client that reads slowly makes its own answers slow.
_LEAST_TOKENS_PER_S = 100.0
_MARGIN = 1.5
SPARE_TOKENS = 16
"""Marks of the end of an answer that a provider may count beyond the limit."""
_SEEN = 20
# For a shorter answer, most of the time was spent on reading the prompt.
_LEAST_OUTPUT_TOKENS = 200


def runs_on(server: str, *, is_stream: bool, is_background: bool = False) -> bool:
    """Whether the provider finishes and bills a call although its client has left. Unknown servers are assumed to stop
    a stream, as vLLM, SGLang and llama.cpp do, unless the answer is written in the background."""
    return not is_stream or is_background or server.startswith(_RUN_ON)


@dataclass(frozen=True, slots=True)
class Heard:
    """The received part of an answer: ``tokens`` of text by the proxy's own count, in the ``total_s`` seconds since the
    call was sent. In ``silent_s`` of these seconds nothing came. ``runs_on``: the call goes on at the provider."""

    tokens: int
    silent_s: float
    total_s: float
    runs_on: bool = False


class Speeds:
    """The highest known speed of models, by deployment. It is the observed speed, or the published one before an answer
    was observed."""

    def __init__(self) -> None:
        self._known: LastUsed[str, tuple[float, int]] = LastUsed(_MOST_DEPLOYMENTS)

    def tokens_per_s(self, deployment: str, server: str) -> float:
        """The fastest rate that is known of a model."""
        fastest, answers = self._known.get(deployment, (0.0, 0))
        seen = max(fastest * _MARGIN, _LEAST_TOKENS_PER_S)
        return seen if answers >= _SEEN else max(seen, _TOKENS_PER_S.get(server, _USUAL_TOKENS_PER_S))

    def learn(self, deployment: str, output_tokens: float, seconds: float) -> None:
        """Learn from one answer: its tokens, and the seconds that it took."""
        if output_tokens >= _LEAST_OUTPUT_TOKENS and output_tokens <= seconds * _MOST_TOKENS_PER_S:
            fastest, answers = self._known.get(deployment, (0.0, 0))
            self._known.put(deployment, (max(fastest, output_tokens / seconds), answers + 1))


def unanswered(
    demand: Demand,
    prompt_tokens: int,
    heard: Heard,
    tokens_per_s: float,
    price: Price | None,
    *,
    passes_limits: bool = False,
) -> tuple[Usage, Reported]:
    """The usage and the report with which the call is booked. ``price`` is the model's price; None: it has none.
    ``passes_limits``: the model has written answers that were longer than their requests allowed."""
    longest, limit = longest_output(None, price), demand.max_output_tokens
    most = longest_output(limit, price)
    if limit is not None and (passes_limits or heard.tokens > demand.answers * (limit + SPARE_TOKENS)):
        most += longest
    # No answer is longer than all that a model can hold.
    most = min(most, max(longest, window_of(price))) * demand.answers
    output = heard.tokens + int(heard.silent_s * tokens_per_s * demand.answers)
    if demand.kind is BillingKind.PROMPT:
        output = 0
    elif heard.runs_on or output > most:
        output = most
    output += demand.predicted_tokens * demand.answers
    made = {tool: min(count, 1 + int(heard.total_s)) for tool, count in demand.wants.calls}
    prompt = most_read(price, tuple(made.items()), prompt_tokens)
    if demand.wants.is_summarised:
        prompt, output = 2 * prompt, output + longest
    ran = Reported(
        searches=made.get(Tool.SEARCH, 0), files=made.get(Tool.FILES, 0), codes=min(1, made.get(Tool.CODE, 0))
    )
    return Usage(min(prompt, MOST_AMOUNT), min(output, MOST_AMOUNT), estimated=True), ran

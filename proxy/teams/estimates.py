"""Estimates how much a request will use of each kind of limit: at most, and probably.

``PromptBounds`` bounds the tokens of prompts. Each message is weighed once and counted once, and the result is kept
with the message, or by digest. Texts are counted only if the caller asks for it. Large bodies are taken apart, and many
new values are weighed and counted, beside the event loop.

``Estimates`` makes the amounts that are reserved from these bounds, from prices, and from what the answers of
deployments have shown.
"""

import re
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO

import imagesize
from msgspec import Raw

from proxy.engine.exchange import Exchange
from proxy.kit.errors import Forbidden, InvalidRequest
from proxy.kit.lru import LastUsed
from proxy.kit.tasks import LARGE_BYTES, Aside, work_in
from proxy.kit.value import digest
from proxy.models import Deployment
from proxy.models.bound import (
    SETTING_BYTES,
    SETTINGS,
    TALK,
    InputBound,
    Pixels,
    of_bytes,
    tells_size,
    weigh,
    whole,
)
from proxy.models.charges import (
    SPARE_TOKENS,
    Estimate,
    Rule,
    expected_cost,
    longest_output,
    most_cost,
    most_prompt,
    most_read,
    unit_tokens,
)
from proxy.protocol.prices import MOST_AMOUNT, Price
from proxy.protocol.request import ParsedBody, parse_body
from proxy.protocol.request.demand import BillingKind, Demand
from proxy.protocol.request.tokens import Encode
from proxy.protocol.wire.json_body import Unreadable, elements

_MOST_KNOWN = 20_000
_KNOWN_SHARE = 25_000
# The most pictures of one value for which its bound is kept. A bound with thousands of pictures would take more memory
# than their bytes, for as long as it is kept.
_MOST_KEPT_PICTURES = 16
# About 4 ms of counting.
_LARGE_COUNT_BYTES = 32 << 10


# For one value of the body: where its bound is kept, and under which key; the member that it belongs to; the value.
_Place = tuple[MutableMapping[object, object], object, str, bytes | Raw]


class PromptBounds:
    """Bounds prompts. ``encode`` counts the tokens of whole texts. For the models that ``is_exact`` accepts, it counts
    as the model's own tokenizer does."""

    def __init__(self, encode: Encode, aside: Aside, is_exact: Callable[[str], bool], memory_bytes: int) -> None:
        """``memory_bytes``: the room for layout state. One bound is kept for each 25,000 bytes of it."""
        self._encode = encode
        self.is_exact = is_exact
        self._aside = aside
        self._known: LastUsed[object, object] = LastUsed(min(_MOST_KNOWN, memory_bytes // _KNOWN_SHARE))

    async def bound(self, exchange: Exchange, *, counts: bool) -> InputBound:
        """The bound over all bodies that may be sent for the request. With ``counts``, its texts are counted."""
        plan = exchange.planned.plan
        sent = exchange.sent or (() if plan is None else ((plan.body, 0),))
        found = [await self._bound(body, added, counts=counts) for body, added in sent]
        return max(found, key=lambda one: one.tokens(1.0), default=InputBound(bare=exchange.arrival.size))

    async def _bound(self, body: bytes | ParsedBody, added: int, *, counts: bool) -> InputBound:
        raw = body if isinstance(body, bytes) else body.body
        try:
            places = await self._aside.run_large(len(raw), self._places, body)
        except (InvalidRequest, Unreadable):
            return InputBound(bare=await self._aside.run_large(len(raw), of_bytes, raw) + added)
        encode = self._encode if counts else None
        found = [one if isinstance(one := kept.get(key), InputBound) else None for kept, key, _, _ in places]
        new = [at for at, one in enumerate(found) if one is None or (encode is not None and one.counted is None)]
        values = [bytes(places[at][3]) for at in new]
        size = sum(map(len, values))

        def work() -> Sequence[InputBound]:
            return [weigh(*places[at][2:], size_of, encode) for at in new]

        is_large = sum(map(work_in, values)) >= LARGE_BYTES or (encode is not None and size >= _LARGE_COUNT_BYTES)
        for at, one in zip(new, await self._aside.run(size, work) if is_large else work(), strict=True):
            found[at] = one
            if len(one.pictures) <= _MOST_KEPT_PICTURES:
                places[at][0][places[at][1]] = one
        self._known.trim()
        return whole(
            [(name, one) for (_, _, name, _), one in zip(places, found, strict=True) if one is not None], added
        )

    def _places(self, body: bytes | ParsedBody) -> Sequence[_Place]:
        """The places where the bounds of the body's values are kept. Another thread may call it: it changes nothing.
        Raises InvalidRequest and Unreadable."""
        parsed = parse_body(body) if isinstance(body, bytes) else body
        places: list[_Place] = []
        for name, raw in parsed.members.items():
            if name == "messages" and (read := parsed.transcript) is not None:
                places += [(one.memo, InputBound, name, one.raw) for one in read.messages]
            elif name not in SETTINGS or len(raw) > SETTING_BYTES:
                is_list = name in TALK and bytes(memoryview(raw)[:1]) == b"["
                values: Sequence[bytes | Raw] = elements(raw) if is_list else (raw,)
                places += [(self._known, digest(name.encode(), bytes(one)), name, one) for one in values]
        return places


def size_of(header: bytes) -> Pixels | None:
    """The size of a picture in pixels, read from its header; the picture is not decoded."""
    width, height = imagesize.get(BytesIO(header), exif_rotation=False) if tells_size(header) else (-1, -1)
    return (width, height) if width > 0 and height > 0 else None


PriceOf = Callable[[Deployment], Price | None]
Amounts = dict[str, Estimate]

_LONG_LIVES = (b'"1h"', b'"24h"')
_ESCAPED_LIFE = re.compile(rb'"(?:(?:1|\\u0031)|(?:2|\\u0032)(?:4|\\u0034))(?:h|\\u0068)"')
_TEXT = frozenset({BillingKind.TEXT, BillingKind.PROMPT, BillingKind.UNKNOWN})
_MOST_DEPLOYMENTS = 1000
_OUTPUT_TOKENS = 500.0
_OUTPUT_WEIGHT = 0.05

# A provider is assumed to count up to 1.5 times as many tokens as we do until enough of its counts were seen. Claude's
# tokenizer counts a fifth to a third more tokens in code than the tokenizer that we use. Later, a margin is added to
# the highest factor that was seen.
_FACTOR = 1.5
_MARGIN = 1.15
_SEEN = 50
# No tokenizer of a current language model counts more for ordinary text. A higher count was the count of another
# prompt.
_MOST = 2.1
# In a shorter prompt, the provider's template outweighs the text.
_LEAST_TOKENS = 500


@dataclass(slots=True)
class Habits:
    """What the answers of a deployment have shown. ``output_tokens`` is the usual length of an answer. ``highest`` is
    the highest factor by which the provider's count of a prompt has exceeded ours, among the ``seen`` prompts. ``tier``
    is the service tier of requests that name no tier, as the provider last reported it.

    ``passes_limits``: an answer was longer than its request allowed. Some providers do not count thoughts, such as
    https://docs.siliconflow.com/en/userguide/capabilities/reasoning, and some servers ignore a limit."""

    output_tokens: float = _OUTPUT_TOKENS
    highest: float = 1.0
    seen: int = 0
    tier: str = ""
    passes_limits: bool = False

    @property
    def factor(self) -> float:
        """The factor by which the provider's count of a prompt may exceed ours."""
        learnt = self.highest * _MARGIN
        return learnt if self.seen >= _SEEN else max(learnt, _FACTOR)


class Estimates:
    """Estimates requests, and learns from what providers report. What was learnt is kept in memory, so a new process
    starts without it. ``allows_unknown``: a request of unknown cost is sent although a budget holds for it."""

    def __init__(self, price_of: PriceOf, bounds: PromptBounds, *, allows_unknown: bool) -> None:
        self._price_of = price_of
        self.bounds = bounds
        self._habits: LastUsed[str, Habits] = LastUsed(_MOST_DEPLOYMENTS)
        self._allows_unknown = allows_unknown

    def amounts(
        self,
        exchange: Exchange,
        deployments: Sequence[Deployment],
        rules: Sequence[Rule],
        bound: InputBound | None = None,
        *,
        estimates: bool = False,
        further_tokens: int = 0,
    ) -> Amounts:
        """The amounts that the request uses in each unit: the highest over all deployments that may serve it. The first
        deployment probably serves it. With a ``bound``, the most follows from the bound of the prompt and from
        ``further_tokens``, which are added to the prompt. Without a bound, it follows from the probable prompt, which
        is enough if no hard limit holds. ``estimates``: a count by another tokenizer than the model's is also used.
        Raises InvalidRequest and Forbidden if the amounts cannot be known and a hard limit holds."""
        demand, deployment = exchange.requested.demand, deployments[0]
        _check_clear(demand, rules)
        if demand.kind is BillingKind.FREE:
            return {"usd": Estimate(1, 0), "tokens": Estimate(1, 0), "requests": Estimate(1, 1)}
        probable_prompt = _probable_tokens(exchange)
        bill = exchange.planned.plan.predicted if exchange.planned.plan is not None else None
        usual = round(self.habits(deployment).output_tokens) * demand.answers
        most = expected = most_tokens = output = 0
        for one in deployments:
            price = self._price_of(one)
            wanted = self._as_served(one, demand)
            prompt = probable_prompt
            if bound is not None and demand.kind is not BillingKind.TRANSCRIPTION:
                prompt = bound.tokens(self._factor(one, estimates=estimates), _known_name(one)) + further_tokens
                wanted = _with_beyond(wanted, bound)
            longest = demand.answers * (self._longest(one, rules, demand, price) + demand.predicted_tokens)
            output = max(output, min(longest, usual))
            read = most_read(price, wanted.wants.calls, most_prompt(price, wanted, prompt))
            most_tokens = max(most_tokens, read + longest + unit_tokens(demand))
            cost = None
            if price is not None:
                life = price.write_1h > price.write_5m and _has_long_life(exchange)
                cost = most_cost(price, wanted, prompt, longest, long_life=life, model=one.model)
            if price is None or cost is None:
                self._check_priced(one, rules, demand)
                continue
            most = max(most, cost)
            if demand.kind in _TEXT:
                expected = max(expected, expected_cost(price, bill, probable_prompt, min(longest, usual)))
        return {
            "usd": Estimate(max(most, expected, 1), expected if demand.kind in _TEXT else most),
            "tokens": Estimate(min(max(most_tokens, 1), MOST_AMOUNT), min(probable_prompt + output, MOST_AMOUNT)),
            "requests": Estimate(1, 1),
        }

    def booked_prompt(self, exchange: Exchange, deployment: Deployment, bound: InputBound) -> int:
        """The tokens that are booked for a prompt if the provider reports no usage: our count of the whole prompt,
        raised by the factor that was seen for the provider, and never more than the ``bound``."""
        tokens = bound.tokens(self._factor(deployment, estimates=True), _known_name(deployment))
        return most_prompt(self._price_of(deployment), _with_beyond(exchange.requested.demand, bound), tokens)

    def habits(self, deployment: Deployment) -> Habits:
        """What was learnt about a deployment."""
        return self._habits.get(deployment.name) or Habits()

    def learn(self, exchange: Exchange) -> None:
        """Learn from an exchange that has ended."""
        usage, deployment, demand = exchange.billed_usage, exchange.deployment, exchange.requested.demand
        if exchange.answer.further:
            # The sum over several calls is not the length of one prompt or one answer.
            usage = exchange.answer.outcome.usage
        if usage is None or usage.estimated or deployment is None:
            return
        habits = self.habits(deployment)
        self._habits.put(deployment.name, habits)
        if not demand.wants.tier:
            habits.tier = exchange.answer.outcome.reported.tier
        # No limit holds for a summary, and for all rounds of a tool together.
        has_limit = demand.kind is BillingKind.TEXT and not (demand.wants.is_summarised or demand.wants.calls)
        if has_limit and demand.max_output_tokens is not None:
            most = demand.answers * (demand.max_output_tokens + demand.predicted_tokens + SPARE_TOKENS)
            habits.passes_limits |= usage.output > most
        habits.output_tokens += _OUTPUT_WEIGHT * (usage.output - habits.output_tokens)
        counted = exchange.counted_tokens
        if counted >= _LEAST_TOKENS:
            habits.seen += 1
            habits.highest = max(habits.highest, min(_MOST, usage.prompt / counted))

    def _factor(self, deployment: Deployment, *, estimates: bool) -> float | None:
        if self.bounds.is_exact(deployment.model):
            return 1.0
        return self.habits(deployment).factor if estimates else None

    def _as_served(self, deployment: Deployment, demand: Demand) -> Demand:
        """The demand with its service tier. If it names no tier, it gets the tier that this deployment served
        before."""
        tier = "" if demand.wants.tier else self.habits(deployment).tier
        return replace(demand, wants=replace(demand.wants, tier=tier)) if tier else demand

    def _longest(self, deployment: Deployment, rules: Sequence[Rule], demand: Demand, price: Price | None) -> int:
        habits = self.habits(deployment)
        if demand.max_output_tokens is not None:
            return demand.max_output_tokens + (longest_output(None, price) if habits.passes_limits else 0)
        given = [rule.assumed_output_tokens for rule in rules if not rule.is_rate]
        usual = round(habits.output_tokens)
        assumed = None if None in given else max((tokens for tokens in given if tokens), default=usual)
        return max(longest_output(assumed, price), demand.least_output_tokens)

    def _check_priced(self, deployment: Deployment, rules: Sequence[Rule], demand: Demand) -> None:
        units = ("usd", "tokens") if demand.kind is BillingKind.UNKNOWN else ("usd",)
        if self._allows_unknown or not any(
            rule.unit in units and rule.hard is not None and not rule.is_rate for rule in rules
        ):
            return
        code, what, how = (
            ("price_unknown", "What a call of this path costs cannot be told", "Use a key without a budget")
            if demand.kind is BillingKind.UNKNOWN
            else (
                "model_price_unknown",
                f"The price of model '{deployment.name}' is not known for this kind of call",
                "Add it to `stratiform.prices` in the proxy's configuration",
            )
        )
        allow = "or allow such calls with `stratiform.budgets.on_unknown_price: allow`."
        raise Forbidden(f"{what}, so a budget cannot hold for it. {how}, {allow}", code=code)


def _with_beyond(demand: Demand, bound: InputBound) -> Demand:
    return replace(demand, wants=replace(demand.wants, is_beyond=True)) if bound.beyond else demand


def _check_clear(demand: Demand, rules: Sequence[Rule]) -> None:
    if demand.unclear and any(rule.hard is not None and rule.unit != "requests" for rule in rules):
        raise InvalidRequest(
            f"'{demand.unclear}' is missing, or cannot be understood here, and what this call may cost depends on it: "
            "a budget holds for this key",
            param=demand.unclear,
            code="cost_unclear",
        )


def _probable_tokens(exchange: Exchange) -> int:
    """The tokens that the prompt probably has. A transcription has no prompt of text."""
    if (plan := exchange.planned.plan) is not None and plan.own is not None:
        return plan.own.total
    return 0 if exchange.requested.demand.kind is BillingKind.TRANSCRIPTION else exchange.arrival.size // 4


def _known_name(deployment: Deployment) -> str:
    """A name that identifies the model, if the upstream's own name does not, such as the name of an Azure
    deployment."""
    return deployment.price_key or deployment.model


def _has_long_life(exchange: Exchange) -> bool:
    """Whether a marker may ask for the longer TTL. If the searched text stands elsewhere in the prompt, more is
    reserved than needed."""
    if (plan := exchange.planned.plan) is None:
        return True
    bodies = (plan.body, plan.original) if plan.rewritten else (plan.body,)
    return any(
        any(life in body for life in _LONG_LIVES) or (b"\\u00" in body and _ESCAPED_LIFE.search(body))
        for body in bodies
    )

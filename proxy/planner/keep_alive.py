"""Keep-alive: if a cached prefix would expire while its client pauses, it is read once more, provided that this pays.

A refresh costs a cache read of the prefix. If the prefix expires, it has to be written again when the client returns.
So one refresh pays while P(return) > r / (w - r), and at most w / r refreshes in a row can pay. P(return) is estimated
from the client's own earlier gaps. Of the gaps that lasted as long as this one has, it is the share that end within the
life that a refresh adds. Nothing is learnt while the client is away, so the whole series is decided when its request
has ended.

A refresh is the request that was sent, cut off behind the last marker, with an output limit of one token. Members that
render into the prompt stay, and members that only shape the answer are removed. (Anthropic documents ``max_tokens: 0``
for warming. Some servers refuse the OpenAI-compatible form of it, and Anthropic itself refuses it together with
streaming, thinking, output formats and forced tools. One token is accepted everywhere.)
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

from proxy.kit.value import dataclass, replace
from proxy.planner.candidates import PlanAnalysis
from proxy.planner.layout import read_gain
from proxy.planner.shadow import cost_of
from proxy.protocol.caches import Bill, Cache, PromptPositions
from proxy.protocol.providers import CacheProfile, Dialect, Family
from proxy.protocol.request.message import SYSTEM_ROLES
from proxy.protocol.wire.json_body import Unreadable, elements, members_of, parse_members, splice, value

# A refresh starts this long before the entry expires. Lives count from the start of a request, and a refresh may queue.
_MARGIN_S = 30.0
_MARGIN_SHARE = 0.1
# A client at work does not pause for longer than this, so refreshes of longer lives are not worth the wait.
_LONGEST_S = 4 * 3600.0
# The price of the one token of output, in tokens of input. It is 5 at nearly every provider with a listed price.
_OUTPUT_TOKENS = 5.0
# The weight of the end of this session, which will come, too. It weighs more than one observed gap, because with few
# gaps a refresh is a bet on one of them. (Measured: with 1, a session of a single pause pays 4 % for its own end; with
# 4, less than 1 %.)
_GONE = 4.0
# The cost of a refresh is certain, but the return is a guess. (Measured: with 1, clients whose pauses are of any length
# lose 1 %; with 0.9, a fifth of that. Clients that return as they did before gain the same.)
_TRUST = 0.9
# A gap shows that gaps up to this factor shorter or longer are equally likely.
_SPREAD = 1.75
_SHAPES_THE_ANSWER = ("stream", "stream_options", "n", "store", "prediction", "logprobs", "top_logprobs", "max_tokens")
_LIMIT = "max_completion_tokens"
# With these members even an answer of one token would think, search or speak, and would be billed for that.
_COSTS_MORE = ("web_search_options", "audio", "modalities")
_THINKING = ("thinking", "reasoning_effort")
_NO_THINKING = (None, "none", {"type": "disabled"})


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """How to keep one session's prefix alive: up to ``times`` refreshes, each ``period_s`` after the one before it (the
    first one after the start of the request that was sent). ``bill`` is the expected cost of one refresh. ``scope`` and
    ``profile`` say whose cache it is in."""

    scope: bytes
    profile: CacheProfile
    body: bytes
    prompt: PromptPositions
    period_s: float
    times: int
    bill: Bill


@dataclass(frozen=True, slots=True)
class ReturnTimes:
    """How long this client and similar clients have been away, and how many have not returned. Both have the same
    weight."""

    gaps: Sequence[float]
    gone: float

    def share(self, start_s: float, end_s: float, since_s: float) -> float:
        """P(the client returns between start and end), given that it has been away ``since_s`` seconds."""
        away = sum(_mass(gap, since_s, math.inf) for gap in self.gaps) + self.gone
        return sum(_mass(gap, start_s, end_s) for gap in self.gaps) / away


def _mass(gap: float, start_s: float, end_s: float) -> float:
    """The part of a gap's weight, spread evenly by ratio, that falls between two times."""
    low, high = max(gap / _SPREAD, start_s), min(gap * _SPREAD, end_s)
    return math.log(high / low) / (2 * math.log(_SPREAD)) if high > low else 0.0


def refreshes(past: ReturnTimes, life_s: float, cost: float, gain: float, most: int) -> int:
    """How many refreshes in a row are worth sending if the client does not return meanwhile. The series ends at the
    first refresh that does not pay, all that may follow it included. ``gain`` is what is saved if the prefix is still
    cached."""
    margin = margin_of(life_s)
    period = life_s - margin
    # Gaps that end before the first refresh tell nothing about longer gaps.
    past = ReturnTimes([gap for gap in past.gaps if gap * _SPREAD > period], past.gone)
    value, count = 0.0, 0
    for number in range(most, 0, -1):
        at = number * period
        # Until the margin is over, the entry is still cached without this refresh.
        served = past.share(at + margin, at + life_s, at)
        away = 1.0 - past.share(at, at + period, at)
        value = max(0.0, served * gain + away * value - cost)
        count = count + 1 if value > 0.0 else 0
    return count


def margin_of(life_s: float) -> float:
    """How long before the end of a life the entry is refreshed."""
    return min(_MARGIN_S, _MARGIN_SHARE * life_s)


def refresh_plan(analysis: PlanAnalysis, body: bytes, cache: Cache, now: float) -> RefreshPlan | None:
    """The refreshes that keep alive the prefix of a request whose ``body`` was sent at ``now``; None if no refresh
    pays."""
    profile, layout, marks = analysis.profile, analysis.choice.layout, analysis.choice.marks
    cohort = analysis.session.cohort
    past = ReturnTimes(cohort.gaps, _GONE + min(max(0, cohort.started - 1), len(cohort.gaps)))
    # For most clients no gap comes near the end of a life, and nothing more is computed.
    has_paused = max(past.gaps, default=0.0) * _SPREAD > profile.life_s - margin_of(profile.life_s)
    if profile.family is Family.NONE or not 0 < profile.read < profile.write or not has_paused:
        return None
    short = _short_form(body, profile)
    if short is None:
        return None
    content, is_cut = short
    prompt = layout.prompt(marks)
    if is_cut and marks:
        count = max(marks) + 1
        prompt = replace(
            prompt,
            hashes=prompt.hashes[:count],
            ends=prompt.ends[:count],
            runs=prompt.runs[:count],
            endings=prompt.endings[: bisect_right(prompt.endings, count - 1)],
        )
    chances = replace(analysis.pricing().forecast, body=1.0, opened=1.0).positions(layout.elements)
    for life_s in (life for life in (profile.life_s, profile.long_life_s) if 0 < life <= _LONGEST_S):
        held, left = (cache.bill(prompt, at).read for at in (now + 1.0, now + life_s + profile.slack_s + 1.0))
        # The tokens between the two lengths of the prefix that the next request is expected to repeat.
        parts = zip((0, *layout.ends), layout.ends, chances, strict=False)
        repeated = sum(max(0, min(end, held) - max(before, left)) * chance for before, end, chance in parts)
        gain = _TRUST * read_gain(profile) * repeated
        if gain <= 0.0:
            continue  # the entry lives longer than this life, or is not cached at all
        period = life_s - margin_of(life_s)
        bill = cache.bill(prompt, now + period)
        most = int(profile.write / profile.read)
        times = refreshes(past, life_s, cost_of(profile, bill) + _OUTPUT_TOKENS, gain, most)
        return RefreshPlan(analysis.incoming.account, profile, content, prompt, period, times, bill) if times else None
    return None


def _short_form(body: bytes, profile: CacheProfile) -> tuple[bytes, bool] | None:
    """The request with one token of output, and whether it was cut off behind its last marker. None if such a request
    would be refused or would cost more than its prompt."""
    try:
        members = parse_members(body)
        if any(name in members for name in _COSTS_MORE):
            return None
        is_claude = profile.dialect is Dialect.CACHE_CONTROL
        if is_claude and any(name in members and value(members[name]) not in _NO_THINKING for name in _THINKING):
            return None  # a thinking budget must be smaller than the limit, and a changed budget changes the prompt
        messages = elements(members["messages"])
        kept = _marked_messages([bytes(raw) for raw in messages], profile)
    except (Unreadable, KeyError):
        return None
    changes: dict[str, bytes | None] = dict.fromkeys((*_SHAPES_THE_ANSWER, _LIMIT))
    # OpenAI's reasoning models refuse ``max_tokens``; most other servers know no other name.
    takes_limit = _LIMIT in members or profile.name.startswith(("openai", "azure"))
    changes[_LIMIT if takes_limit else "max_tokens"] = b"1"
    if kept is not None:
        changes["messages"] = b"[" + b",".join(kept) + b"]"
    return splice(body, members, changes), kept is not None


def _marked_messages(messages: Sequence[bytes], profile: CacheProfile) -> Sequence[bytes] | None:
    """The messages up to the last marker; None if all messages are needed. A request cannot end with a turn of the
    model, or with a tool result that other results of the same turn follow."""
    key = profile.dialect.key.encode()
    if profile.family is not Family.MARKER or not key:
        return None
    last = next((i for i in range(len(messages) - 1, -1, -1) if b'"%s"' % key in messages[i]), None)
    if last is None or last == len(messages) - 1:
        return None
    role, next_role = (_role(messages[i]) for i in (last, last + 1))
    if role not in ("user", "tool") or next_role == "tool":
        return None
    if any(_role(message) in SYSTEM_ROLES for message in messages[last + 1 :]):
        return None  # some upstreams move it to the front: without it this would be another prompt
    return messages[: last + 1]


def _role(message: bytes) -> object:
    members = members_of(message)
    return value(members["role"]) if "role" in members else None

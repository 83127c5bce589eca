"""Every profile's cache, on its good and bad days, in a small world of blocks where prompts often share prefixes."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.caches import Life, PromptPositions, make_cache
from proxy.protocol.providers import PROFILES, CacheProfile, Dialect, Family, optimistic, pessimistic
from proxy.protocol.response.usage import usage_of
from proxy.upstream.embedded.provider import usage_fields
from tests.cache_prompts import prompt
from tests.examples import examples

_LONGEST_S = 300.0


def small(profile: CacheProfile) -> CacheProfile:
    """The same rules at the size of the small world."""
    return replace(
        profile,
        min_tokens=min(profile.min_tokens, 256),
        step=min(profile.step, 128),
        lookback=min(profile.lookback, 5),
        life_s=min(profile.life_s, _LONGEST_S),
        capacity_tokens=profile.capacity_tokens and 4000,
        delay_s=min(profile.delay_s, 20.0),
    )


ALL = [small(vary(p)) for p in PROFILES.values() for vary in (lambda p: p, pessimistic, optimistic)]
SURE = [p for p in ALL if p.hit_chance == 1 and not p.capacity_tokens]
profiles = st.sampled_from(ALL)
texts = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([40, 90, 400])), min_size=1, max_size=30)


@st.composite
def prompts(draw: st.DrawFn) -> PromptPositions:
    # Equal text has equal tokens, as with a real tokenizer.
    blocks = [(text + str(tokens), tokens) for text, tokens in draw(texts)]
    last = len(blocks) - 1
    runs, number = [], 0
    for joined in draw(st.lists(st.booleans(), min_size=len(blocks), max_size=len(blocks))):
        number += 0 if joined else 1
        runs.append(number)
    lives: dict[int, Life] = {}
    for position in sorted(draw(st.sets(st.integers(0, last), max_size=6))):
        lives[position] = draw(st.sampled_from(["5m", "1h"])) if "5m" not in lives.values() else "5m"
    endings = sorted(draw(st.sets(st.integers(0, last), max_size=6)))
    return prompt(blocks, lives, runs=runs, endings=endings, head_end=draw(st.integers(-1, last)))


steps = st.lists(st.tuples(prompts(), st.floats(0, 400), st.floats(0, 60)), min_size=1, max_size=8)


def played(history, cache) -> float:
    """The time when all of it has been stored."""
    now = 0.0
    for request, pause, latency in history:
        now += pause
        cache.store(request, now, now + latency)
    return now


def shared_tokens(a: PromptPositions, b: PromptPositions) -> int:
    return max((end for digest, end in zip(a.hashes, a.ends, strict=True) if digest in set(b.hashes)), default=0)


@settings(max_examples=examples(100), deadline=None)
@given(profiles, steps)
def test_bills_add_up_and_never_read_more_than_a_common_prefix(profile: CacheProfile, history) -> None:
    cache = make_cache(profile)
    now, stored = 0.0, []
    for request, pause, latency in history:
        now += pause
        bill = cache.bill(request, now)
        assert bill.total == request.total
        assert min(bill.read, bill.write_5m, bill.write_1h, bill.plain) >= 0
        assert bill.read <= max((shared_tokens(request, other) for other in stored), default=0)
        assert (bill.hit >= 0) == (bill.read > 0)
        assert not bill.write or profile.family is Family.MARKER or profile.meters_writes
        assert cache.bill(request, now) == bill
        cache.store(request, now, now + latency)
        stored.append(request)


@settings(max_examples=examples(100), deadline=None)
@given(profiles, steps, prompts())
def test_everything_is_forgotten_at_the_end_of_its_life(
    profile: CacheProfile, history, request: PromptPositions
) -> None:
    cache = make_cache(profile)
    now = played(history, cache) + max(profile.life_s, profile.long_life_s) + profile.slack_s
    assert cache.bill(request, now).read == 0
    assert cache.held(request, now) == []


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(SURE), steps, prompts())
def test_what_was_stored_is_read(profile: CacheProfile, history, request: PromptPositions) -> None:
    cache = make_cache(profile)
    now = played(history, cache) + 100
    cache.store(request, now, now + 1)
    again = cache.bill(request, now + 1 + profile.delay_s)
    assert again.read == readable(profile, request)
    if profile.family is not Family.MARKER:
        assert again.write == 0


def readable(profile: CacheProfile, request: PromptPositions) -> int:
    """What a request reads that was sent just before: by the rules, written down once more."""
    total = request.total
    if profile.family is Family.GRID:
        found = (total - 1 + profile.hidden_tokens) // profile.step * profile.step
        if found < profile.min_tokens:
            return 0
        found -= profile.hidden_tokens
        return found // profile.report_step * profile.report_step if profile.report_step else found
    if profile.family is Family.UNIT:
        found = total // profile.step * profile.step
        return found if found >= profile.min_tokens else 0
    if profile.family is Family.NONE:
        return 0
    marked = {request.ends[p] for p in request.marks}
    if profile.dialect is Dialect.BREAKPOINT and request.endings:
        marked.add(request.ends[request.endings[-1]])
    return max((end for end in marked if end >= profile.min_tokens), default=0)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from([p for p in SURE if p.family in (Family.GRID, Family.UNIT)]), prompts(), prompts())
def test_a_longer_common_prefix_reads_no_less(
    profile: CacheProfile, request: PromptPositions, tail: PromptPositions
) -> None:
    cache = make_cache(profile)
    cache.store(request, 0, 0)
    reads = []
    for length in range(1, len(request.ends) + 1):
        hashes = request.hashes[:length] + tuple(b"other" + digest for digest in tail.hashes)
        ends = request.ends[:length] + tuple(request.ends[length - 1] + end for end in tail.ends)
        bill = cache.bill(PromptPositions(request.scope, hashes, ends, tuple(range(len(ends)))), 30)
        reads.append(bill.read)
    assert reads == sorted(reads)


@settings(max_examples=examples(100), deadline=None)
@given(profiles, steps)
def test_a_forecast_never_reads_more_than_a_lucky_provider(profile: CacheProfile, history) -> None:
    forecast, lucky = make_cache(profile, is_forecast=True), make_cache(replace(profile, hit_chance=1.0))
    now = 0.0
    for request, pause, latency in history:
        now += pause
        assert forecast.bill(request, now).read <= lucky.bill(request, now).read
        forecast.store(request, now, now + latency)
        lucky.store(request, now, now + latency)


@settings(max_examples=examples(60), deadline=None)
@given(profiles, steps)
def test_the_providers_own_usage_fields_say_what_was_billed(profile: CacheProfile, history) -> None:
    cache = make_cache(profile)
    now = 0.0
    for request, pause, latency in history:
        now += pause
        bill = cache.bill(request, now)
        usage = usage_of({"usage": usage_fields(bill, 7, profile)})
        assert usage is not None
        assert (usage.prompt, usage.output) == (bill.total, 7)
        # DeepSeek's and OpenAI's older fields have no writes, and there are none.
        assert (usage.read, usage.write) == (bill.read, bill.write)
        cache.store(request, now, now + latency)


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[PromptPositions, float]]:
    """Requests that go on from where an earlier one was, or from somewhere within it, each with the pause before it."""
    said: list[list[tuple[str, int]]] = [[("head", 400)]]
    found = []
    for number in range(draw(st.integers(2, 14))):
        base = draw(st.sampled_from(said[-3:]))
        kept = base[: draw(st.sampled_from([len(base), len(base), max(1, len(base) - 2), (len(base) + 1) // 2]))]
        said.append([*kept, *[(f"{number}-{i}", 200) for i in range(draw(st.integers(1, 4)))]])
        last = len(said[-1]) - 1
        marks: dict[int, Life] = dict.fromkeys({last, *draw(st.sets(st.integers(0, last), max_size=2))}, "5m")
        found.append((prompt(said[-1], marks, endings=[last]), draw(st.sampled_from([1.0, 20.0, 40.0, 100.0, 200.0]))))
    return found


@settings(max_examples=examples(3000), deadline=None)
@given(st.sampled_from(SURE), conversations())
def test_a_forecast_bills_as_the_provider_does_what_was_used_lately(profile: CacheProfile, history) -> None:
    """It renews the entries in front of one that is used a few times in a life, and not each time."""
    provider, forecast, now = make_cache(profile), make_cache(profile, is_forecast=True), 0.0
    for request, pause in history:
        now += pause
        bill = provider.bill(request, now)
        used = provider.last_use(request, bill.hit, now) if bill.hit >= 0 else None
        if used is not None and used[0] > 0.84 * profile.life_s:
            return
        assert forecast.bill(request, now) == bill
        for cache in (provider, forecast):
            cache.store(request, now, now)

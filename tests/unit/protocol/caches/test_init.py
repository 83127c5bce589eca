"""What all families have in common: copies, bounds, unknowns."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from proxy.protocol.caches import Bill, make_cache
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, PROFILES, CacheProfile, optimistic, pessimistic
from tests.cache_prompts import line, prompt
from tests.growth import assert_linear, steps_of

TINY = replace(ANTHROPIC, min_tokens=1)


class TestUnknowns:
    def test_claude_counts_every_block_of_a_run(self):
        runs = [*range(10), *[10] * 40]
        for profile, read in ((ANTHROPIC, 1000), (pessimistic(ANTHROPIC), 0)):
            cache = make_cache(replace(profile, min_tokens=1))
            cache.store(prompt(line(10), {9: "5m"}), 0, 0)
            assert cache.bill(prompt(line(50), {49: "5m"}, runs=runs), 1).read == read

    def test_qwen_looks_back_over_single_blocks(self):
        cache = make_cache(replace(PROFILES["qwen"], min_tokens=1))
        cache.store(prompt(line(10), {9: "5m"}), 0, 0)
        assert cache.bill(prompt(line(50), {28: "5m"}, runs=[0] * 50), 1).read == 1000
        assert cache.bill(prompt(line(50), {29: "5m"}, runs=[0] * 50), 1).read == 0

    def test_deepseeks_units_take_their_time(self):
        cache = make_cache(pessimistic(DEEPSEEK))
        cache.store(prompt(line(10)), 0, 0)
        assert cache.bill(prompt(line(10)), 9).read == 0
        assert cache.bill(prompt(line(10)), 10).read == 896

    @pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
    def test_a_bad_day_reads_no_more_than_a_good_one(self, profile: CacheProfile):
        request = prompt(line(100), {99: "5m"}, endings=(99,))
        reads = []
        for variant in (pessimistic(profile), profile, optimistic(profile)):
            cache = make_cache(variant)
            cache.store(request, 0, 0)
            reads.append(cache.bill(request, 60).read)
        assert reads == sorted(reads)


def test_none_bills_everything_plain():
    cache = make_cache(NONE)
    request = prompt(line(40), {39: "5m"})
    cache.store(request, 0, 0)
    assert cache.bill(request, 1) == Bill(0, 0, 0, 4000)


@pytest.mark.parametrize("profile", [TINY, OPENAI, DEEPSEEK], ids=lambda p: p.name)
def test_memory_is_bounded_and_the_least_recently_used_go(profile):
    cache = make_cache(profile, capacity=500)
    kept = prompt(line(20, label="kept"), {19: "5m"})
    for i in range(1000):
        cache.store(kept, i / 100, i / 100)
        cache.store(prompt(line(20, label=f"{i}/"), {19: "5m"}), i / 100, i / 100)
        assert len(cache.table) <= 500
    assert cache.bill(kept, 10).read > 1900
    assert cache.bill(prompt(line(20, label="0/"), {19: "5m"}), 10).read == 0


def test_expired_entries_are_swept():
    cache = make_cache(TINY)
    for i in range(20_000):
        cache.store(prompt([(str(i), 100)], {0: "5m"}), i * 10, i * 10)
    assert len(cache.table) < 5_000


def test_the_time_for_a_bill_grows_with_the_blocks():
    def work(blocks: range) -> None:
        count = len(blocks)
        cache = make_cache(ANTHROPIC)
        cache.store(prompt(line(count)[: count * 2 // 3], {count // 2: "5m"}), 0, 0)
        worst = prompt(line(count), {at: "5m" for at in (count // 5, count // 3, count * 2 // 5, count - 1)})
        for _ in range(20):
            cache.bill(worst, 1)

    assert_linear(work, range, 300)


def test_a_bill_looks_at_no_more_markers_than_the_provider_accepts():
    def steps(marks: Iterable[int]) -> int:
        cache, marked = make_cache(ANTHROPIC), prompt(line(2_000), dict.fromkeys(marks, "5m"))
        return steps_of(lambda: (cache.bill(marked, 1), cache.store(marked, 1, 1)))

    assert steps(range(2_000)) < 3 * steps(range(1_996, 2_000))

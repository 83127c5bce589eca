"""OpenAI up to GPT-5.5, blocks of vLLM and SGLang, metered writes of Kimi. DeepSeek: the page's examples."""

from dataclasses import replace

import pytest

from proxy.protocol.caches import make_cache
from proxy.protocol.providers import DEEPSEEK, OPENAI, PROFILES, fitted
from tests.cache_prompts import line, parts, prompt


class TestGrid:
    def test_a_shared_prefix_is_read_in_steps(self):
        cache = make_cache(OPENAI)
        cache.store(prompt([*line(30), ("old", 500)]), 0, 0)
        bill = cache.bill(prompt([*line(30), ("new", 900)]), 1)
        assert (bill.read, bill.plain, bill.write, bill.hit) == (2944, 956, 0, 29)

    def test_nothing_is_read_below_the_minimum(self):
        cache = make_cache(OPENAI)
        cache.store(prompt([*line(10), ("old", 500)]), 0, 0)
        assert cache.bill(prompt([*line(10), ("new", 500)]), 1).read == 0

    def test_the_last_token_is_computed(self):
        cache = make_cache(OPENAI)
        request = prompt([("a", 1280)])
        cache.store(request, 0, 0)
        assert cache.bill(request, 1).read == 1152

    def test_idle_life_is_renewed_by_use(self):
        cache = make_cache(OPENAI)
        request = prompt(line(30))
        cache.store(request, 0, 0)
        cache.store(request, 599, 599)
        assert cache.bill(request, 1198).read == 2944
        assert cache.bill(request, 1199).read == 0


class TestGridOfGpt55:
    """Breakpoints 2048 tokens apart, reported in steps of 128; 6144 = 3 x 2048 was measured."""

    profile = fitted(OPENAI, "gpt-5.5")

    def test_reads_end_at_breakpoints(self):
        cache = make_cache(self.profile)
        cache.store(prompt(line(70)), 0, 0)
        assert cache.bill(prompt([*line(70), ("more", 500)]), 1).read == 6144
        assert cache.bill(prompt([*line(20), ("more", 500)]), 1).read == 0

    def test_hidden_tokens_count_for_the_grid_and_are_not_reported(self):
        cache = make_cache(replace(self.profile, hidden_tokens=300))
        cache.store(prompt(line(70)), 0, 0)
        assert cache.bill(prompt([*line(70), ("more", 500)]), 1).read == (3 * 2048 - 300) // 128 * 128


class TestBlocks:
    """vLLM: full blocks of 16, the last token is always computed, at most floor((n - 1) / 16) * 16 are read."""

    profile = PROFILES["vllm"]

    @pytest.mark.parametrize(("tokens", "read"), [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (1000, 992)])
    def test_the_cap(self, tokens: int, read: int):
        cache = make_cache(self.profile)
        request = prompt([("a", tokens)])
        cache.store(request, 0, 0)
        assert cache.bill(request, 1).read == read

    def test_output_is_kept(self):
        cache = make_cache(self.profile)
        follow_up = prompt(line(12))
        cache.store(prompt(line(10)), 0, 0, output=follow_up.hashes[10])
        assert cache.bill(follow_up, 1).read == 1100 // 16 * 16

    def test_the_oldest_go_when_memory_is_full_and_of_a_request_the_last_first(self):
        cache = make_cache(replace(self.profile, capacity_tokens=3000))
        old, new = prompt(line(20, label="old")), prompt(line(20, label="new"))
        cache.store(old, 0, 0)
        cache.store(new, 1, 1)
        assert cache.bill(new, 2).read == 1999 // 16 * 16
        assert cache.bill(old, 2).read == 1000 // 16 * 16

    def test_what_is_used_stays(self):
        cache = make_cache(replace(self.profile, capacity_tokens=3000))
        kept = prompt(line(20, label="kept"))
        for i in range(50):
            cache.store(kept, i, i)
            cache.store(prompt(line(9, label=f"{i}/")), i, i)
        assert cache.bill(kept, 50).read == 1999 // 16 * 16

    def test_a_page_of_one_token(self):
        cache = make_cache(PROFILES["sglang"])
        cache.store(prompt([("a", 7), ("b", 100)]), 0, 0)
        assert cache.bill(prompt([("a", 7), ("c", 100)]), 1).read == 7


class TestMeteredWrites:
    """Kimi K3: 5-minute writes at the input price, 1-hour writes at twice that."""

    profile = replace(PROFILES["kimi"], step=1)

    def test_either_life(self):
        short, long = prompt(line(20)), prompt(line(20), {19: "1h"})
        assert parts(make_cache(self.profile).bill(short, 0)) == (0, 0, 1999, 1)
        cache = make_cache(self.profile)
        assert parts(cache.bill(long, 0)) == (0, 1999, 0, 1)
        cache.store(long, 0, 0)
        assert parts(cache.bill(prompt([*line(20), ("more", 51)]), 3599)) == (2000, 0, 50, 1)
        assert cache.bill(short, 3600).read == 0

    def test_without_a_longer_life_none_is_sold(self):
        cache = make_cache(fitted(self.profile, "kimi-k2.7-code"))
        request = prompt(line(20), {19: "1h"})
        assert parts(cache.bill(request, 0)) == (0, 0, 1999, 1)
        cache.store(request, 0, 0)
        assert cache.bill(request, 300).read == 0


def test_an_empty_scope_is_not_cached():
    cache = make_cache(PROFILES["mistral"])
    request = prompt(line(20), scope=b"")
    cache.store(request, 0, 0)
    assert cache.bill(request, 1).read == 0
    assert len(cache.table) == 0


class TestChance:
    profile = replace(PROFILES["gemini"], min_tokens=128, hit_chance=0.5)

    def test_half_of_the_prompts_are_lucky_and_stay_so(self):
        cache = make_cache(self.profile)
        requests = [prompt(line(20, label=f"{i}/")) for i in range(400)]
        for request in requests:
            cache.store(request, 0, 0)
        lucky = [cache.bill(request, 1).read > 0 for request in requests]
        assert lucky == [cache.bill(request, 2).read > 0 for request in requests]
        assert 150 < sum(lucky) < 250

    def test_a_forecast_takes_the_expectation(self):
        cache = make_cache(self.profile, is_forecast=True)
        for i in range(20):
            request = prompt(line(20, label=f"{i}/"))
            cache.store(request, 0, 0)
            assert cache.bill(request, 1).read == 1920 // 2


FAR_APART = replace(DEEPSEEK, interval_tokens=100_000)


class TestUnit:
    def test_the_end_of_the_input(self):
        cache = make_cache(FAR_APART)
        cache.store(prompt(line(10)), 0, 0)
        assert cache.bill(prompt(line(12)), 1).read == 896

    def test_the_end_of_the_output(self):
        cache = make_cache(FAR_APART)
        follow_up = prompt(line(12))
        cache.store(prompt(line(10)), 0, 0, output=follow_up.hashes[10])
        assert cache.bill(follow_up, 1).read == 1024
        assert cache.bill(follow_up, 1).hit == 10

    def test_a_prefix_that_two_requests_share_becomes_a_unit(self):
        # The page's example: A + B, then A + C, then A + D: the third reads A.
        cache = make_cache(FAR_APART)
        a = line(10)
        cache.store(prompt([*a, ("B", 300)]), 0, 0)
        assert cache.bill(prompt([*a, ("C", 300)]), 1).read == 0
        cache.store(prompt([*a, ("C", 300)]), 1, 1)
        assert cache.bill(prompt([*a, ("D", 300)]), 2).read == 896

    def test_intervals(self):
        cache = make_cache(DEEPSEEK)
        cache.store(prompt([*line(10), ("B", 300)]), 0, 0)
        assert cache.bill(prompt([*line(10), ("C", 300)]), 1).read == 896

    def test_units_appear_after_a_delay(self):
        cache = make_cache(replace(DEEPSEEK, delay_s=5))
        cache.store(prompt(line(10)), 0, 2)
        assert cache.bill(prompt(line(10)), 6).read == 0
        assert cache.bill(prompt(line(10)), 7).read == 896

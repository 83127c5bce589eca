"""Hits without a guarantee."""

from dataclasses import replace

from proxy.core.caches import make_cache
from proxy.core.providers import PROFILES
from tests.cache_prompts import line, prompt


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

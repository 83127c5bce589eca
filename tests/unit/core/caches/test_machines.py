"""Requests that spill to another machine."""

from dataclasses import replace

from proxy.core.caches import make_cache
from proxy.core.providers import OPENAI
from tests.cache_prompts import line, prompt


class TestMachines:
    """OpenAI up to GPT-5.5: beyond 15 requests a minute the next machine takes over, a cold one: one miss each."""

    profile = replace(OPENAI, spill_rpm=15)

    def reads(self, gap_s: float, count: int = 40) -> list[bool]:
        cache, request, found = make_cache(self.profile), prompt(line(20)), []
        for i in range(count):
            found.append(cache.bill(request, i * gap_s).read > 0)
            cache.store(request, i * gap_s, i * gap_s)
        return found

    def test_a_burst_spills(self):
        assert [i for i, read in enumerate(self.reads(0.1)) if not read] == [0, 15, 30]

    def test_slow_traffic_stays(self):
        assert self.reads(5.0).count(False) == 1

    def test_another_opening_is_another_count(self):
        cache = make_cache(self.profile)
        for i in range(15):
            cache.store(prompt(line(20)), i, i)
        other = prompt(line(20, label="other"))
        cache.store(other, 15, 15)
        assert cache.bill(other, 16).read > 0
        assert cache.bill(prompt(line(20)), 16).read == 0

"""DeepSeek: the page's examples."""

from dataclasses import replace

from proxy.core.caches import make_cache
from proxy.core.providers import DEEPSEEK
from tests.cache_prompts import line, prompt

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

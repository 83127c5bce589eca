"""OpenAI GPT-5.6 and newer: slots, candidates, exact positions."""

from dataclasses import replace

import pytest

from proxy.core.caches import make_cache
from proxy.core.caches.prompt import Life
from proxy.core.providers import OPENAI_EXPLICIT, pessimistic
from tests.cache_prompts import line, parts, prompt


class TestBoundaries:
    """OpenAI GPT-5.6 and newer, providers' reference section 20.2: slots, candidates, exact positions."""

    def test_implicit_mode_writes_the_latest_message_and_three_breakpoints(self):
        cache = make_cache(OPENAI_EXPLICIT)
        marks: dict[int, Life] = {p: "5m" for p in (10, 20, 30, 40)}
        request = prompt(line(60), marks, endings=(12, 59), head_end=5)
        assert parts(cache.bill(request, 0)) == (0, 0, 6000, 0)
        cache.store(request, 0, 0)
        assert cache.held(request, 1) == [20, 30, 40, 59]

    def test_explicit_mode_writes_the_latest_four(self):
        cache = make_cache(OPENAI_EXPLICIT)
        request = prompt(line(60), {p: "5m" for p in (10, 20, 30, 40, 50)})
        assert parts(cache.bill(request, 0)) == (0, 0, 5100, 900)
        cache.store(request, 0, 0)
        assert cache.held(request, 1) == [20, 30, 40, 50]

    def test_explicit_mode_without_a_breakpoint_costs_no_write(self):
        cache = make_cache(OPENAI_EXPLICIT)
        cache.store(prompt(line(60)), 0, 0)
        assert parts(cache.bill(prompt(line(60)), 1)) == (0, 0, 0, 6000)

    def test_a_growing_chat_appends(self):
        # litellm PR #37628: the next request reads what the first one wrote, and writes what is new.
        cache = make_cache(OPENAI_EXPLICIT)
        cache.store(prompt(line(60), endings=(59,)), 0, 0)
        assert parts(cache.bill(prompt(line(75), endings=(59, 74)), 1)) == (6000, 0, 1500, 0)

    def test_a_message_that_grew_has_lost_its_end(self):
        cache = make_cache(OPENAI_EXPLICIT)
        cache.store(prompt(line(60), endings=(59,)), 0, 0)
        assert cache.bill(prompt([*line(60), ("more", 100)], endings=(60,)), 1).read == 0

    def test_twenty_earlier_endings_are_looked_up(self):
        cache = make_cache(OPENAI_EXPLICIT)
        cache.store(prompt(line(30), endings=(29,)), 0, 0)
        near, far = (tuple(range(29, 30 + n)) for n in (20, 21))
        assert cache.bill(prompt(line(60), endings=near), 1).read == 3000
        assert cache.bill(prompt(line(60), endings=far), 1).read == 0

    def test_the_end_of_the_instructions_is_looked_up(self):
        cache = make_cache(OPENAI_EXPLICIT)
        cache.store(prompt(line(20), {19: "5m"}), 0, 0)
        assert cache.bill(prompt(line(60), endings=(59,), head_end=19), 1).read == 2000
        assert cache.bill(prompt(line(60), endings=(59,)), 1).read == 0

    @pytest.mark.parametrize(("rule", "first", "latest"), [("guide", 2, 50), ("sdk", 0, 80), ("azure", 0, 50)])
    def test_which_breakpoints_are_looked_up(self, rule: str, first: int, latest: int):
        profile = replace(OPENAI_EXPLICIT, first_marks=first, latest_marks=latest)
        cache = make_cache(profile)
        cache.store(prompt(line(12), {11: "5m"}), 0, 0)
        for count, found in ((latest, True), (latest + first + 1, first > 0)):
            marks: dict[int, Life] = {p: "5m" for p in range(11, 11 + count)}
            assert (cache.bill(prompt(line(200), marks), 1).read > 0) is found, rule

    def test_pessimistic_no_earlier_endings(self):
        # ax-llm/ax #573: no fallback to an unmarked earlier prefix.
        cache = make_cache(pessimistic(OPENAI_EXPLICIT))
        cache.store(prompt(line(60), endings=(59,)), 0, 0)
        assert cache.bill(prompt(line(75), endings=(59, 74)), 100).read == 0
        assert cache.bill(prompt(line(75), {59: "5m"}, endings=(59, 74)), 100).read == 6000
        assert cache.bill(prompt(line(75), {59: "5m"}, endings=(59, 74)), 29).read == 0

    def test_a_longer_life_is_used_where_it_is_sold(self):
        cache = make_cache(replace(OPENAI_EXPLICIT, long_life_s=43200.0, write_long=2.5))
        request = prompt(line(60), {20: "1h", 40: "5m"})
        assert parts(cache.bill(request, 0)) == (0, 2100, 2000, 1900)
        cache.store(request, 0, 0)
        assert cache.bill(request, 40_000).read == 2100

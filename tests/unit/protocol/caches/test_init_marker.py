"""The documented examples of Anthropic's page; and OpenAI's boundaries: slots, candidates, exact positions."""

from dataclasses import replace

import pytest

from proxy.protocol.caches import Bill, Life, make_cache, validate
from proxy.protocol.providers import ANTHROPIC, OPENAI_EXPLICIT, PROFILES, CacheProfile, pessimistic
from tests.cache_prompts import line, parts, prompt

TINY = replace(ANTHROPIC, min_tokens=1)


class TestMarkerLookup:
    def stored(self, *positions: int, profile: CacheProfile = TINY, count: int = 60):
        cache = make_cache(profile)
        for position in positions:
            cache.store(prompt(line(position + 1), {position: "5m"}), 0, 0)
        return cache, line(count)

    def test_entries_beyond_the_lookback_are_not_found(self):
        # The page counts blocks from 1: entries at 10 and 15, a request of 35 blocks with one marker, on 35.
        cache, blocks = self.stored(9, 14)
        assert cache.bill(prompt(blocks[:35], {34: "5m"}), 1).read == 0

    def test_an_earlier_marker_rescues_positions_beyond_the_look_back(self):
        cache, blocks = self.stored(9, 14)
        bill = cache.bill(prompt(blocks[:35], {14: "5m", 34: "5m"}), 1)
        assert (bill.read, bill.hit, bill.write_5m) == (1500, 14, 2000)

    @pytest.mark.parametrize(("distance", "read"), [(0, 1000), (19, 1000), (20, 0)])
    def test_twenty_positions_counting_the_marker(self, distance: int, read: int):
        cache, blocks = self.stored(9)
        assert cache.bill(prompt(blocks, {9 + distance: "5m"}), 1).read == read

    def test_a_run_counts_once(self):
        cache, blocks = self.stored(9)
        runs = [*range(10), *[10] * 40, *range(11, 21)]
        assert cache.bill(prompt(blocks, {49: "5m"}, runs=runs), 1).read == 1000
        assert cache.bill(prompt(blocks, {59: "5m"}, runs=runs), 1).read == 1000
        assert cache.bill(prompt(blocks, {59: "5m"}), 1).read == 0

    def test_a_run_stands_for_its_last_position(self):
        cache = make_cache(TINY)
        runs = [0, 1, 1, 1, 2]
        cache.store(prompt(line(3), {2: "5m"}, runs=runs[:3]), 0, 0)
        assert cache.bill(prompt(line(5), {4: "5m"}, runs=runs), 1).read == 0
        assert cache.bill(prompt(line(5), {2: "5m", 4: "5m"}, runs=runs), 1).read == 300

    def test_nothing_is_written_where_no_marker_stands(self):
        cache, blocks = self.stored(9)
        assert cache.bill(prompt(blocks[:9], {8: "5m"}), 1).read == 0

    def test_entries_that_lost_their_marker_still_hit(self):
        cache, blocks = self.stored(9)
        assert cache.bill(prompt(blocks[:12], {11: "5m"}), 1).read == 1000

    def test_scopes_are_apart(self):
        cache, blocks = self.stored(9)
        assert cache.bill(prompt(blocks[:12], {11: "5m"}, scope=b"other"), 1).read == 0


class TestMarkerBill:
    def test_one_hour_and_five_minutes(self):
        cache = make_cache(ANTHROPIC)
        request = prompt(line(4, 1000), {0: "1h", 1: "1h", 2: "5m"})
        assert parts(cache.bill(request, 0)) == (0, 2000, 1000, 1000)
        cache.store(request, 0, 0)
        assert parts(cache.bill(request, 400)) == (2000, 0, 1000, 1000)

    def test_below_the_minimum_markers_are_ignored(self):
        cache = make_cache(ANTHROPIC)
        request = prompt(line(10), {9: "5m"})
        cache.store(request, 0, 0)
        assert parts(cache.bill(request, 1)) == (0, 0, 0, 1000)
        assert len(cache.table) == 0

    def test_without_markers_all_is_plain(self):
        cache = make_cache(ANTHROPIC)
        request = prompt(line(40))
        cache.store(request, 0, 0)
        assert cache.bill(request, 1) == Bill(0, 0, 0, 4000)

    def test_an_empty_prompt(self):
        for profile in PROFILES.values():
            assert make_cache(profile).bill(prompt([]), 0) == Bill(0, 0, 0, 0)

    def test_a_profile_without_a_long_life_writes_the_short_one(self):
        cache = make_cache(OPENAI_EXPLICIT)
        request = prompt(line(20), {19: "1h"})
        assert parts(cache.bill(request, 0)) == (0, 0, 2000, 0)
        cache.store(request, 0, 0)
        assert cache.bill(request, 1799).read == 2000
        assert cache.bill(request, 1800).read == 0

    def test_only_the_latest_marks_are_written_but_all_are_read(self):
        cache = make_cache(OPENAI_EXPLICIT)
        marks: dict[int, Life] = {p: "5m" for p in (10, 20, 30, 40, 50)}
        cache.store(prompt(line(60), marks), 0, 0)
        assert cache.bill(prompt(line(60), {10: "5m"}), 1).read == 0
        assert cache.bill(prompt(line(60), {20: "5m"}), 1).read == 2100
        assert cache.bill(prompt([*line(51), *line(9, label="new")], marks), 1).read == 5100


class TestMarkerTime:
    request = prompt(line(20), {19: "5m"})

    def test_readable_once_the_first_response_begins(self):
        cache = make_cache(ANTHROPIC)
        cache.store(self.request, 0, 8)
        assert cache.bill(self.request, 7.9).write_5m == 2000
        assert cache.bill(self.request, 8).read == 2000

    def test_a_parallel_writer_does_not_delay_the_first(self):
        cache = make_cache(ANTHROPIC)
        cache.store(self.request, 0, 2)
        cache.store(self.request, 1, 9)
        assert cache.bill(self.request, 3).read == 2000

    def test_reads_refresh_from_the_start_of_the_request(self):
        cache = make_cache(ANTHROPIC)
        cache.store(self.request, 0, 30)
        for now in (299, 598):
            assert cache.bill(self.request, now).read == 2000
            cache.store(self.request, now, now + 30)
        assert cache.bill(self.request, 897.9).read == 2000
        assert cache.bill(self.request, 898).read == 0

    @pytest.mark.parametrize(("refresh", "read"), [("prefix", 1500), ("hit", 0)])
    def test_which_entries_a_read_renews(self, refresh, read):
        cache = make_cache(replace(TINY, refresh=refresh))
        cache.store(prompt(line(20), {14: "5m", 19: "5m"}), 0, 0)
        cache.store(prompt(line(20), {19: "5m"}), 200, 200)
        assert cache.bill(prompt(line(20), {14: "5m"}), 400).read == read

    @pytest.mark.parametrize(("cross", "read"), [(True, 2000), (False, 0)])
    def test_lives_read_each_other(self, cross, read):
        cache = make_cache(replace(ANTHROPIC, cross_life_read=cross))
        cache.store(prompt(line(20), {19: "1h"}), 0, 0)
        assert cache.bill(self.request, 1).read == read
        assert cache.bill(prompt(line(20), {19: "1h"}), 3599).read == 2000

    @pytest.mark.parametrize(("free", "read"), [(True, 1200), (False, 0)])
    def test_a_marker_below_the_hit(self, free, read):
        cache = make_cache(replace(TINY, below_hit_free_entry=free))
        cache.store(self.request, 0, 0)
        below = prompt(line(20), {11: "5m", 19: "5m"})
        assert parts(cache.bill(below, 1)) == (2000, 0, 0, 0)
        cache.store(below, 1, 1)
        assert cache.bill(prompt(line(12), {11: "5m"}), 2).read == read

    def test_slack(self):
        cache = make_cache(replace(ANTHROPIC, slack_s=60))
        cache.store(self.request, 0, 0)
        assert cache.bill(self.request, 359).read == 2000


class TestValidate:
    def test_a_fifth_marker(self):
        assert validate(prompt(line(9), {p: "5m" for p in range(4)}), ANTHROPIC) is None
        assert "maximum of 4" in (validate(prompt(line(9), {p: "5m" for p in range(5)}), ANTHROPIC) or "")

    def test_one_hour_behind_five_minutes(self):
        assert validate(prompt(line(9), {1: "1h", 5: "5m"}), ANTHROPIC) is None
        assert "must not come after" in (validate(prompt(line(9), {5: "1h", 1: "5m"}), ANTHROPIC) or "")

    def test_other_dialects_take_what_comes(self):
        assert validate(prompt(line(9), {p: "5m" for p in range(6)}), OPENAI_EXPLICIT) is None


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

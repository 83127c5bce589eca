import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from proxy.kit.modes import Mode
from proxy.planner.keep_alive import RefreshPlan, ReturnTimes, margin_of, refreshes
from proxy.planner.plan import Plan
from proxy.protocol.providers import OPENAI, VLLM, CacheProfile
from tests.talk import (
    MARK,
    TINY,
    Body,
    Talk,
    assistant,
    calling,
    chat,
    lines,
    result,
    sent,
    system,
    text_part,
    tool,
    user,
)

# One life, so that nothing else bridges the pauses.
SHORT = replace(TINY, long_life_s=0.0)
PAUSE_S = 480.0


def paused(talk: Talk, gaps: Sequence[float], **more: Any) -> tuple[Plan, RefreshPlan | None]:
    """A conversation with these gaps, and what would keep it alive after its last request."""
    turns = [system(lines(60, "rule"))]
    for number, gap in enumerate(gaps):
        turns.append(user(lines(10, f"question {number}")))
        plan = talk.send(chat(*turns, **more), after_s=gap)
        turns.append(assistant(lines(5, f"answer {number}")))
    return plan, talk.planner.refresh_plan(plan, talk.now)


OFTEN = [10.0, PAUSE_S] * 8


class TestRefreshes:
    def test_none_without_a_past(self) -> None:
        assert refreshes(ReturnTimes([], 1.0), 300.0, 0.1, 1.1, 12) == 0

    @pytest.mark.parametrize(("returning", "expected"), [(8, 1), (1, 0)])
    def test_a_refresh_pays_while_the_chance_of_a_return_exceeds_the_price_ratio(
        self, returning: int, expected: int
    ) -> None:
        # One period of 270 s and no more: P = returning / 20 against r / (w - r) = 0.1 / 1.1.
        past = ReturnTimes([400.0] * returning, 20.0 - returning)
        assert refreshes(past, 300.0, 0.1, 1.1, 1) == expected

    @pytest.mark.parametrize("gap_s", [10.0, 280.0, 320.0, 400.0, 700.0, 1000.0, 1100.0, 1600.0, 2500.0, 20_000.0])
    def test_the_series_is_the_one_of_least_cost(self, gap_s: float) -> None:
        """Compared with the sum over all its refreshes: each is paid by those who have not come back before it."""
        life_s, cost, gain = 300.0, 0.1, 1.1
        past = ReturnTimes([gap_s] * 12 + [gap_s / 2] * 3, 4.0)
        period_s, margin_s = life_s - margin_of(life_s), margin_of(life_s)
        known = ReturnTimes([gap for gap in past.gaps if 1.75 * gap > period_s], past.gone)

        def value(count: int) -> float:
            away, total = 1.0, 0.0
            for number in range(1, count + 1):
                at = number * period_s
                total += away * (known.share(at + margin_s, at + life_s, at) * gain - cost)
                away *= 1.0 - known.share(at, at + period_s, at)
            return total

        best = max(range(13), key=lambda count: (value(count), -count))
        assert refreshes(past, life_s, cost, gain, 12) == best

    def test_never_more_than_the_most(self) -> None:
        assert refreshes(ReturnTimes([1500.0] * 90, 0.1), 300.0, 0.01, 1.1, 3) <= 3

    def test_the_margin_is_a_part_of_short_lives(self) -> None:
        assert (margin_of(60.0), margin_of(3600.0)) == (6.0, 30.0)

    def test_who_is_gone_longer_returns_less(self) -> None:
        past = ReturnTimes([10.0] * 50 + [400.0, 900.0], 4.0)
        assert past.share(300.0, 600.0, 270.0) > past.share(3000.0, 3300.0, 2970.0) == 0.0


class TestUpkeep:
    def test_a_client_that_pauses_often_is_waited_for(self) -> None:
        plan, work = paused(Talk(profile=SHORT), OFTEN)
        assert (work.times, work.period_s) == (2, 270.0)
        assert work.bill.read > 0.9 * plan.predicted.total

    def test_a_prefix_that_does_not_pay_is_not_refreshed(self) -> None:
        assert paused(Talk(profile=SHORT), [10.0] * 16)[1] is None

    @pytest.mark.parametrize("profile", [VLLM, replace(SHORT, read=1.25)], ids=["free", "no gain"])
    def test_no_refresh_where_a_read_has_no_price_or_gains_nothing(self, profile: CacheProfile) -> None:
        assert paused(Talk(profile=profile), OFTEN)[1] is None

    @pytest.mark.parametrize("mode", [Mode.PASSTHROUGH, Mode.OBSERVE])
    def test_no_refresh_in_modes_that_touch_nothing(self, mode: Mode) -> None:
        assert paused(Talk(profile=SHORT, mode=mode), OFTEN)[1] is None

    def test_no_refresh_of_a_session_that_is_barred(self) -> None:
        talk = Talk(profile=SHORT)
        plan, _ = paused(talk, OFTEN)
        talk.planner.barred(plan)
        assert talk.planner.refresh_plan(plan, talk.now) is None

    def test_what_an_hour_protects_needs_none(self) -> None:
        _, short = paused(Talk(profile=SHORT), OFTEN)
        _, long = paused(Talk(), OFTEN)
        assert short is not None
        assert long is None or long.period_s > 3000.0

    def test_a_refresh_keeps_the_shadow_warm(self) -> None:
        talk = Talk(profile=SHORT)
        plan, work = paused(talk, OFTEN)
        at = talk.now + work.period_s
        talk.planner.kept(work, at)
        again = talk.planner.refresh_plan(plan, at)
        assert again.bill.read == work.bill.read

    def test_automatic_caches_run_out_too(self) -> None:
        profile = replace(OPENAI, min_tokens=1, life_s=300.0)
        _, work = paused(Talk(profile=profile), OFTEN)
        assert json.loads(work.body)["max_completion_tokens"] == 1


class TestBody:
    def test_a_refresh_ends_behind_the_last_marker_and_asks_for_one_token(self) -> None:
        more = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 900, "temperature": 0.25}
        plan, work = paused(Talk(profile=SHORT), OFTEN, **more)
        body, sent = json.loads(work.body), json.loads(plan.body)
        assert {key: body[key] for key in body if key != "messages"} == {
            "model": "m", "temperature": 0.25, "max_tokens": 1,
        }  # fmt: skip
        assert body["messages"] == sent["messages"][: len(body["messages"])]
        assert b"cache_control" in json.dumps(body["messages"][-1]).encode()

    def marked_before(self, *last: Body) -> tuple[Plan, RefreshPlan]:
        """A client whose four markers stand in front of ``last``."""
        talk = Talk(profile=SHORT, mode=Mode.MARK)
        turns = [system([text_part(lines(20, f"rule {number}"), **MARK) for number in range(3)])]
        for number, gap in enumerate(OFTEN):
            text = lines(10, f"question {number}")
            plan = talk.send(chat(*turns, user([text_part(text, **MARK)]), *last), after_s=gap)
            turns += [user(text), *last, assistant("an answer")]
        work = talk.planner.refresh_plan(plan, talk.now)
        assert work is not None
        return plan, work

    def test_what_stands_behind_the_last_marker_is_left_out(self) -> None:
        plan, work = self.marked_before(assistant("an answer"), user(lines(10, "more")))
        assert json.loads(work.body)["messages"] == sent(plan)["messages"][:-2]
        assert work.bill.total == work.bill.read
        assert work.bill.total < plan.predicted.total

    def test_a_system_message_behind_the_last_marker_stays_with_all_in_front_of_it(self) -> None:
        plan, work = self.marked_before(assistant("an answer"), system("A notice."), user("more"))
        assert json.loads(work.body)["messages"] == sent(plan)["messages"]
        assert work.bill.total == plan.predicted.total

    @pytest.mark.parametrize("marked", [0, 1], ids=["the first result", "the last result"])
    def test_results_of_one_turn_are_not_parted(self, marked: int) -> None:
        results = [result(f"c{n}", [text_part(lines(9, f"{n}"), **(MARK if n == marked else {}))]) for n in range(2)]
        talk, turns = Talk(profile=SHORT, mode=Mode.MARK), []
        head = system([text_part(lines(200, f"rule {number}"), **MARK) for number in range(3)])
        for number, gap in enumerate(OFTEN):
            newest = [user(f"question {number}"), calling("c0", "c1"), *results, assistant("so"), user("and?")]
            plan = talk.send(chat(head, *turns, *newest, tools=[tool("run")]), after_s=gap)
            turns += [user(f"question {number}"), assistant("an answer")]
        work = talk.planner.refresh_plan(plan, talk.now)
        messages = sent(plan)["messages"]
        assert json.loads(work.body)["messages"] == (messages[:-2] if marked else messages)

    def test_what_only_shapes_the_answer_is_left_out(self) -> None:
        more = {"n": 2, "store": True, "prediction": {"type": "content", "content": "x"}, "seed": 7}
        more |= {"logprobs": True, "top_logprobs": 3, "max_completion_tokens": 500}
        _, work = paused(Talk(profile=SHORT), OFTEN, **more)
        assert set(json.loads(work.body)) == {"model", "messages", "seed", "max_completion_tokens"}
        assert json.loads(work.body)["max_completion_tokens"] == 1

    def test_tools_stay(self) -> None:
        _, work = paused(Talk(profile=SHORT), OFTEN, tools=[tool("run")], tool_choice="required")
        assert set(json.loads(work.body)) >= {"tools", "tool_choice"}

    @pytest.mark.parametrize(
        "more",
        [{"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"reasoning_effort": "high"},
         {"web_search_options": {}}, {"modalities": ["audio"]}],
    )  # fmt: skip
    def test_none_where_one_token_would_be_refused_or_cost_more(self, more: dict[str, Any]) -> None:
        assert paused(Talk(profile=SHORT), OFTEN, **more)[1] is None

    def test_thinking_that_is_off_is_no_obstacle(self) -> None:
        assert paused(Talk(profile=SHORT), OFTEN, thinking={"type": "disabled"})[1] is not None

"""What is asked of live panels, and what came of it."""

from dataclasses import replace

import orjson
import pytest

from proxy.lab.demo import added_up
from proxy.lab.demo.panels import SCENARIOS, Pace, PanelComparison, PanelForm, Scenario, comparison
from proxy.lab.replay import Setting
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage

SETTING = Setting(ANTHROPIC, bytes_over_four, ())
PRICE = Price(input=1e-6, output=1e-5, read=1e-7, write_5m=1.25e-6, write_1h=2e-6)


def usage(read: int) -> Usage:
    return Usage(prompt=1_000, output=1, read=read, write_5m=0, write_1h=0, writes_told=True, lives_told=True)


def answered(scenario: Scenario, read: int) -> PanelComparison:
    """All requests answered: context messages uncached, live panels with so many of 1,000 tokens read."""
    compared = comparison(scenario, SETTING, PRICE)
    for form, tally in compared.tallies.items():
        for sending in tally.sendings:
            tally.add(usage(read if form.has_panels else 0), orjson.dumps(sending.body))
    return compared


SMALL = Scenario("small", "", Pace(12), tuple(PanelForm), most_share=0.25, most_ratio=0.5, least_read=0.85)


@pytest.mark.parametrize(("read", "reached"), [(900, True), (800, False)])
def test_a_goal_is_reached_or_missed_by_what_was_reported(read: int, reached: bool) -> None:
    goals = {
        goal.words: goal
        for goal in answered(replace(SMALL, forms=(PanelForm.UNTOUCHED, PanelForm.PANELS)), read).goals()
    }
    cost = 1 - 0.9 * read / 1_000
    assert goals["of no caching"].found == pytest.approx(cost)
    assert goals[f"of '{PanelForm.UNTOUCHED}'"].found == pytest.approx(cost)
    assert goals["read after ten turns"].found == pytest.approx(read / 1_000)
    assert goals["read after ten turns"].is_reached is reached
    assert goals["of no caching"].is_reached is (cost <= 0.25)


def test_a_frozen_conversation_has_few_live_messages() -> None:
    scenario = replace(SMALL, forms=(PanelForm.FREEZING,), most_live=5)
    goal = [goal for goal in answered(scenario, 900).goals() if goal.words == "live messages"][0]
    assert (goal.found, goal.wanted, goal.is_reached) == (23, 5, False)


@pytest.mark.parametrize(("most", "reached"), [(1_000, True), (999, False)])
def test_the_longest_prompt_fits_the_window_or_does_not(most: int, reached: bool) -> None:
    scenario = replace(SMALL, forms=(PanelForm.FREEZING,), most_prompt=most)
    (goal,) = [goal for goal in answered(scenario, 900).goals() if goal.words == "tokens of the longest prompt"]
    assert (goal.found, goal.wanted, goal.is_reached) == (1_000, most, reached)


def test_each_form_is_an_account_of_its_own_and_its_faults_are_listed() -> None:
    compared = answered(replace(SMALL, pace=Pace(2)), 0)
    assert len({tally.key for tally in compared.tallies.values()}) == len(PanelForm)
    losses = added_up(compared.tallies.values()).losses
    assert all(text.startswith("demo-panels-small-") for text in losses)
    assert {text.split(":")[0].rpartition("-")[2] for text in losses} == {"panels", "freezing"}


def test_every_scenario_has_live_panels_and_a_goal() -> None:
    for scenario in SCENARIOS:
        assert sum(form.has_panels for form in scenario.forms) == 1
        assert scenario.most_ratio or scenario.least_read


def test_only_what_shall_come_untouched_asks_the_proxy_for_it() -> None:
    tallies = comparison(SMALL, SETTING, PRICE).tallies
    assert [form for form, tally in tallies.items() if tally.headers] == [PanelForm.UNTOUCHED]

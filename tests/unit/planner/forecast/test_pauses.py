"""The longer life, by the client's own pauses: whole conversations in virtual time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.planner.forecast import Candidate, Forecast, PauseForecast, PieceForecast
from proxy.planner.layout import Layout, PrefixSettings
from proxy.planner.plan import Plan
from proxy.protocol.caches import validate
from proxy.protocol.providers import ANTHROPIC, OPENAI_EXPLICIT, CacheProfile, pessimistic
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import Part, PartKind
from tests.talk import MARK, TINY, Talk, analysis_of, assistant, chat, lines, sent, system, text_part, user

PAUSE_S = 600.0
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def talked(talk: Talk, gaps: Sequence[float], topic: str = "question") -> list[Plan]:
    """A conversation that only appends, a request behind each gap."""
    turns, plans = [system(lines(60, "rule"))], []
    for number, gap in enumerate(gaps):
        turns.append(user(lines(10, f"{topic} {number}")))
        plans.append(talk.send(chat(*turns), after_s=gap))
        turns.append(assistant(lines(5, f"answer {number}")))
    return plans


def lives(plan: Plan) -> list[str]:
    """The lives of the markers that went out, in the order of the prompt."""
    found = []
    for message in sent(plan)["messages"]:
        parts = message["content"] if isinstance(message["content"], list) else []
        holders = [*parts, message]
        found += [h["cache_control"].get("ttl", "5m") for h in holders if "cache_control" in h]
    return found


def cost(plans: Sequence[Plan], profile: CacheProfile = TINY) -> float:
    """Input cost of all plans, as the shadow bills them."""
    total = 0.0
    for plan in plans:
        assert plan.predicted is not None
        bill = plan.predicted
        total += bill.read * profile.read + bill.write_5m * profile.write + bill.write_1h * profile.write_long
        total += bill.plain
    return total


def test_nothing_is_marked_for_an_hour_before_the_client_has_paused() -> None:
    quick = [10.0, 250.0] * 10
    assert all("1h" not in lives(plan) for plan in talked(Talk(), quick))


def test_nothing_is_marked_for_an_hour_for_pauses_that_an_hour_does_not_serve() -> None:
    assert all("1h" not in lives(plan) for plan in talked(Talk(), [10.0, 10.0, 5000.0] * 5))


def test_after_a_pause_the_conversation_is_protected_against_the_next() -> None:
    plans = talked(Talk(), [10.0] * 6 + [PAUSE_S] + [10.0] * 4 + [PAUSE_S, 10.0])
    first, second = plans[6].predicted, plans[11].predicted
    assert first.read == 0
    assert second.read > 0.6 * second.total
    assert any("1h" in lives(plan) for plan in plans[7:11])


def test_what_is_protected_is_not_bought_again_each_time() -> None:
    plans = talked(Talk(), [10.0] * 6 + [PAUSE_S] + [10.0] * 20)
    hours = [plan.predicted.write_1h for plan in plans if plan.predicted is not None]
    assert 1 <= sum(1 for tokens in hours if tokens) <= 8


def test_a_client_that_always_pauses_is_learnt() -> None:
    plans = talked(Talk(), [PAUSE_S] * 24)
    assert all(plan.predicted is not None and plan.predicted.read > plan.predicted.total / 2 for plan in plans[8:])
    assert cost(plans) < 0.6 * sum(plan.predicted.total for plan in plans if plan.predicted is not None)


def test_one_pause_in_one_conversation_is_no_reason_to_protect_the_others() -> None:
    talk = Talk()
    talked(talk, [10.0] * 4 + [PAUSE_S, 10.0, 10.0])
    for topic in ("second", "third", "fourth"):
        others = talked(talk, [10.0] * 6, topic)
        assert all("1h" not in lives(plan) for plan in others)


@pytest.mark.parametrize("profile", [TINY, replace(pessimistic(TINY), name="pessimistic")])
def test_pauses_cost_less_than_without_the_hour(profile: CacheProfile) -> None:
    gaps = ([10.0] * 5 + [PAUSE_S]) * 6
    short = replace(profile, long_life_s=0.0)
    assert cost(talked(Talk(profile=profile), gaps), profile) <= 1.01 * cost(talked(Talk(profile=short), gaps), short)


def test_no_hour_stands_behind_five_minutes() -> None:
    talk = Talk()
    for plan in talked(talk, ([10.0] * 3 + [PAUSE_S]) * 8):
        found = lives(plan)
        assert found == sorted(found)
        choice = analysis_of(plan).choice
        assert validate(choice.layout.prompt(choice.marks), TINY) is None


def test_providers_of_one_life_get_none() -> None:
    for plan in talked(Talk(profile=replace(OPENAI_EXPLICIT, min_tokens=1)), [10.0, 2400.0] * 5):
        assert b"ttl" not in plan.body


def test_a_clients_own_lives_are_kept() -> None:
    talk, plans = Talk(), []
    turns = [system([text_part(lines(60, "rule"), **HOUR)])]
    for number in range(8):
        newest = user([text_part(lines(10, f"question {number}"), **MARK)])
        plans.append(talk.send(chat(*turns, newest), after_s=PAUSE_S if number % 2 else 10.0))
        turns += [user(lines(10, f"question {number}")), assistant(lines(5, f"answer {number}"))]
    for plan in plans:
        assert lives(plan)[0] == "1h"
        assert "1h" not in lives(plan)[1:]


def opened(talk: Talk, gap_s: float, sessions: int = 10) -> list[Plan]:
    """Short conversations with the same instructions, one after another: the first plan of each."""
    plans = []
    for number in range(sessions):
        turns = [system(lines(80, "rule")), user(lines(4, f"customer {number}"))]
        plans.append(talk.send(chat(*turns), after_s=gap_s))
        turns += [assistant("an answer"), user(f"and then, {number}?")]
        talk.send(chat(*turns), after_s=10.0)
    return plans


@pytest.mark.parametrize("gap_s", [60.0, 9000.0])
def test_no_head_is_held_for_those_that_open_soon_or_too_late(gap_s: float) -> None:
    assert all("1h" not in lives(plan) for plan in opened(Talk(), gap_s))


@pytest.mark.parametrize(("distance", "is_near"), [(ANTHROPIC.lookback - 1, True), (ANTHROPIC.lookback, False)])
def test_the_hour_may_stand_at_the_last_place_from_which_what_is_read_is_found(distance: int, is_near: bool) -> None:
    parts = [Part(PartKind.TEXT, b"%d" % at, 100, -1, at == distance) for at in range(2 * ANTHROPIC.lookback)]
    turns = [Element("turn", ElementKind.MESSAGE, p.digest, (p,), 100, "user", at) for at, p in enumerate(parts)]
    layout = Layout(PrefixSettings(b"scope", b""), turns)
    pieces = PieceForecast({}, {}, {}, frozenset(), 1.0, (), 0.0, 0.0)
    expected = Forecast(0.9, 0.9, {}, frozenset(), {}, (), (), pieces, ())
    candidate = Candidate(layout, [0.0] * len(parts), [], [], None, False, {})
    hours = list(PauseForecast(0.0, expected, TINY).hours(candidate, [], 0, 4))
    assert ({distance: "1h"} in hours) is is_near

"""Turns that add more positions than a marker looks back over: the entry of the request before stays in reach."""

from dataclasses import replace

import orjson
import pytest

from proxy.protocol.caches import Bill
from proxy.protocol.providers import PROFILES, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import Provider
from tests.talk import Body, Talk, calling, chat, lines, marks_in, result, sent, system, tool, user

SYSTEM = system(lines(300, "rule"))
TOOLS = [tool("read")]
CLAUDE = PROFILES["anthropic"]


def loop(turns: int, calls: int) -> list[Body]:
    """An agent that asks for ``calls`` files at once, each turn."""
    found: list[Body] = [SYSTEM, user("read everything")]
    for turn in range(turns):
        names = [f"call_{turn}_{n}" for n in range(calls)]
        found += [calling(*names), *(result(name, lines(4, name)) for name in names)]
    return found


def bills(profile: CacheProfile, truth: CacheProfile, calls: int, *, is_single: bool = False) -> list[Bill]:
    """What the provider bills for six turns; ``is_single``: each call is a turn of its own."""
    talk, provider, found = Talk(profile=profile), Provider(truth, bytes_over_four), []
    for turns in range(6):
        messages = loop(turns, calls)
        if is_single:
            messages = loop(turns * calls, 1)
        plan = talk.send(chat(*messages, tools=TOOLS))
        reply = provider.chat(plan.body, "account", talk.now, 1)
        reply.store(talk.now)
        assert len(marks_in(orjson.loads(plan.body))) <= 4
        found.append(reply.bill)
    return found


@pytest.mark.parametrize("collapses", [True, False])
@pytest.mark.parametrize("believed", [True, False])
def test_thirty_parallel_calls_a_turn_are_never_written_twice(collapses: bool, believed: bool) -> None:
    """Whether runs of calls and results count as one position or not, and whatever is believed of it."""
    truth, page = replace(CLAUDE, collapses_runs=collapses), replace(CLAUDE, collapses_runs=believed)
    found = bills(page, truth, 30)
    for before, bill in zip(found, found[1:], strict=False):
        assert bill.read >= before.read + before.write
        assert bill.write <= bill.total - before.total + 10


def test_thirty_calls_one_after_the_other_between_two_requests() -> None:
    """A client that was away for thirty steps, its assistant turns without a place for a marker between them."""
    found = bills(CLAUDE, CLAUDE, 30, is_single=True)
    for before, bill in zip(found, found[1:], strict=False):
        assert bill.read >= before.read + before.write


def test_a_marker_that_reaches_back_stands_where_one_stood() -> None:
    talk = Talk(profile=CLAUDE)
    places = [
        [place for place in marks_in(sent(talk.send(chat(*loop(turns, 30), tools=TOOLS)))) if place[:1].isdigit()]
        for turns in range(1, 6)
    ]
    for before, after in zip(places, places[1:], strict=False):
        assert before[-1] in after


def test_the_markers_of_a_turn_that_is_sent_again_stand_where_they_stood() -> None:
    talk = Talk(profile=CLAUDE)
    talk.send(chat(*loop(1, 30), tools=TOOLS))
    first, *others = [talk.send(chat(*loop(2, 30), tools=TOOLS)) for _ in range(3)]
    assert len({plan.body for plan in others}) == 1
    assert marks_in(sent(first))[-1] == marks_in(sent(others[0]))[-1]
    assert all(plan.predicted is not None and plan.predicted.write == 0 for plan in others)

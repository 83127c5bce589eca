"""What a session came to, beside other policies."""

import pytest

from proxy.lab.demo import Sample, Tally, added_up
from proxy.lab.demo.tool_agent import tool_agent
from proxy.lab.replay import AS_SENT, OURS, SYSTEM_LAST, replay
from proxy.protocol.prices import Price
from proxy.protocol.response.usage import Usage
from tests.unit.lab.replay.sessions import setting

PRICE = Price(input=3e-6, output=15e-6, read=0.3e-6, write_5m=3.75e-6, write_1h=6e-6)


def tally(requests: int) -> Tally:
    agent = tool_agent()
    made = Tally.of(Sample(agent.name, agent.client, agent.requests[:requests]), setting(), PRICE)
    bodies = [step.body for step in agent.trace().steps]
    for body in bodies[:requests]:
        made.add(Usage(1000, 10, read=600, write_5m=100), body)
    return made


def test_what_was_reported_is_ours_and_priced() -> None:
    made = tally(4)
    ours = made.ours
    assert (ours.prompt, ours.read, ours.write_5m, ours.plain) == (4000, 2400, 400, 1200)
    assert made.usd[OURS] == pytest.approx(4 * (600 * 0.3e-6 + 100 * 3.75e-6 + 300 * 3e-6))
    assert (made.requests, made.losses) == (4, [])


def test_the_others_are_as_a_replay_has_them() -> None:
    made = tally(5)
    expected = replay(Sample("agent", "", made.sendings).trace(), setting())
    for name, account in made.accounts.items():
        assert account.total == expected.totals[name]
        assert made.share(name) == pytest.approx(expected.share(name))
    assert made.uncached_usd == pytest.approx(expected.plain * 3e-6)


def test_what_reached_the_provider_altered_is_a_violation() -> None:
    made = tally(1)
    made.requests = 0
    made.add(Usage(10, 1), made.sendings[0].raw.replace(b"coding agent", b"helpful agent"))
    assert made.losses == ["demo-agent: request 1: a system message that the client did not send here"]


def test_the_sum_of_all() -> None:
    one, other = tally(2), tally(3)
    total = added_up([one, other])
    assert (total.requests, total.ours.prompt, total.ours.read) == (5, 5000, 3000)
    assert total.usd[OURS] == pytest.approx(one.usd[OURS] + other.usd[OURS])
    assert total.share(AS_SENT) == pytest.approx(1.0)
    assert total.saved_usd(SYSTEM_LAST) == pytest.approx(total.usd[SYSTEM_LAST] - total.usd[OURS])
    assert total.saved_share(AS_SENT) == pytest.approx(1 - total.usd[OURS] / total.usd[AS_SENT])


def test_before_the_first_answer_there_is_nothing_to_divide_by() -> None:
    total = added_up([tally(0)])
    assert (total.share(), total.saved_share(AS_SENT)) == (1.0, 0.0)

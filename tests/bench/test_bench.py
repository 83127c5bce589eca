"""The benchmark measures what it says: sessions that grow, servers whose CPU is seen, figures that follow."""

import orjson
import pytest

from plugins.aider import AiderRecogniser
from tests.bench import bodies, report
from tests.bench.bodies import Session
from tests.bench.load import Timing
from tests.bench.measure import DIRECT, Case, Result, Sample
from tests.bench.probe import Probes
from tests.bench.stalls import Cost, Stalls, quantile


def sent(session: Session) -> list[list[dict[str, object]]]:
    return [orjson.loads(body)["messages"] for body in session.bodies]


@pytest.mark.parametrize("size", [1_000, 50_000, 400_000])
def test_an_agent_session_only_appends_and_is_of_the_size_asked_for(size: int) -> None:
    session = bodies.agent(1, size, 8 if size > 1_000 else 5, stream=False)
    for before, after in zip(sent(session), sent(session)[1:], strict=False):
        assert after[: len(before)] == before
        assert len(after) > len(before)
    assert all(0.6 * size < len(body) < 1.6 * size for body in session.bodies)


def test_sessions_are_repeatable_and_differ_by_seed() -> None:
    first, again, other = (bodies.agent(seed, 50_000, 4, stream=True) for seed in (1, 1, 2))
    assert first == again
    assert not set(first.bodies) & set(other.bodies)
    assert not set(map(str, sent(first)[-1][2:])) & set(map(str, sent(other)[-1][2:]))


def test_a_file_chat_is_one_that_the_recogniser_of_its_client_knows_and_edits_a_file_each_turn() -> None:
    shown = [messages[-3]["content"] for messages in sent(bodies.files(1, 50_000, 4, stream=False))]
    found = [AiderRecogniser().recognise("user", str(text)) for text in shown]
    assert all(known is not None and len(known.cuts) > 8 for known in found)
    assert len(set(map(str, shown))) == len(shown)


def test_the_figures_are_medians_of_rounds_and_paired_differences() -> None:
    case = Case("agent", 1_000, False, 1, lambda turn: [])

    def sample(cpu_ms: float, *total_s: float) -> Sample:
        return Sample(cpu_ms, [Timing(0.0, s) for s in total_s], [Timing(0.0, total_s[0])])

    result = Result(
        case,
        {
            DIRECT: [sample(0, 0.001, 0.002), sample(0, 0.001, 0.002), sample(0, 0.001, 0.002)],
            "bare": [sample(1.0, 0.002, 0.003), sample(2.0, 0.002, 0.003), sample(1.0, 0.002, 0.003)],
            "tier": [sample(3.5, 0.003, 0.005), sample(4.0, 0.003, 0.004), sample(9.0, 0.003, 0.004)],
        },
    )
    tier = report.rows([result])[0].targets["tier"]
    assert tier.cpu_ms == 4.0
    assert tier.ratio == 3.5
    assert tier.added_p50_ms == pytest.approx(2.0)
    assert tier.added_p99_ms == pytest.approx(3.0)


def test_two_versions_are_compared_round_by_round() -> None:
    def samples(*cpu_ms: float) -> list[Sample]:
        return [Sample(each, [Timing(0.0, 0.1)], [Timing(0.0, 0.1)]) for each in cpu_ms]

    case = Case("agent", 1_000, False, 1, lambda turn: [])
    told = {DIRECT: samples(0, 0, 0), "bare": samples(1, 1, 1), "then": samples(2, 4, 8), "now": samples(3, 4, 4)}
    [row] = report.rows([Result(case, told)])
    assert row.grown == 1.0
    assert report.rows([Result(case, {DIRECT: samples(0), "bare": samples(1)})])[0].grown is None


def test_probes_count_where_they_were_sent_or_answered_while_a_body_was_served() -> None:
    probes = Probes(health=[(0.0, 5.0), (9.9, 300.0), (11.0, 7.0)], chats=[(10.5, 20.0), (30.0, 2.0)])
    cost = Cost("words", 1_000_000, 0.25, 10.0, 11.5, 200)
    found = Stalls([cost], [cost], probes, (29.0, 31.0))
    assert found.health() == [7.0, 300.0]
    assert found.requests() == [7.0, 20.0, 300.0]
    assert found.idle() == [2.0]
    assert report.stalls_json(found)["health_max_ms"] == 300.0
    assert quantile([], 0.99) == 0.0

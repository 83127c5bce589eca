"""What the planner learns from one request of a conversation to the next."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.kit.modes import Reason
from proxy.planner.plan import Plan
from proxy.planner.shadow import Deviation
from proxy.planner.tiers import Tier
from proxy.protocol.providers import OPENAI, PROFILES
from proxy.protocol.response.usage import Usage
from tests.edited_talks import SYSTEM, A, B, editing, exchange
from tests.fidelity.chats import File
from tests.talk import MARK, Body, Talk, analysis_of, assistant, chat, lines, shown, system, text_part, user


def reads(plans: Sequence[Plan]) -> list[int]:
    return [plan.predicted.read if plan.predicted else 0 for plan in plans]


@pytest.fixture
def talk() -> Talk:
    return Talk()


class TestLife:
    def test_a_refused_session_is_left_alone(self, talk: Talk) -> None:
        turns = [SYSTEM, user("a")]
        plan = talk.plan(chat(*turns))
        assert plan.rewritten
        talk.planner.barred(plan)
        talk.planner.on_accepted(plan, talk.now)
        talk.planner.on_completed(plan, None, talk.now)
        plan = talk.send(chat(*turns, assistant("b"), user("c")))
        assert (plan.reason, plan.body) == (Reason.BARRED, plan.original)
        assert talk.send(chat(SYSTEM, user("another session"))).reason is not Reason.BARRED

    def test_a_request_that_is_refused_either_way_changes_nothing_for_its_session(self) -> None:
        calm, struck = Talk(), Talk()
        turns = [SYSTEM, user("a")]
        for number in range(10):
            if number == 3:
                plan = struck.plan(chat(*turns, logit_bias=7))
                assert plan.rewritten
                struck.planner.refused(plan)
            plans = [talk.send(chat(*turns)) for talk in (calm, struck)]
            assert plans[0].body == plans[1].body
            assert plans[0].predicted == plans[1].predicted
            turns += [assistant(f"b{number}"), user(f"c{number}")]

    def test_nothing_is_learnt_from_a_request_that_was_never_accepted(self, talk: Talk) -> None:
        first = talk.plan(chat(SYSTEM, user("a")))
        second = talk.plan(chat(SYSTEM, user("a")))
        assert first.body == second.body
        assert second.predicted.read == 0
        ended = talk.planner.on_completed(second, Usage(900, 10, read=900), talk.now)
        assert ended.deviation == ""

    def test_siblings_count_once(self) -> None:
        """Parallel requests that were planned from one state are one observation."""
        talk, files = Talk(), shown(File("a.py", lines(60, "a")), File("b.py", lines(60, "b")))
        first = [SYSTEM, user("one"), assistant("1")]
        talk.send(chat(*first, *files, user("two")))
        talk.now += 10
        asked = [user("two"), assistant("2")]
        bodies = [[*asked, *files, user(text)] for text in ("left", "right")]
        plans = [talk.plan(chat(*first, *body)) for body in bodies]
        tracker = analysis_of(plans[0]).session.tracker
        counts = []
        for plan in plans:
            talk.planner.on_accepted(plan, talk.now)
            talk.planner.on_completed(plan, None, talk.now)
            counts.append(max(tracker.n(key) for key in tracker.items))
        assert counts[1] == counts[0]

    def test_a_request_that_goes_on_from_one_that_ended_meanwhile_counts(self) -> None:
        talk, files = Talk(), shown(File("a.py", lines(60, "a")), File("b.py", lines(60, "b")))
        first = [SYSTEM, user("one"), assistant("1")]
        plans = [
            talk.plan(chat(*first, *files, user("two"))),
            talk.plan(chat(*first, user("two"), assistant("2"), *files, user("three"))),
        ]
        tracker = analysis_of(plans[0]).session.tracker
        for plan in plans:
            talk.planner.on_accepted(plan, talk.now)
            talk.planner.on_completed(plan, None, talk.now)
        assert max(tracker.n(key) for key in tracker.items) == 1

    def test_a_request_that_is_sent_twice_at_once_counts_once(self) -> None:
        def moves(copies: int) -> list[set[tuple[str, Tier | None]]]:
            talk, turns, found = Talk(), [], []
            for number in range(4):
                talk.now += 10
                body = chat(SYSTEM, *turns, *shown(A, B), user(f"question {number}"))
                plans = [talk.plan(body) for _ in range(copies)]
                results = []
                for plan in plans:
                    talk.planner.on_accepted(plan, talk.now)
                    results.append(talk.planner.on_completed(plan, None, talk.now))
                found.append({(move.key, move.target) for result in results for move in result.moves})
                turns += exchange(number)
            return found

        assert moves(2) == moves(1)
        assert any(moves(1))

    def test_what_expired_is_not_counted_on(self, talk: Talk) -> None:
        talk.send(chat(SYSTEM, user("a")))
        warm = talk.plan(chat(SYSTEM, user("a"), assistant("b"), user("c")))
        talk.now += 10_000
        cold = talk.plan(chat(SYSTEM, user("a"), assistant("b"), user("c")))
        assert (warm.predicted.read > 0, cold.predicted.read) == (True, 0)

    @pytest.mark.parametrize(("is_read", "expected"), [(True, Deviation.AS_EXPECTED), (False, Deviation.PARTITIONED)])
    def test_what_could_be_read_was_decided_when_the_request_came(
        self, talk: Talk, is_read: bool, expected: Deviation
    ) -> None:
        talk.send(chat(SYSTEM, user("a")))
        warm = talk.plan(chat(SYSTEM, user("a"), assistant("b"), user("c")))
        talk.planner.on_accepted(warm, talk.now + 10_000)
        total, read = warm.predicted.total, warm.predicted.read if is_read else 0
        ended = talk.planner.on_completed(warm, Usage(total, 10, read, total - read), talk.now + 10_000)
        assert ended.deviation is expected

    def test_more_reads_of_the_clients_own_request_are_no_gain(self) -> None:
        talk, turns = Talk(profile=PROFILES["vllm"]), [system(lines(400))]
        for number in range(3):
            turns += [user(f"question {number}"), assistant(lines(90, f"answer {number}"))]
            plan = talk.plan(chat(*turns[:-1]))
            talk.planner.on_accepted(plan, talk.now)
            total = plan.predicted.total
            talk.planner.on_completed(plan, Usage(total, 10, round(0.95 * total)), talk.now)
            assert plan.reason == Reason.NATURAL_ORDER
            assert plan.in_flight is not None
            caches = talk.planner._caches_of(plan.in_flight.analysis.incoming)
            assert caches.own_cost - caches.sent_cost < 0.1 * total

    def test_requests_side_by_side_read_nothing_of_each_other_in_the_clients_own_order_either(self, talk: Talk) -> None:
        plans = [talk.plan(chat(SYSTEM, user([text_part("a", **MARK)]))) for _ in range(2)]
        costs = []
        for number, plan in enumerate(plans):
            talk.planner.on_accepted(plan, talk.now + 1 + number)
            assert plan.in_flight is not None
            costs.append(talk.planner._caches_of(plan.in_flight.analysis.incoming).own_cost)
        assert costs == [costs[0], 2 * costs[0]]

    def test_an_entry_that_is_made_behind_the_answer_is_not_there_before(self) -> None:
        talk = Talk(profile=PROFILES["qwen"])
        turns = [system(lines(120)), user(lines(60))]
        one, two = chat(*turns), chat(*turns, assistant("b"), user("c"))
        first = talk.plan(one)
        talk.planner.on_accepted(first, talk.now)
        meanwhile = talk.plan(two)
        talk.now += 5
        talk.planner.on_completed(first, None, talk.now)
        afterwards = talk.plan(two)
        assert (meanwhile.predicted.read, afterwards.predicted.read > 0) == (0, True)

    def test_moves_are_reported_when_the_exchange_is_settled(self, talk: Talk) -> None:
        editing(talk, 6)
        moves = [(m.key, m.source, m.target, m.reason) for each in talk.results for m in each.moves]
        assert ("aider:files/file:a.py", Tier.ACTIVE, Tier.L3, "unchanged") in moves
        assert not any("b.py" in key for key, *_ in moves)

    def test_what_one_team_cached_is_no_other_teams(self, talk: Talk) -> None:
        body = chat(SYSTEM, user("a"))
        talk.send(body)
        assert talk.plan(body).predicted.read > 0  # type: ignore[union-attr]
        talk.route = replace(talk.route, scope="other")
        assert talk.plan(body).predicted.read == 0  # type: ignore[union-attr]

    @pytest.mark.slow
    def test_of_very_many_accounts_the_one_that_was_used_last_is_remembered(self) -> None:
        talk, own = Talk(), Talk().route
        body = chat(SYSTEM, user("a"))
        talk.send(body)
        for number in range(1030):
            if number == 600:
                talk.route = replace(own, scope="used meanwhile")
                talk.send(body)
            talk.route = replace(own, scope=f"team {number}")
            talk.send(chat(user("a")), after_s=0.0)
        reads = []
        for scope in ("team", "used meanwhile"):
            talk.route = replace(own, scope=scope)
            plan = talk.plan(body)
            reads.append(plan.predicted.read > 0)
        assert reads == [False, True]

    def test_tiers_add_up(self) -> None:
        for plan in editing(Talk()):
            assert sum(plan.segment_tokens.values()) == plan.predicted.total
            assert "unmarked" in plan.segment_tokens


def test_a_clock_in_the_system_prompt_costs_no_hit() -> None:
    talk, turns = Talk(), []
    plans = []
    for number in range(6):
        clock = f"Current date and time: 2026-01-01 10:0{number}:00\n"
        plans.append(talk.send(chat(system(lines(20) + clock + lines(20)), *turns, user(f"q{number}"))))
        turns += exchange(number)
    assert all(
        read > 0.6 * plan.predicted.total
        for read, plan in zip(reads(plans)[2:], plans[2:], strict=True)
        if plan.predicted
    )


def test_where_every_prefix_is_stored_the_head_of_an_edited_file_is_read_again() -> None:
    talk = Talk(profile=replace(OPENAI, min_tokens=1, step=1))
    lines_of = [f"line {number} of a file that is long enough\n" for number in range(400)]
    turns: list[Body] = []
    read = []
    for number in range(4):
        file = File("a.py", "".join([*lines_of[:300], f"edit {number}\n", *lines_of[300:]]))
        plan = talk.send(chat(SYSTEM, *turns, *shown(file, File("b.py", "b = 1\n")), user(f"q{number}")))
        turns += [user(f"q{number}"), assistant(f"a{number}")]
        read.append(plan.predicted.read / plan.predicted.total)
    assert all(share > 0.5 for share in read[2:])

"""What each mode sends, and the control sessions of a hold-out."""

import json
from dataclasses import replace

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.planner.plan import PlannerOptions
from proxy.protocol.request import Inset
from tests.edited_talks import SYSTEM, editing
from tests.talk import Talk, assistant, chat, marks_in, sent, user


class TestModes:
    def test_passthrough_sends_the_clients_bytes(self) -> None:
        raw = json.dumps(chat(SYSTEM, user("a")), indent=1).encode()
        plan = Talk(mode=Mode.PASSTHROUGH).send(raw)
        assert plan.body is raw
        assert (plan.reason, plan.rewritten) == (Reason.PASSTHROUGH_MODE, False)

    def test_observe_plans_and_sends_the_clients_bytes(self) -> None:
        talk = Talk(mode=Mode.OBSERVE)
        plans = editing(talk)
        assert all(plan.body == plan.original and not plan.rewritten for plan in plans)
        assert {plan.reason for plan in plans} == {Reason.OBSERVE_MODE}
        last = plans[-1]
        assert last.predicted.read > last.own.read

    def test_mark_keeps_the_order(self) -> None:
        for plan in editing(Talk(mode=Mode.MARK)):
            original, body = json.loads(plan.original), sent(plan)
            assert [m["role"] for m in body["messages"]] == [m["role"] for m in original["messages"]]
            assert marks_in(body)

    def test_tier_moves_what_is_stable_forward(self) -> None:
        plans = editing(Talk())
        assert {plan.reason for plan in plans[2:]} <= {Reason.ORDERED, Reason.KEPT}
        texts = [json.dumps(m["content"]) for m in sent(plans[-1])["messages"]]
        place = {f: next(i for i, t in enumerate(texts) if f"{f}.py" in t) for f in "abc"}
        assert max(place["a"], place["c"]) < place["b"]
        assert all(len(marks_in(sent(plan))) <= 4 for plan in plans)


class TestHoldOut:
    def talk(self, share: float, mode: Mode = Mode.TIER) -> Talk:
        return Talk(mode=mode, options=PlannerOptions(holdout=share))

    def test_a_control_is_left_alone_and_says_so(self) -> None:
        talk = self.talk(1.0)
        plans = editing(talk)
        assert {(p.reason, p.mode, p.arm) for p in plans} == {(Reason.HOLD_OUT, Mode.OBSERVE, "control")}
        assert all(
            p.body == p.original and not p.rewritten and not p.tier_tokens and not p.segment_tokens for p in plans
        )
        assert [p.predicted for p in plans] == [p.own for p in plans]

    @pytest.mark.slow
    def test_a_share_of_the_sessions_and_all_requests_of_each(self) -> None:
        talk, arms = self.talk(0.3), []
        for number in range(100):
            turns = [SYSTEM, user(f"session {number}")]
            first = talk.send(chat(*turns))
            again = talk.send(chat(*turns, assistant(f"answer {number}"), user("b")))
            assert first.arm == again.arm
            arms.append(first.arm)
        assert 15 <= arms.count("control") <= 45
        assert arms.count("treated") == 100 - arms.count("control")

    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PASSTHROUGH])
    def test_modes_that_change_nothing_have_no_arms(self, mode: Mode) -> None:
        plan = self.talk(1.0, mode).send(chat(SYSTEM, user("a")))
        assert (plan.arm, plan.reason is Reason.HOLD_OUT) == ("", False)

    def test_a_control_gets_the_reminder_too(self) -> None:
        talk = self.talk(1.0)
        talk.route = replace(talk.route, inset=Inset(after="Be brief."))
        plan = talk.send(chat(SYSTEM, user("a")))
        assert plan.reason is Reason.HOLD_OUT
        assert sent(plan)["messages"] == [SYSTEM, user("a\n\nBe brief.")]

    def test_without_a_hold_out_there_is_none(self) -> None:
        assert {plan.arm for plan in editing(Talk())} == {""}

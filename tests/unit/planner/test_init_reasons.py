"""Why a plan is what it is."""

import json

import pytest

from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Mode, Reason
from proxy.planner import TierPlanner
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from tests.edited_talks import SYSTEM
from tests.talk import MARK, TINY, Talk, assistant, chat, lines, system, text_part, user


class TestReasons:
    def test_below_the_minimum_the_clients_request_goes_out(self) -> None:
        raw = json.dumps(chat(system("short"), user("hi")), indent=2).encode()
        plan = Talk(profile=ANTHROPIC).send(raw)
        assert (plan.reason, plan.body, plan.rewritten) == (Reason.BELOW_MINIMUM, raw, False)

    def test_an_append_only_chat_is_marked_where_it_will_be_read(self) -> None:
        talk, turns = Talk(), [SYSTEM]
        for number in range(5):
            turns += [user(lines(10, f"q{number}"))]
            plan = talk.send(chat(*turns))
            assert plan.reason is Reason.MARKED
            turns += [assistant(lines(5, f"a{number}"))]
        assert plan.predicted.read > 0.7 * plan.predicted.total

    def test_a_client_that_marks_well_is_left_alone(self) -> None:
        talk, turns = Talk(), [system([text_part(lines(40), **MARK)])]
        plans = []
        for number in range(4):
            answer = [assistant([text_part(lines(5, f"a{number}"), **MARK)])] if number else []
            plans.append(talk.send(chat(*turns, *answer, user([text_part(lines(10, f"q{number}"), **MARK)]))))
            turns += [*([assistant(lines(5, f"a{number}"))] if number else []), user(lines(10, f"q{number}"))]
        assert {plan.reason for plan in plans[1:]} == {Reason.CLIENT_OPTIMAL}
        assert all(plan.body == plan.original for plan in plans)

    @pytest.mark.parametrize(
        "body",
        [
            b'{"model":"m","messages":[1]}',
            b'{"model":"m","messages":[{}]}',
            b'{"model":"m","messages":[{"role":"user","content":{}}]}',
            b'{"model":"m","tools":{},"messages":[{"role":"user","content":"a"}]}',
            b'{"model":"m","x":NaN,"messages":[{"role":"user","content":"a"}]}',
        ],
    )
    def test_what_cannot_be_read_goes_out_as_it_came(self, body: bytes) -> None:
        plan = Talk().send(body)
        assert (plan.reason, plan.body) == (Reason.UNREADABLE, body)

    def test_what_is_no_chat_request_is_refused(self) -> None:
        with pytest.raises(InvalidRequest):
            Talk().plan(b'{"model":"m"}')

    def test_an_error_of_ours_is_contained(self) -> None:
        class Broken:
            name, priority = "broken", 1

            def recognise(self, role: str, text: str) -> None:
                raise ZeroDivisionError("ours")

        planner = TierPlanner(bytes_over_four, [Broken()])
        raw = json.dumps(chat(SYSTEM, user("a"))).encode()
        plan = planner.plan(raw, Route(scope="s", name="m", model="x", profile=TINY), Mode.TIER, 1.0)
        assert isinstance(plan.surprise, ZeroDivisionError)
        assert (plan.reason, plan.body) == (Reason.INTERNAL_ERROR, raw.replace(b'"model": "m"', b'"model": "x"'))

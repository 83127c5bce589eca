"""Plans by the cache rules of different providers."""

from dataclasses import replace

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, EMBEDDED, NONE, OPENAI, OPENAI_EXPLICIT, CacheProfile
from proxy.protocol.request.reader import Route
from tests.edited_talks import SYSTEM, exchange
from tests.fidelity.chats import File
from tests.talk import (
    MARK,
    Body,
    Talk,
    analysis_of,
    assistant,
    calling,
    chat,
    lines,
    marks_in,
    result,
    sent,
    shown,
    system,
    text_part,
    tool,
    user,
)


class TestProfiles:
    @pytest.mark.parametrize("profile", [OPENAI, DEEPSEEK])
    def test_a_provider_without_markers_gets_none(self, profile: CacheProfile) -> None:
        body = chat(
            system([text_part(lines(200), **MARK)]), user(lines(200), **MARK), assistant("b"), user("go"),
            tools=[tool("t", **MARK)],
        )  # fmt: skip
        plan = Talk(profile=profile).send(body)
        assert marks_in(sent(plan)) == []

    def test_what_an_order_saves_in_requests_after_the_next_one_counts(self) -> None:
        # Writing costs nothing there: the first request is as good as any to lay the files out.
        files = [File(f"{name}.py", lines(10, name)) for name in "abcdefghijkl"]
        plan = Talk(profile=DEEPSEEK).send(chat(SYSTEM, *shown(*files), user("Please edit a.py.")))
        assert plan.reason is Reason.ORDERED

    def test_where_nothing_is_known_the_markers_of_a_client_stay(self) -> None:
        body = chat(system([text_part(lines(200), **MARK)]), user("a"), assistant("b"), user("go"))
        plan = Talk(profile=NONE).send(body)
        assert (sent(plan), plan.reason, plan.predicted) == (body, Reason.MARKS_WITHOUT_PROFILE, None)
        for mode in (Mode.MARK, Mode.OBSERVE):
            assert Talk(profile=NONE, mode=mode).send(body).reason is Reason.MARKS_WITHOUT_PROFILE

    @pytest.mark.parametrize("profile", [OPENAI, DEEPSEEK, NONE, OPENAI_EXPLICIT, ANTHROPIC])
    def test_the_name_and_the_options_are_edited_whatever_happens(self, profile: CacheProfile) -> None:
        talk = Talk(profile=profile)
        talk.route = replace(talk.route, model="provider/x")
        for text in ("short", lines(300)):
            body = sent(talk.send(chat(system(text), user("a"), stream=True, stratiform={"x": 1})))
            assert (body["model"], body["stream_options"]) == ("provider/x", {"include_usage": True})
            assert "stratiform" not in body

    def test_at_most_four_markers_whatever_the_client_sends(self) -> None:
        tools = [tool(f"t{n}", **MARK) for n in range(3)]
        tools[2]["function"] |= MARK
        loop = [m for n in range(4) for m in (calling(f"{n}"), result(f"{n}", [text_part(lines(9), **MARK)], **MARK))]
        for mode in (Mode.MARK, Mode.TIER):
            body = chat(SYSTEM, user(lines(20)), *loop[:2], tools=tools[:1])
            assert len(marks_in(sent(Talk(mode=mode).send(body)))) <= 4
        crowded = chat(system([text_part(lines(40), **MARK)]), user(lines(20)), *loop, tools=tools)
        plan = Talk().send(crowded)
        assert plan.body == plan.original or len(marks_in(sent(plan))) <= 4

    def test_a_marker_on_the_whole_request_takes_a_slot(self) -> None:
        turns: list[Body] = [m for n in range(5) for m in (user(lines(20, f"q{n}")), assistant(lines(9, f"a{n}")))]
        body = chat(SYSTEM, *turns, user("go"), **MARK)
        assert len(marks_in(sent(Talk().send(body)))) <= 3

    def test_the_clients_hour_is_kept(self) -> None:
        hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        talk, turns = Talk(), []
        for number in range(4):
            plan = talk.send(chat(system([text_part(lines(40), **hour)]), *turns, user(lines(30, f"q{number}"))))
            turns += [user(lines(30, f"q{number}")), assistant(lines(5, "a"))]
            lives = [p["cache_control"] for m in sent(plan)["messages"] for p in m["content"] if "cache_control" in p]
            assert lives[0] == hour["cache_control"]
            assert lives[1:] == [{"type": "ephemeral"}] * (len(lives) - 1)

    def test_the_clients_hour_on_a_short_head_stays_there_and_takes_a_slot(self) -> None:
        hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        talk, turns = Talk(), []
        for number in range(6):
            plan = talk.send(chat(system([text_part("Be kind.", **hour)]), *turns, user(lines(60, f"q{number}"))))
            turns += [user(lines(60, f"q{number}")), assistant(lines(5, "a"))]
            written = [part for m in sent(plan)["messages"] if isinstance(m["content"], list) for part in m["content"]]
            lives = [part["cache_control"].get("ttl", "5m") for part in written if "cache_control" in part]
            assert lives == ["1h", "5m", "5m", "5m"][: 2 * number + 2]

    def test_an_hour_that_the_client_asks_for_twice_is_kept_up_to_the_later_place(self) -> None:
        hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        head, first = system([text_part(lines(40), **hour)]), user([text_part(lines(40, "q"), **hour)])
        plan = Talk().send(chat(head, first, assistant(lines(5, "a")), user(lines(30, "b"))))
        assert plan.predicted.write_1h > plan.predicted.total / 2


class TestClassic:
    @pytest.mark.parametrize(("minimum", "target"), [(1, 1126), (4096, 4505)])
    def test_tiers_are_as_large_as_the_model_caches(self, minimum: int, target: int) -> None:
        talk = Talk(profile=replace(ANTHROPIC, min_tokens=minimum))
        plan = talk.plan(chat(SYSTEM, user("a")))
        assert analysis_of(plan).session.tracker.policy.target_tokens == target

    def test_clock_and_documents_move_under_a_reminder_too(self) -> None:
        talk, turns = Talk(policy="classic"), []
        for number in range(5):
            text = f'{lines(40)}Current time: 2026-01-01 10:0{number}\n<doc id="1">one</doc>\nBe brief.\n'
            plan = talk.send(chat(system(text), *turns, user(f"q{number}")))
            turns += exchange(number)
        assert "<stratiform-context>" in plan.body.decode()

    @pytest.mark.parametrize("accepts_first", [False, True])
    def test_a_provider_that_refuses_routing_keys_twice_gets_none_unless_it_has_taken_one(
        self, *, accepts_first: bool
    ) -> None:
        talk = Talk(profile=OPENAI, route=Route("team", "m", "m", OPENAI, server=EMBEDDED))
        bodies = [chat(system(lines(200, name)), user(name)) for name in "abcd"]
        if accepts_first:
            talk.send(bodies[0])
        for body in bodies[1:3]:
            plan = talk.plan(body)
            assert "prompt_cache_key" in sent(plan)
            talk.planner.barred(plan)
        assert ("prompt_cache_key" in sent(talk.plan(bodies[3]))) is accepts_first

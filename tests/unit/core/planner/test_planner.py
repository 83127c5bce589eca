import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.core.modes import Mode
from proxy.core.planner.options import PlannerOptions
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.prompts.inset import Inset
from proxy.core.prompts.turn_texts import Again
from proxy.core.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT, PROFILES, CacheProfile
from proxy.core.reasons import Reason
from proxy.core.request.route import Route
from proxy.core.request.tokens import bytes_over_four
from proxy.errors import InvalidRequest
from tests.examples import sampled
from tests.fidelity.chats import File
from tests.talk import (
    MARK,
    TINY,
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

SYSTEM = system(lines(40, "rule"))
A, B, C = (File(f"{name}.py", lines(60, name)) for name in "abc")


def exchange(number: int) -> list[Body]:
    return [user(f"question {number}"), assistant(lines(3, f"answer {number}"))]


def editing(talk: Talk, requests: int = 6) -> list[Plan]:
    """A chat with three files; one of them is edited with each request."""
    plans, turns = [], []
    for number in range(requests):
        changed = File("b.py", lines(60, "b") + f"edit {number}\n")
        body = chat(SYSTEM, *turns, *shown(changed, A, C), user(f"question {number}"))
        plans.append(talk.send(body))
        turns += exchange(number)
    return plans


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
        assert last.predicted is not None
        assert last.own is not None
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
        assert plan.predicted is not None
        assert plan.predicted.read > 0.7 * plan.predicted.total

    def test_a_client_that_marks_well_is_left_alone(self) -> None:
        talk, turns = Talk(), [system([text_part(lines(40), **MARK)])]
        plans = []
        for number in range(4):
            newest = user([text_part(lines(10, f"q{number}"), **MARK)])
            plans.append(talk.send(chat(*turns, newest)))
            turns += [user(lines(10, f"q{number}")), assistant(lines(5, f"a{number}"))]
        assert {plan.reason for plan in plans[1:]} == {Reason.CLIENT_OPTIMAL}
        assert all(plan.body == plan.original for plan in plans)

    def test_the_layout_of_the_request_before_goes_on(self) -> None:
        talk = Talk()
        editing(talk, 4)
        turns = [m for n in range(4) for m in exchange(n)]
        last = File("b.py", lines(60, "b") + "edit 3\n")
        plan = talk.send(chat(SYSTEM, *turns, *shown(last, A, C), user("question 4")))
        assert plan.reason is Reason.KEPT

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


class TestLife:
    def test_a_refused_session_is_left_alone(self) -> None:
        talk = Talk()
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

    def test_nothing_is_learnt_from_a_request_that_was_never_accepted(self) -> None:
        talk = Talk()
        first = talk.plan(chat(SYSTEM, user("a")))
        second = talk.plan(chat(SYSTEM, user("a")))
        assert first.body == second.body
        assert second.predicted is not None
        assert second.predicted.read == 0

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
            counts.append(max(tracker.n(key) for key in tracker.state()[0]))
        assert counts[1] == counts[0]

    def test_one_that_goes_on_from_a_request_that_ended_meanwhile_counts(self) -> None:
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
        assert max(tracker.n(key) for key in tracker.state()[0]) == 1

    def test_a_retry_counts_once(self) -> None:
        talk = Talk()
        body = chat(SYSTEM, *shown(A), user("a"))
        for _ in range(8):
            talk.send(body)
        talk.send(body)
        assert list(talk.results[-1].moves) == []

    def test_a_request_that_is_sent_twice_at_once_counts_once(self) -> None:
        def moves(copies: int) -> list[set[tuple[str, str]]]:
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

    def test_what_expired_is_not_counted_on(self) -> None:
        talk = Talk()
        talk.send(chat(SYSTEM, user("a")))
        warm = talk.plan(chat(SYSTEM, user("a"), assistant("b"), user("c")))
        talk.now += 10_000
        cold = talk.plan(chat(SYSTEM, user("a"), assistant("b"), user("c")))
        assert warm.predicted is not None
        assert cold.predicted is not None
        assert (warm.predicted.read > 0, cold.predicted.read) == (True, 0)

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
        assert meanwhile.predicted is not None
        assert afterwards.predicted is not None
        assert (meanwhile.predicted.read, afterwards.predicted.read > 0) == (0, True)

    def test_moves_are_reported_when_the_exchange_is_settled(self) -> None:
        talk = Talk()
        editing(talk, 6)
        moves = [(m.key, m.source, m.target, m.reason) for each in talk.results for m in each.moves]
        assert ("aider:files/file:a.py", "ACTIVE", "L3", "unchanged") in moves
        assert not any("b.py" in key for key, *_ in moves)

    def test_what_one_team_cached_is_no_other_teams(self) -> None:
        talk = Talk()
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
            assert plan.predicted is not None
            reads.append(plan.predicted.read > 0)
        assert reads == [False, True]

    def test_tiers_add_up(self) -> None:
        for plan in editing(Talk()):
            assert plan.predicted is not None
            assert sum(plan.segment_tokens.values()) == plan.predicted.total
            assert "unmarked" in plan.segment_tokens

    def test_two_planners_say_the_same(self) -> None:
        one, other = editing(Talk()), editing(Talk())
        assert [plan.body for plan in one] == [plan.body for plan in other]


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
        files = [File(f"{name}.py", lines(10, name)) for name in "abcd"]
        plan = Talk(profile=DEEPSEEK).send(chat(SYSTEM, *shown(*files), user("question")))
        assert plan.reason is Reason.ORDERED

    def test_where_nothing_is_known_the_markers_of_a_client_stay(self) -> None:
        body = chat(system([text_part(lines(200), **MARK)]), user("a"), assistant("b"), user("go"))
        plan = Talk(profile=NONE).send(body)
        assert (sent(plan), plan.reason, plan.predicted) == (body, Reason.MARKS_WITHOUT_PROFILE, None)
        for mode in (Mode.MARK, Mode.OBSERVE):
            assert Talk(profile=NONE, mode=mode).send(body).reason is Reason.MARKS_WITHOUT_PROFILE

    def test_the_other_dialect(self) -> None:
        plan = Talk(profile=OPENAI_EXPLICIT).send(chat(system(lines(200)), user(lines(100))))
        assert "cache_control" not in plan.body.decode()
        assert marks_in(sent(plan))[-1] == "1.0"

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

    def test_mark_mode_never_adds_a_fifth(self) -> None:
        talk = Talk(mode=Mode.MARK)
        turns: list[Body] = [SYSTEM]
        for number in range(8):
            users = [
                user([text_part(lines(9, f"q{n}"), **(MARK if n > number - 4 else {}))]) for n in range(number + 1)
            ]
            turns = [SYSTEM]
            for n, each in enumerate(users):
                turns += [each, assistant(lines(3, f"a{n}"))]
            body = sent(talk.send(chat(*turns[:-1])))
            assert len(marks_in(body)) <= 4
            assert set(marks_in(chat(*turns[:-1]))) <= set(marks_in(body))

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
            assert lives == ["1h", "5m", "5m", "5m"][: number + 2]

    def test_an_hour_that_the_client_asks_for_twice_is_kept_up_to_the_later_place(self) -> None:
        hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        head, first = system([text_part(lines(40), **hour)]), user([text_part(lines(40, "q"), **hour)])
        plan = Talk().send(chat(head, first, assistant(lines(5, "a")), user(lines(30, "b"))))
        assert plan.predicted is not None
        assert plan.predicted.write_1h > plan.predicted.total / 2


USER_BRIEF = b'{"role":"user","content":"one\\n\\nBe brief."}'


class TestInset:
    def talk(self, mode: Mode = Mode.TIER, profile: CacheProfile = TINY) -> Talk:
        talk = Talk(profile=profile, mode=mode)
        talk.route = replace(talk.route, inset=Inset(after="Be brief."))
        return talk

    @pytest.mark.parametrize("mode", [Mode.MARK, Mode.TIER])
    @pytest.mark.parametrize("text", ["short", lines(300)])
    def test_stands_behind_the_last_user_message(self, mode: Mode, text: str) -> None:
        plan = self.talk(mode, ANTHROPIC).send(chat(system(text), user("one"), assistant("1"), user("two")))
        last = sent(plan)["messages"][-1]["content"]
        assert (last if isinstance(last, str) else last[-1]["text"]) == "two\n\nBe brief."
        assert "Be brief." not in json.dumps(sent(plan)["messages"][:-1])

    def test_in_passthrough_it_is_written_without_a_plan(self) -> None:
        raw = json.dumps(chat(system(lines(300)), user("one"), odd=1.0), indent=1).encode()
        plan = self.talk(Mode.PASSTHROUGH).plan(raw)
        assert plan.body is plan.original
        assert plan.body == raw.replace(b'{\n   "role": "user",\n   "content": "one"\n  }', USER_BRIEF)

    def test_a_request_that_cannot_be_read_gets_it_too(self) -> None:
        odd = chat(SYSTEM, {"role": "assistant", "content": 7}, user("one"))
        plan = self.talk().plan(odd)
        assert plan.reason is Reason.UNREADABLE
        assert sent(plan)["messages"] == [*odd["messages"][:2], user("one\n\nBe brief.")]

    @pytest.mark.parametrize("mode", [Mode.PASSTHROUGH, Mode.OBSERVE, Mode.MARK, Mode.TIER])
    def test_texts_stand_around_the_newest_user_message_and_those_of_before_around_theirs(self, mode: Mode) -> None:
        talk = Talk(mode=mode)
        earlier = {1: Inset("then", ""), 2: Inset("no user", ""), 9: Inset("nobody", ""), 3: Inset("newest", "")}
        talk.route = replace(talk.route, inset=Inset("in front", "behind"), earlier=earlier)
        plan = talk.send(chat(system("s"), user("a"), assistant("b"), user("c")))
        for body in (plan.body, plan.original):
            texts = [m["content"] for m in json.loads(body)["messages"]]
            flat = [text if isinstance(text, str) else text[0]["text"] for text in texts]
            assert flat == ["s", "then\n\na", "b", "in front\n\nc\n\nbehind"]

    def test_texts_of_earlier_turns_stay_out_where_a_context_window_was_counted_without_them(self) -> None:
        talk = Talk(options=PlannerOptions(texts_again=Again.ALWAYS))
        talk.route = replace(talk.route, inset=Inset("in front"))
        turns = [user("q"), assistant("a"), user("r")]
        talk.send(chat(*turns[:1]))
        for may_repeat, first in ((False, "q"), (True, "in front\n\nq")):
            talk.route = replace(talk.route, repeats=may_repeat)
            assert json.loads(talk.plan(chat(*turns)).original)["messages"][0] == user(first)

    def test_one_session_whatever_texts_are_written_into_it(self) -> None:
        talk, turns, sessions = Talk(), [SYSTEM], set()
        for number in range(4):
            talk.route = replace(talk.route, inset=Inset(f"text {number}", "behind"))
            sessions.add(talk.send(chat(*turns, user(f"q{number}"))).session)
            turns += [user(f"q{number}"), assistant("ok")]
        assert len(sessions) == 1

    def test_white_space_between_messages_stays(self) -> None:
        talk = self.talk(Mode.TIER, OPENAI)
        raw = json.dumps(chat(system(lines(300)), user("one")), indent=1).encode()
        plan = talk.send(raw)
        assert plan.body.split(b'"messages"')[1].startswith(b": [\n  {\n   ")

    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.MARK, Mode.TIER])
    @pytest.mark.parametrize("profile", sampled([TINY, ANTHROPIC, OPENAI, NONE], 2))
    @pytest.mark.parametrize("is_marked", [False, True])
    @pytest.mark.parametrize("is_barred", [False, True])
    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_a_reminder_goes_out_once_whatever_is_planned(
        self, mode: Mode, profile: CacheProfile, is_marked: bool, is_barred: bool, share: float
    ) -> None:
        talk = Talk(profile=profile, mode=mode, options=PlannerOptions(holdout=share, texts_again=Again.NEVER))
        talk.route = replace(talk.route, inset=Inset(after="Be brief."))
        head = [text_part(lines(300), **MARK)] if is_marked else lines(300)
        turns = [system(head)]
        for number in range(3):
            raw = json.dumps(chat(*turns, user(f"q{number}")), indent=1).encode()
            plan = talk.send(raw)
            added = f"q{number}\\n\\nBe brief.".encode()
            expected = raw.replace(b'"q%d"' % number, b'"' + added + b'"')
            assert json.loads(plan.original) == json.loads(expected)
            front = raw.rindex(b"{")
            assert plan.original[:front] == raw[:front]
            assert plan.body.count(b"Be brief.") == plan.body.count(added) == 1
            if is_barred:
                talk.planner.barred(plan)
            turns += [user(f"q{number}"), assistant("ok")]

    def test_inside_a_tool_loop_a_reminder_stays_where_it_was(self) -> None:
        talk, loop = self.talk(), [SYSTEM, user("one")]
        bodies = []
        for number in range(3):
            bodies.append(sent(talk.send(chat(*loop))))
            loop += [calling(str(number)), result(str(number), lines(9))]
        assert all("Be brief." in json.dumps(b["messages"][1]) for b in bodies)

    def test_the_turn_that_loses_a_reminder_is_not_counted_on(self) -> None:
        talk, turns = Talk(options=PlannerOptions(texts_again=Again.NEVER)), [SYSTEM]
        talk.route = replace(talk.route, inset=Inset(after="Be brief."))
        for number in range(6):
            plan = talk.send(chat(*turns, user(lines(40, f"q{number}"))))
            assert plan.predicted is not None
            turns += [user(lines(40, f"q{number}")), assistant("ok")]
        # Everything before the last user message of the request before is read, that message itself is not.
        last = json.loads(plan.original)["messages"]
        repeated = sum((len(m["content"]) + 3) // 4 + 4 for m in last[:-3])
        assert 0.9 * repeated <= plan.predicted.read <= repeated


def said_of(body: Body) -> list[str]:
    """The texts of a request's messages, whatever their form."""
    contents = [message["content"] or "" for message in body["messages"]]
    return [text if isinstance(text, str) else "".join(part["text"] for part in text) for text in contents]


class TestTextsOfEarlierTurns:
    """Texts that were sent with a turn, when the client sends the turn again as part of its conversation."""

    SMALL = Inset(after="Be brief.")
    LONG = Inset(lines(200, "wish"))

    def agent(self, talk: Talk, inset: Inset, turns: int = 3) -> tuple[list[Plan], list[Body]]:
        """An agent that reads two files for each question."""
        talk.route, plans, messages = replace(talk.route, inset=inset), [], [SYSTEM]
        for number in range(turns):
            messages.append(user(f"q{number}"))
            for step in range(3):
                talk.now += 5
                plans.append(talk.send(chat(*messages)))
                call = f"c{number}{step}"
                messages += [calling(call), result(call, lines(60, call))] if step < 2 else [assistant("done")]
        return plans, messages

    @pytest.mark.parametrize("profile", [TINY, OPENAI, DEEPSEEK, NONE])
    @pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.MARK, Mode.TIER])
    def test_a_small_text_in_front_of_long_work_is_sent_again(self, profile: CacheProfile, mode: Mode) -> None:
        is_marked = profile is TINY and mode is Mode.OBSERVE
        plans, _ = self.agent(Talk(profile=profile, mode=mode), self.SMALL)
        # Where nothing is marked, nothing is stored, and nothing is gained.
        assert [plan.body.count(b"Be brief.") for plan in plans[::3]] == ([1, 1, 1] if is_marked else [1, 2, 3])
        for plan in plans:
            assert said_of(json.loads(plan.original)) == said_of(sent(plan))

    def test_then_the_whole_conversation_is_read(self) -> None:
        again, _ = self.agent(Talk(), self.SMALL)
        never, _ = self.agent(Talk(options=PlannerOptions(texts_again=Again.NEVER)), self.SMALL)
        assert again[6].predicted is not None
        assert never[6].predicted is not None
        assert again[6].predicted.read > 0.9 * again[5].predicted.total
        assert never[6].predicted.read < 0.7 * again[6].predicted.read

    def test_a_long_text_in_front_of_a_short_answer_is_not(self) -> None:
        talk, turns = Talk(), [SYSTEM]
        talk.route = replace(talk.route, inset=self.LONG)
        for number in range(4):
            plan = talk.send(chat(*turns, user(f"q{number}")))
            assert plan.body.count(b"wish 7 of") == 1
            turns += [user(f"q{number}"), assistant("ok")]

    def test_another_session_of_the_same_words_and_another_team_get_nothing_of_it(self) -> None:
        talk = Talk()
        _, messages = self.agent(talk, self.SMALL)
        talk.route = replace(talk.route, inset=Inset())
        assert talk.plan(chat(*messages, user("on"))).body.count(b"Be brief.") == 3
        assert talk.plan(chat(*messages[:2], assistant("other"), user("on"))).body.count(b"Be brief.") <= 1
        talk.route = replace(talk.route, scope="other")
        assert b"Be brief." not in talk.plan(chat(*messages, user("on"))).body

    def test_what_was_not_sent_well_is_not_remembered(self) -> None:
        talk = Talk()
        talk.route = replace(talk.route, inset=self.SMALL)
        loop = [SYSTEM, user("a"), calling("1"), result("1", lines(90)), assistant("done")]
        talk.plan(chat(*loop[:4]))
        assert talk.plan(chat(*loop, user("b"))).body.count(b"Be brief.") == 1

    def test_the_choice_stays_as_it_was_made(self) -> None:
        talk = Talk()
        _, messages = self.agent(talk, self.SMALL, turns=2)
        talk.now += 100_000
        counts = []
        for number in range(3):
            messages.append(user(f"later {number}"))
            counts.append(talk.send(chat(*messages)).body.count(b"Be brief."))
            messages.append(assistant("ok"))
        assert counts[0] >= 2
        assert counts[1] >= counts[0]

    def test_a_message_of_the_client_that_changed_has_no_text_of_before(self) -> None:
        talk = Talk()
        _, messages = self.agent(talk, self.SMALL, turns=2)
        edited = [*messages[:1], user("q0, edited"), *messages[2:], user("on")]
        assert talk.plan(chat(*edited)).body.count(b"Be brief.") == 1


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


class TestClassic:
    @pytest.mark.parametrize(("minimum", "target"), [(1, 1126), (4096, 4505)])
    def test_tiers_are_as_large_as_the_model_caches(self, minimum: int, target: int) -> None:
        talk = Talk(profile=replace(ANTHROPIC, min_tokens=minimum))
        plan = talk.plan(chat(SYSTEM, user("a")))
        assert analysis_of(plan).session.tracker.policy.target_tokens == target

    def test_lays_out_by_tiers(self) -> None:
        plans = editing(Talk(policy="classic"), 8)
        texts = [json.dumps(m["content"]) for m in sent(plans[-1])["messages"]]
        place = {f: next(i for i, t in enumerate(texts) if f"{f}.py" in t) for f in "abc"}
        assert max(place["a"], place["c"]) < place["b"]

    def test_clock_and_documents_move_under_a_reminder_too(self) -> None:
        talk, turns = Talk(policy="classic"), []
        for number in range(5):
            text = f'{lines(40)}Current time: 2026-01-01 10:0{number}\n<doc id="1">one</doc>\nBe brief.\n'
            plan = talk.send(chat(system(text), *turns, user(f"q{number}")))
            turns += exchange(number)
        assert "<stratiform-context>" in plan.body.decode()


def reads(plans: Sequence[Plan]) -> list[int]:
    return [plan.predicted.read if plan.predicted else 0 for plan in plans]


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
        assert plan.predicted is not None
        read.append(plan.predicted.read / plan.predicted.total)
    assert all(share > 0.5 for share in read[2:])

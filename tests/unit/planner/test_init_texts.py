"""The operator's texts stand around the newest turn, and are sent again with earlier ones where that is cheaper."""

import json
from dataclasses import replace

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.planner.observation import Again
from proxy.planner.plan import Plan, PlannerOptions
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, CacheProfile
from proxy.protocol.request import Inset
from tests.edited_talks import SYSTEM
from tests.examples import sampled
from tests.talk import MARK, TINY, Body, Talk, assistant, calling, chat, lines, result, sent, system, text_part, user

USER_BRIEF = b'{"role":"user","content":"one\\n\\nBe brief."}'


class TestInset:
    def talk(self, mode: Mode = Mode.TIER, profile: CacheProfile = TINY) -> Talk:
        talk = Talk(profile=profile, mode=mode)
        talk.route = replace(talk.route, inset=Inset(after="Be brief."))
        return talk

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

    def test_where_texts_are_sent_again_the_whole_conversation_is_read(self) -> None:
        again, _ = self.agent(Talk(), self.SMALL)
        never, _ = self.agent(Talk(options=PlannerOptions(texts_again=Again.NEVER)), self.SMALL)
        assert again[6].predicted.read > 0.9 * again[5].predicted.total
        assert never[6].predicted.read < 0.7 * again[6].predicted.read

    def test_a_long_text_in_front_of_a_short_answer_is_not_sent_again(self) -> None:
        talk, turns = Talk(), [SYSTEM]
        talk.route = replace(talk.route, inset=self.LONG)
        for number in range(4):
            plan = talk.send(chat(*turns, user(f"q{number}")))
            assert plan.body.count(b"wish 7 of") == 1
            turns += [user(f"q{number}"), assistant("ok")]

    def test_another_session_of_the_same_words_and_another_team_get_no_text_of_a_turn(self) -> None:
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

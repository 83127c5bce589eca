from dataclasses import dataclass, field

import pytest

from proxy.planner.change_rates import EVERYTHING, STATIC_CHANGE, HistoryDivergence
from proxy.planner.observation import RequestObservation, commit_preamble, commit_reading, read_request
from proxy.planner.session import Session, SessionTable
from proxy.protocol.request.message import Message
from proxy.protocol.request.transcript import RecognisedRequest, Transcript, recognise_request
from tests.fidelity.chats import File
from tests.talk import Body, assistant, calling, lines, read, result, shown, system, user

SYSTEM = system("You are kind.")
A, B = File("a.py", "a = 1\n"), File("b.py", "b = 1\n")
FENCED = "Here are the files:\n\nsrc/a.py\n```\n{}\n```\n"


@dataclass
class Clients:
    """A session table, and requests that settle at once."""

    table: SessionTable = field(default_factory=lambda: SessionTable(capacity_bytes=1 << 27, prefix="s"))
    now: float = 0.0

    def find(
        self, *messages: Body, scope: str = "team", model: str = "m", hint: str = "", tools: bytes = b""
    ) -> Session:
        return self.table.find(self.table.place(scope, model, hint, Transcript(read(messages)), tools))

    def send(
        self, *messages: Body, scope: str = "team", model: str = "m", hint: str = "", tools: bytes = b""
    ) -> tuple[Session, RequestObservation]:
        session = self.find(*messages, scope=scope, model=model, hint=hint, tools=tools)
        known = Transcript(read(messages))
        session.notice(known)
        recognised: RecognisedRequest = recognise_request(known, session.rendered_anew.__contains__)
        observation = read_request(session, recognised, tools, self.now)
        self.now += 10
        commit_reading(session, observation, self.now)
        commit_preamble(session, recognised)
        return session, observation


TURN = [user("one"), assistant("1")]


@pytest.fixture
def clients() -> Clients:
    return Clients()


class TestFind:
    @pytest.mark.parametrize("examples", [[], [user("e"), assistant("x"), user("f"), assistant("y")]])
    def test_a_client_that_takes_a_reminder_off_its_older_turns_has_one_session(self, examples: list[Body]) -> None:
        clients, turns, found = Clients(), list(examples), []
        for number in range(8):
            session, _ = clients.send(SYSTEM, *turns, user(f"{number}\n\nClose every block."))
            found.append(session)
            turns += [user(f"{number}"), assistant("done")]
        assert all(session is found[4] for session in found[4:])

    def test_examples_that_two_sessions_begin_with_do_not_make_them_one(self, clients: Clients) -> None:
        examples = [user("e"), assistant("x"), user("f"), assistant("y")]
        one, _ = clients.send(SYSTEM, *examples, user("one"))
        other, _ = clients.send(SYSTEM, *examples, user("other"))
        assert one is not other
        assert clients.send(SYSTEM, *examples, user("other"), assistant("z"), user("more"))[0] is other
        assert clients.send(SYSTEM, *examples, user("one"), assistant("y"), user("go on"))[0] is one

    @pytest.mark.parametrize("notes", [["date"], ["date", "mode"]])
    @pytest.mark.parametrize("is_prompt_first", [True, False])
    def test_a_conversation_that_begins_with_several_user_messages_is_one_session(
        self, clients: Clients, notes: list[str], is_prompt_first: bool
    ) -> None:
        sessions: dict[str, Session] = {}
        for step in range(3):
            for prompt in ("one", "other"):
                loop = [m for n in range(step) for m in (calling(f"{prompt}{n}"), result(f"{prompt}{n}", "x"))]
                opening = [user(prompt), *map(user, notes)] if is_prompt_first else [*map(user, notes), user(prompt)]
                session, _ = clients.send(SYSTEM, *opening, *loop, tools=b"t")
                assert sessions.setdefault(prompt, session) is session
                if step == 2:
                    later = [*loop, assistant(f"{prompt} is done"), user("more")]
                    assert clients.send(SYSTEM, *opening, *later, tools=b"t")[0] is session
        assert sessions["one"] is not sessions["other"]

    def test_a_retry_is_the_same_session_and_teaches_nothing(self, clients: Clients) -> None:
        first, _ = clients.send(SYSTEM, user("one"))
        again, observation = clients.send(SYSTEM, user("one"))
        assert first is again
        assert observation.is_retry
        assert (again.requests, again.cohort.started) == (1, 1)

    def test_a_branch_shares_the_trunk(self, clients: Clients) -> None:
        clients.send(SYSTEM, user("one"))
        trunk, _ = clients.send(SYSTEM, *TURN, user("two"), assistant("2"), user("three"))
        branch, observation = clients.send(SYSTEM, *TURN, user("two"), assistant("2"), user("three, but better"))
        assert trunk is branch
        assert observation.broke == HistoryDivergence(1)

    def test_a_conversation_that_was_trimmed_at_its_head_goes_on(self, clients: Clients) -> None:
        long = [m for n in range(5) for m in (user(f"q{n}"), assistant(f"a{n}"))]
        first, _ = clients.send(SYSTEM, *long, user("q5"))
        trimmed, observation = clients.send(SYSTEM, *long[6:], user("q5"), assistant("a5"), user("q6"))
        assert first is trimmed
        assert observation.broke == HistoryDivergence(EVERYTHING)

    def test_parallel_agents_under_one_system_prompt(self, clients: Clients) -> None:
        agents = {}
        for step in range(3):
            for name in ("red", "green"):
                loop = [m for n in range(step) for m in (calling(f"{name}{n}"), result(f"{name}{n}", "x"))]
                session, _ = clients.send(SYSTEM, user(f"paint it {name}"), *loop, tools=b"t")
                assert agents.setdefault(name, session) is session
        assert agents["red"] is not agents["green"]
        assert len(clients.table._sessions) == 2

    def test_context_between_the_turns_does_not_matter(self, clients: Clients) -> None:
        one, _ = clients.send(SYSTEM, *TURN, *shown(A), user("two"))
        other, observation = clients.send(SYSTEM, *TURN, user("two"), assistant("2"), *shown(B), user("three"))
        assert one is other
        assert observation.broke == HistoryDivergence(0)

    def test_scopes_and_models_are_kept_apart(self, clients: Clients) -> None:
        found = [
            clients.send(SYSTEM, user("one"), scope=scope, model=model)[0]
            for scope, model in (("team", "m"), ("other", "m"), ("team", "other"))
        ]
        assert len({id(s) for s in found}) == 3
        assert len({id(s.cohort) for s in found}) == 3

    def test_a_hint_decides(self, clients: Clients) -> None:
        one, _ = clients.send(SYSTEM, user("one"), hint="x")
        other, _ = clients.send(SYSTEM, user("one"), hint="y")
        again, _ = clients.send(SYSTEM, user("something else"), hint="x")
        assert one is again
        assert one is not other

    def test_a_side_call_with_the_same_first_turn_is_a_session_of_its_own(self, clients: Clients) -> None:
        title = system("Write a title for what the user says, in five words at most.")
        agent = system("You are a coding agent.\n" + lines(30) + "It is 10:01.")
        later = system("You are a coding agent.\n" + lines(30) + "It is 10:02.")
        main, _ = clients.send(agent, user("one"))
        side, _ = clients.send(title, user("one"))
        assert main is not side
        assert clients.send(later, *TURN, user("two"))[0] is main
        assert clients.send(title, user("one"))[0] is side
        assert clients.send(user("one"))[0] not in (main, side)

    def test_instructions_of_one_line_may_change_a_word(self, clients: Clients) -> None:
        first, _ = clients.send(system("You are kind. Answer in one sentence. It is 10:01."), user("one"))
        again, _ = clients.send(system("You are kind. Answer in one sentence. It is 10:02."), *TURN, user("two"))
        assert first is again

    @pytest.mark.parametrize("hint", ["", "x"])
    def test_a_conversation_without_its_tools_is_another_session(self, clients: Clients, hint: str) -> None:
        main, _ = clients.send(SYSTEM, user("one"), tools=b"t", hint=hint)
        assert clients.send(SYSTEM, user("one"), hint=hint)[0] is not main
        assert clients.send(SYSTEM, user("one"), tools=b"other tools", hint=hint)[0] is main

    def test_instructions_that_change_do_not_end_a_session_with_a_hint(self, clients: Clients) -> None:
        found = [clients.send(system(lines(30) + f"It is 10:0{n}."), user(f"q{n}"), hint="x")[0] for n in range(3)]
        assert found[0] is found[1] is found[2]

    def test_a_clock_in_the_system_prompt_does_not_split_a_cohort(self, clients: Clients) -> None:
        texts = (f"You are kind.\nCurrent time: 2026-01-01 10:0{n}\n" for n in range(2))
        one, other = (clients.send(system(text), user(text))[0] for text in texts)
        assert one is not other
        assert one.cohort is other.cohort

    @pytest.mark.slow
    def test_memory_is_bounded(self, clients: Clients) -> None:
        for number in range(4200):
            clients.find(SYSTEM, user(str(number)))
        assert len(clients.table._sessions) == 4096


class TestReading:
    def test_ages_count_requests_since_the_last_change(self, clients: Clients) -> None:
        seen = []
        for number, content in enumerate(["a = 1\n", "a = 1\n", "a = 2\n", "a = 2\n"]):
            turns = [m for n in range(number) for m in (user(f"q{n}"), assistant(f"a{n}"))]
            _, observation = clients.send(SYSTEM, *turns, *shown(File("a.py", content), B), user(f"q{number}"))
            seen.append(observation.ages["aider:files/file:a.py"])
        assert seen == [1, 2, 0, 1]

    def test_what_one_session_taught_is_known_to_the_next(self, clients: Clients) -> None:
        for text in ("one", "two"):
            clients.send(SYSTEM, *shown(A), user(text))
        _, observation = clients.send(SYSTEM, *shown(A), user("three"))
        assert observation.ages["aider:files/file:a.py"] == 3

    def test_rewriting_the_newest_message_is_a_break_of_one(self, clients: Clients) -> None:
        session, _ = clients.send(SYSTEM, user("one"), calling("1"), result("1", "long output"))
        clients.send(SYSTEM, user("one"), calling("1"), result("1", "cleared"), calling("2"), result("2", "x"))
        assert list(session.cohort.breaks) == [HistoryDivergence(1, results=1)]

    def test_a_changing_head_is_learnt_by_its_place(self, clients: Clients) -> None:
        for number in range(4):
            turns = [m for n in range(number) for m in (user(f"q{n}"), assistant(f"a{n}"))]
            preamble = [SYSTEM, system(f"Variable {number}")]
            session, _ = clients.send(*preamble, *turns, user(f"q{number}"), tools=b"t")
        head = session.own_head
        assert [(place.changes, place.fresh_changes) for place in head.places] == [(0, 0), (0, 0), (1, 2)]
        assert head.hazard(2, STATIC_CHANGE, is_fresh=True) > 5 * head.hazard(1, STATIC_CHANGE)


class TestCandidates:
    def test_a_message_that_was_rendered_anew_is_movable(self, clients: Clients) -> None:
        one, _ = clients.send(user(FENCED.format("a = 1")), assistant("Ok."), user("go"))
        name = next(iter(one.candidates))
        assert not one.rendered_anew
        clients.send(user(FENCED.format("a = 2")), assistant("Ok."), user("go"), assistant("1"), user("two"))
        assert one.rendered_anew == {name}

    def test_a_session_is_recognised_where_files_that_change_stand_behind_the_conversation(
        self, clients: Clients
    ) -> None:
        history: list[Body] = []
        sessions = []
        for n in range(3):
            files = [user(FENCED.format(f"a = {n}")), assistant("Got it.")]
            sessions.append(clients.send(*history, *files, user(f"question {n}"))[0])
            history += [user(f"question {n}"), assistant(f"answer {n}")]
        assert sessions[0] is sessions[1] is sessions[2]
        assert sessions[0].rendered_anew

    def test_what_was_really_answered_is_a_turn(self, clients: Clients) -> None:
        asked = [user(FENCED.format("a = 1")), assistant("It sets a. " * 20)]
        one, _ = clients.send(*asked, user("and b?"))
        other, _ = clients.send(asked[0], assistant("It does nothing at all, I am afraid. " * 8), user("and b?"))
        assert one is not other

    def test_a_second_context_message_proves_no_rendering_anew(self, clients: Clients) -> None:
        first = [user(FENCED.format("a = 1")), assistant("Ok.")]
        one, _ = clients.send(*first, user("go"))
        clients.send(*first, user("go"), assistant("1"), user(FENCED.format("a = 2")), assistant("Ok."), user("two"))
        assert not one.rendered_anew

    def test_a_context_message_that_was_there_before_proves_no_rendering_anew(self, clients: Clients) -> None:
        pasted = [user(FENCED.format(f"a = {n}")) for n in range(2)]
        one, _ = clients.send(pasted[0], assistant("Ok."), user("go"))
        for _ in range(2):
            clients.send(pasted[0], assistant("Ok."), user("go"), assistant("1"), user("two"))
        assert not one.rendered_anew


class TestDigests:
    def reminded(self, text: str) -> Message:
        return read([user(f"{text}\n\n# *SEARCH/REPLACE block* Rules:\n\nBe exact.\n")])[0]

    def test_a_reminder_is_no_part_of_a_turn(self) -> None:
        assert self.reminded("fix it").turn == read([user("fix it")])[0].turn
        assert self.reminded("fix it").turn != read([user("fix that")])[0].turn

    def test_a_clock_is_no_part_of_a_system_prompt(self) -> None:
        texts = [f"You are kind.\nCurrent time: 2026-01-01 {t}\n" for t in ("10:00", "11:00")]
        assert len({m.fixed for m in read([system(t) for t in texts])}) == 1
        assert len({m.digest for m in read([system(t) for t in texts])}) == 2


def test_another_text_is_told_from_the_same_one_with_a_line_changed() -> None:
    rules = "".join(f"Rule {number} of this mode.\n" for number in range(8))
    clients = Clients()
    texts = [rules + "Use three backticks.", rules + "Use four backticks.", "Answer questions.\nDo not edit.\n" * 4]
    found = []
    for number, text in enumerate(texts):
        turns = [m for n in range(number) for m in (user(f"q{n}"), assistant(f"a{n}"))]
        _, observation = clients.send(system(text), *turns, user(f"q{number}"))
        found.append(observation.replaced)
    assert found == [frozenset(), frozenset(), frozenset({1})]


def test_a_place_that_is_known_counts_for_the_same_tools_only() -> None:
    table, transcript = (
        SessionTable(capacity_bytes=1 << 20, prefix="s"),
        Transcript(read([system("Be brief."), user("a")])),
    )
    one = table.place("team", "m", "", transcript, b"1")
    assert table.place("team", "m", "", transcript, b"1", one) is one
    assert table.place("team", "m", "", transcript, b"2", one) == table.place("team", "m", "", transcript, b"2")

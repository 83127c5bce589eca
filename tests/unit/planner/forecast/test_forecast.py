import math
from collections.abc import Mapping
from itertools import pairwise

import pytest

from proxy.planner.change_rates import FileWords
from proxy.planner.forecast import Forecast, forecast_of, piece_forecast, read_words
from proxy.planner.observation import commit_preamble, commit_reading, followed, read_request
from proxy.planner.orders import moved_elements, request_elements
from proxy.planner.session import Session, SessionTable
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.protocol.recognition import ContextPiece
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.request.transcript import NOTHING_MOVES, RecognisedRequest, Transcript
from tests.fidelity.chats import READ_ONLY_ACK, READ_ONLY_OPENING, File
from tests.talk import Body, assistant, calling, read, result, shown, system, user, view_of

SYSTEM = system("You are kind.")
A, B = File("src/a.py", "a = 1\n"), File("src/b.py", "b = 1\n")
COUNTER = TokenCounter(bytes_over_four)
_DOCUMENTS = (
    "Answer from these.\n\n# Context\n\n"
    '<document source="a.md" section="1">\nAlpha %s.\n</document>\n\n'
    '<document source="b.md" section="2">\nBeta %s.\n</document>\n\n'
    "Be brief.\n"
)


class Past:
    """Requests of one client, forecast one by one and then settled."""

    def __init__(self, profile: CacheProfile = ANTHROPIC) -> None:
        self.profile = profile
        self.table = SessionTable(capacity_bytes=1 << 20, prefix="s")
        self.now = 0.0
        self.session: Session | None = None

    def expect(
        self,
        *messages: Body,
        tools: bytes = b"",
        after_s: float = 10.0,
        settle: bool = True,
        preamble: bool = False,
        movable: bool = True,
        moving: Mapping[int, float] = NOTHING_MOVES,
    ) -> Forecast:
        recognised = view_of(*messages, movable=movable, moving=moving)
        self.session = self.table.find(self.table.place("team", "m", "", Transcript(read(messages)), tools))
        observation = read_request(self.session, recognised, tools, self.now)
        pieces = piece_forecast(
            self.session,
            observation,
            recognised,
            request_elements(recognised, (), COUNTER),
            FileWords(1 << 20),
            is_stored=self.profile.stores_prefixes,
        )
        found = forecast_of(self.session, observation, recognised, pieces, self.profile)
        self.now += after_s
        if settle:
            commit_reading(self.session, observation, self.now, found.pieces.edits, found.pieces.usual_edit)
        if preamble:
            commit_preamble(self.session, recognised)
            last, retrieved = self.session.documents, [document.digest for document in recognised.retrieved]
            odds = self.session.cohort.documents
            self.session.documents = followed(last, retrieved, found.pieces.documents, odds)
        return found


def history(number: int) -> list[Body]:
    """So many exchanges."""
    return [message for n in range(number) for message in (user(f"go on {n}"), assistant(f"Done {n}."))]


def weight_of(expected: Forecast, item: ContextPiece, tokens: int = 100) -> float:
    return expected.weight({item.key: tokens}, expected.size_powers[0], item)


def chances(expected: Forecast, *messages: Body) -> list[float]:
    return expected.positions(request_elements(view_of(*messages), (), COUNTER).natural)


def test_a_client_that_rewrites_its_newest_message_is_expected_to_do_it_again() -> None:
    past, turns = Past(), [SYSTEM, user("one")]
    past.expect(*turns)
    turns += [assistant("1"), user("two")]
    past.expect(*turns)
    for number in range(6):
        expected = past.expect(*turns, user(f"page {number}"))
        turns += [assistant(f"{number}"), user(f"summary {number}")]
    found = chances(expected, *turns[:-2], user("page 5"))
    assert found[-2] > 3 * found[-1]


def test_a_long_pause_lowers_the_hope_for_everything() -> None:
    def head_after(gap: float) -> float:
        past, turns = Past(), [SYSTEM, user("one")]
        for number in range(6):
            expected = past.expect(*turns, after_s=gap)
            turns += [assistant(f"{number}"), user(f"q{number}")]
        return chances(expected, *turns[:-2])[0]

    assert head_after(10.0) > 1.5 * head_after(4000.0)


def test_a_file_that_the_prompt_names_is_about_to_change() -> None:
    plain = Past().expect(SYSTEM, *shown(A, B), user("go on"))
    named = Past().expect(SYSTEM, *shown(A, B), user("please fix a.py"))
    a, b = "aider:files/file:src/a.py", "aider:files/file:src/b.py"
    assert named.pieces.hazards[a] > 2 * plain.pieces.hazards[a]
    # The other file is not what the prompt is about.
    assert named.pieces.hazards[b] < plain.pieces.hazards[b]
    assert (named.pieces.later[a], named.pieces.later[b]) == (plain.pieces.later[a], plain.pieces.later[b])
    assert named.pieces.signs[a].is_named
    assert named.pieces.signs[b].is_beside


def test_a_file_that_just_changed_weighs_less_than_one_that_did_not() -> None:
    past = Past()
    past.expect(SYSTEM, *shown(A, B), user("one"))
    expected = past.expect(SYSTEM, user("one"), assistant("1"), *shown(File("src/a.py", "a = 2\n"), B), user("two"))
    recognised = view_of(*shown(A, B), user("x"))
    first, second = recognised.items
    assert weight_of(expected, first, 100) < weight_of(expected, second, 100)
    assert weight_of(expected, second, 100) < weight_of(expected, second, 400) < 2 * weight_of(expected, second, 100)


def test_read_only_files_stand_firm() -> None:
    messages = [SYSTEM, *shown(A, opening=READ_ONLY_OPENING, ack=READ_ONLY_ACK), *shown(B), user("one")]
    expected = Past().expect(*messages)
    reference, editable = expected.pieces.hazards.values()
    assert reference < editable
    assert expected.groups == {1: (reference, 0), 3: (0, editable)}


def test_answers_edit_a_file_or_two_however_many_there_are() -> None:
    few, many = ([File(f"src/f{i}.py", f"x = {i}\n" * 400) for i in range(n)] for n in (2, 30))
    for files, is_scaled_up in ((few, True), (many, False)):
        messages = [SYSTEM, *shown(*files), user("go on")]
        expected = Past().expect(*messages)
        assert (expected.pieces.edit_scale > 1) is is_scaled_up
        known = chances(expected, *messages)
        assert all(0 <= b <= a <= 1 for a, b in pairwise(known))


def test_a_clock_is_expected_to_tick_before_it_was_ever_seen_to() -> None:
    still, ticking = "You are kind.\n", "You are kind.\nCurrent time: 2026-01-01 10:00\n"
    known = [chances(Past().expect(system(text), user("go")), system(text), user("go"))[0] for text in (still, ticking)]
    assert known[0] > 5 * known[1]


def test_without_its_clock_the_same_prompt_is_expected_to_last() -> None:
    messages = [system("You are kind.\nCurrent time: 2026-01-01 10:00\n"), user("go")]
    recognised = view_of(*messages)
    expected = Past().expect(*messages)
    moved = moved_elements(recognised, request_elements(recognised, (), COUNTER), COUNTER)
    relaid = (*moved.preamble, *moved.turns, *moved.tail)
    assert expected.positions(relaid)[0] > 5 * chances(expected, *messages)[0]
    # Behind the tag hardly anything is read again.
    assert expected.positions(relaid)[-1] < 0.1 * expected.positions(relaid)[0]


def test_the_head_of_a_file_outlives_its_end() -> None:
    long = File("src/a.py", "".join(f"line {number} of a file that is long enough\n" for number in range(300)))
    messages = [SYSTEM, *shown(long, B), user("please fix a.py")]
    expected, recognised = Past().expect(*messages), view_of(*messages)
    cut = request_elements(recognised, (), COUNTER, has_spans=True)
    own = cut.forms.parts["aider:files/file:src/a.py"]
    known = expected.positions((*cut.preamble, own, *cut.tail))
    inner = known[1 : 1 + len(own.parts)]
    assert all(a > b for a, b in pairwise(inner[:-1]))
    assert inner[-1] == pytest.approx(inner[-2])


def test_documents_that_rank_where_others_stayed_are_expected_to_stay() -> None:
    past = Past()
    turns: list[Body] = []
    for number in range(8):
        text = _DOCUMENTS % ("first", f"other {number}")
        turns.append(user(f"q{number}"))
        found = past.expect(system(text), *turns, preamble=True)
        turns.append(assistant(f"a{number}"))
    kept, gone = (found.pieces.hazards[document.key] for document in view_of(system(text), user("q")).documents)
    assert kept < 0.6 * gone


def test_the_words_of_documents_are_read_until_two_requests_had_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[RecognisedRequest] = []
    monkeypatch.setattr(
        "proxy.planner.forecast.read_words", lambda recognised: read.append(recognised) or read_words(recognised)
    )
    past, text = Past(), _DOCUMENTS % ("first", "second")
    turns: list[Body] = []
    for number in range(4):
        turns.append(user(f"q{number}"))
        found = past.expect(system(text), *turns, preamble=True)
        turns.append(assistant(f"a{number}"))
    assert len(read) == 2
    assert [sign.run for sign in found.pieces.documents] == [4, 4]


def test_where_every_prefix_is_stored_a_file_that_was_edited_often_stands_later() -> None:
    def weights(profile: CacheProfile) -> tuple[float, float]:
        past = Past(profile)
        for number in range(8):
            often = File("src/a.py", f"a = {min(number, 6)}\n")
            seldom = File("src/b.py", f"b = {number > 5}\n")
            expected = past.expect(SYSTEM, *shown(often, seldom), user(str(number)))
        first, second = view_of(*shown(A, B), user("x")).items
        return weight_of(expected, first, 100), weight_of(expected, second, 100)

    often, seldom = weights(OPENAI)
    assert often < seldom
    often, seldom = weights(ANTHROPIC)
    assert often == seldom


def test_where_every_prefix_is_stored_a_large_file_stands_earlier() -> None:
    recognised = view_of(*shown(A), user("x"))
    stored, marked = (Past(profile).expect(SYSTEM, *shown(A), user("one")) for profile in (OPENAI, ANTHROPIC))
    item = recognised.items[0]
    assert weight_of(stored, item, 400) / weight_of(stored, item, 100) > weight_of(marked, item, 400) / weight_of(
        marked, item, 100
    )


def test_files_that_are_all_written_another_way_are_not_edited() -> None:
    rules = [f"Rule {number} of the instructions." for number in range(9)]
    keys = [f"aider:files/file:src/f{number}.py" for number in range(4)]

    def change(last: str) -> list[float]:
        past = Past()
        for number in range(7):
            is_last = number == 6
            preamble = system("\n".join([*rules, last if is_last else "Use three backticks."]))
            files = [File(f"src/f{n}.py", f"x = {n}\n{'# the end' if is_last else ''}\n") for n in range(4)]
            found = past.expect(preamble, *history(number), *shown(*files), user(f"go on {number}"), preamble=True)
        return [found.pieces.hazards[key] for key in keys]

    edited, rewritten = change("Use three backticks."), change("Use four backticks.")
    assert max(rewritten) < 0.6 * min(edited)


def with_panel(number: int, shows: str) -> tuple[list[Body], dict[int, float]]:
    """A conversation in which the proxy shows something directly in front of the prompt; where it stands."""
    talk = [SYSTEM, *history(number), calling("panel"), result("panel", shows), user(f"go on {number}")]
    return talk, {len(talk) - 3: 0.7, len(talk) - 2: 0.0}


def test_what_the_proxy_puts_between_the_turns_may_go_and_nothing_in_front_of_it_does() -> None:
    past = Past()
    talk, moving = with_panel(2, "one")
    still, found = past.expect(*talk, settle=False).turns, past.expect(*talk, moving=moving).turns
    call, shown_at, prompt = len(talk) - 3, len(talk) - 2, len(talk) - 1
    assert found[call] == pytest.approx(found[call - 1] * math.exp(-0.7))
    assert found[shown_at] == pytest.approx(found[call])
    assert found[prompt] < math.exp(-0.7) * still[call - 1]
    assert min(found[index] for index in range(1, call)) >= still[shown_at]


def test_what_the_proxy_has_moved_is_no_break_of_the_conversation() -> None:
    told, untold = Past(), Past()
    for number in range(6):
        talk, moving = with_panel(number, f"state {number}")
        known, unknown = told.expect(*talk, moving=moving).turns, untold.expect(*talk).turns
    assert known[len(talk) - 4] > 0.9
    assert known[len(talk) - 2] == pytest.approx(known[len(talk) - 4] * math.exp(-0.7))
    assert unknown != known
    assert [_seen_breaks(past) for past in (told, untold)] == [{0}, {3}]


def _seen_breaks(past: Past) -> set[int]:
    return {one.messages for one in past.session.cohort.breaks}


def test_moving_messages_that_do_not_exist_change_nothing() -> None:
    talk, _ = with_panel(2, "one")
    assert Past().expect(*talk, moving={99: 1.0}).turns == Past().expect(*talk).turns

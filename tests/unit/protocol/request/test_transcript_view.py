"""What is recognised in a conversation."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.recognition import FileClaim, PieceKind
from proxy.protocol.request.transcript import RecognisedRequest, span_ends
from tests.fidelity.chats import MAP_ACK, MAP_OPENING, READ_ONLY_ACK, READ_ONLY_OPENING, File
from tests.talk import Body, as_parts, assistant, calling, result, shown, system, text_part, user, view_of

A, B = File("a.py", "a = 1\n"), File("src/b.py", "b = 1\n")
FENCED = "Here are the files:\n\nsrc/a.py\n```\na = 1\n```\n"


def keys(recognised: RecognisedRequest) -> list[str]:
    return [item.key for item in recognised.items]


class TestGroups:
    def test_nothing_moves_between_a_call_and_its_results_in_a_users_message(self) -> None:
        loop = as_parts(*shown(A, B), user("go"), calling("1"), result("1", "x"))
        assert view_of(*loop).last_user == 2

    def test_aiders_files_are_items_of_one_group(self) -> None:
        recognised = view_of(system("s"), *shown(A, B), user("go"))
        (group,) = recognised.groups
        assert (group.name, group.message, group.ack, group.claim) == ("aider:files", 1, 2, FileClaim.EDITABLE)
        assert keys(recognised) == ["aider:files/file:a.py", "aider:files/file:src/b.py"]
        assert group.opening + "".join(i.text for i in group.items) == shown(A, B)[0]["content"]
        assert (recognised.preamble, recognised.last_user, recognised.turns) == (1, 3, [3])

    def test_a_digest_belongs_to_the_bytes_of_one_piece(self) -> None:
        one, two = view_of(*shown(A, B), user("x")), view_of(*shown(File("a.py", "other\n"), B), user("y"))
        before, after = ({i.key: i.digest for i in v.items} for v in (one, two))
        assert [before[k] == after[k] for k in before] == [False, True]

    @pytest.mark.parametrize(
        "messages",
        [
            [shown(A)[0], user("no acknowledgement")],
            [shown(A)[0], assistant("Let me see."), user("go")],
            [shown(A)[0], {**calling("1"), "content": shown(A)[1]["content"]}, result("1", "x"), user("go")],
            [user("go"), *shown(A)],
            [shown(A)[0], shown(A)[1]],
            [shown(A)[0]],
            [assistant(shown(A)[0]["content"]), shown(A)[1], user("go")],
            [system(shown(A)[0]["content"]), shown(A)[1], user("go")],
        ],
        ids=[
            "none", "another answer", "a call", "behind the last turn", "nothing else", "alone", "assistant",
            "system",
        ],
    )  # fmt: skip
    def test_what_only_looks_like_context_stays_where_it_is(self, messages: list[Body]) -> None:
        assert view_of(*messages).groups == ()

    def test_the_last_exchange_is_never_context(self) -> None:
        recognised = view_of(*shown(A), user("go"), calling("1"), result("1", "x"))
        assert (len(recognised.groups), recognised.last_user) == (1, 2)

    def test_without_a_user_nothing_moves(self) -> None:
        recognised = view_of(system("Time now: 2026-01-01 10:00\nBe kind."), assistant("hi"))
        assert (recognised.groups, recognised.system, recognised.last_user) == ((), (), 2)

    def test_several_groups_with_their_own_claims(self) -> None:
        recognised = view_of(
            *shown(A, opening=READ_ONLY_OPENING, ack=READ_ONLY_ACK),
            user(MAP_OPENING + "\nsrc/x.py:\n│def f():\n"), assistant(MAP_ACK),
            *shown(B),
            user("go"),
        )  # fmt: skip
        assert [(g.name, g.claim) for g in recognised.groups] == [
            ("aider:read-only", FileClaim.READ_ONLY),
            ("aider:map", FileClaim.MAP),
            ("aider:files", FileClaim.EDITABLE),
        ]

    def test_candidates_move_where_the_session_has_learnt_it(self) -> None:
        messages = [user(FENCED), assistant("Ok."), user("go")]
        assert len(view_of(*messages, movable=True).groups) == 1
        assert view_of(*messages, movable=False).groups == ()

    def test_a_long_answer_is_no_acknowledgement(self) -> None:
        assert view_of(user(FENCED), assistant("Ok. " + "And then " * 30), user("go")).groups == ()

    def test_a_context_message_of_one_text_part(self) -> None:
        question, ack = shown(A)
        recognised = view_of(user([text_part(question["content"])]), ack, user("go"))
        assert keys(recognised) == ["aider:files/file:a.py"]


class TestDistinctKeys:
    def test_the_same_path_in_two_messages_is_two_things(self) -> None:
        recognised = view_of(*shown(A, B), *shown(A), user("go"))
        assert keys(recognised) == ["aider:files/file:a.py", "aider:files/file:src/b.py", "aider:files/file:a.py#2"]

    def test_a_file_that_is_named_like_a_number_is_a_thing_of_its_own(self) -> None:
        recognised = view_of(*shown(A, File("a.py#2", "two\n")), *shown(A), *shown(A), user("go"))
        assert len(set(keys(recognised))) == 4

    def test_the_pieces_of_one_path_are_one_thing_from_the_first_to_the_last(self) -> None:
        more = File("a.py", "more\n")
        recognised = view_of(*shown(B, A, more, File("c.py", "c\n")), *shown(A, more), user("go"))
        assert keys(recognised) == [
            "aider:files/file:src/b.py", "aider:files/file:a.py", "aider:files/file:c.py", "aider:files/file:a.py#2",
        ]  # fmt: skip
        for group in recognised.groups:
            assert group.opening + "".join(item.text for item in group.items) == recognised.messages[group.message].text


class TestVersions:
    def test_which_of_two_versions_is_the_newer_one_only_their_places_say(self) -> None:
        for others in ([], [user("What?"), assistant("That.")]):
            newer = view_of(*shown(A, B), *others, *shown(File("a.py", "newer\n")), user("go"))
            same = view_of(*shown(A, B), *others, *shown(A), user("go"))
            assert (len(newer.groups), len(same.groups)) == (0, 2)

    def test_what_shows_other_files_still_moves(self) -> None:
        recognised = view_of(*shown(A), *shown(B), *shown(File("a.py", "newer\n")), user("go"))
        assert keys(recognised) == ["aider:files/file:src/b.py"]


class TestClaims:
    def test_a_message_that_says_more_than_its_text_stays_whole(self) -> None:
        question, ack = shown(A, B)
        recognised = view_of({**question, "name": "bob"}, ack, user("go"))
        assert [item.text for item in recognised.groups[0].items] == [question["content"]]
        marked = text_part(question["content"], cache_control={"type": "ephemeral"})
        assert len(view_of(user([marked]), ack, user("go")).groups[0].items) == 2

    def test_files_are_taken_apart_where_nothing_is_claimed(self) -> None:
        (group,) = view_of(user(FENCED + "\nb.py\n```\nb\n```\n"), assistant("Ok."), user("go")).groups
        assert (group.claim, len(group.items)) == (FileClaim.AS_SAID, 2)

    def test_files_stay_whole_where_the_header_could_mean_another_message(self) -> None:
        two = user(FENCED + "\nb.py\n```\nb\n```\n")
        for others in (shown(A), [user("Mine:\n\nz.py\n```\nz\n```\n"), assistant("What of it?")]):
            recognised = view_of(two, assistant("Ok."), *others, user("go"))
            assert [item.text for item in recognised.groups[0].items] == [two["content"]]

    def test_many_equal_paths_take_linear_time(self) -> None:
        count = 1500
        recognised = view_of(*(m for n in range(count) for m in shown(A)), user("go"))
        assert len(set(keys(recognised))) == count


class TestSystem:
    CLOCK = "You are kind.\nCurrent time: 2026-01-01 10:00\nRules follow.\n"

    def test_a_clock_line_is_taken_out(self) -> None:
        recognised = view_of(system(self.CLOCK), user("go"))
        (text,) = recognised.system
        assert text.fixed == "You are kind.\nRules follow.\n"
        assert text.volatile == ("Current time: 2026-01-01 10:00\n",)

    TIME = "Current time: 2026-01-01 10:00\n"

    def test_a_message_of_clock_lines_alone_stays_where_it_is_the_first(self) -> None:
        assert view_of(system(self.TIME), user("go")).system == ()

    def test_a_clock_message_behind_another_message_moves_as_a_whole(self) -> None:
        (text,) = view_of(system("Be kind."), system(self.TIME), user("go")).system
        assert (text.message, text.fixed, text.volatile) == (1, "", (self.TIME,))

    def test_unless_something_would_be_lost(self) -> None:
        for odd in (system("\n" + self.TIME), system(self.TIME, name="clock")):
            assert view_of(system("Be kind."), odd, user("go")).system == ()

    def test_documents_leave_no_empty_text_behind(self) -> None:
        documents = '<doc id="1">one</doc>\n'
        (text,) = view_of(system("Be kind."), system(self.TIME + documents), user("go")).system
        assert (text.fixed, text.documents, text.volatile) == (documents, (), (self.TIME,))
        assert view_of(system(documents), user("go")).system == ()

    def test_documents_move_in_the_last_system_message_only(self) -> None:
        text = (
            'Answer from these:\n<document id="1">\none\n</document>\n<document id="2">\ntwo\n</document>\nBe brief.\n'
        )
        last, first = view_of(system(text), user("go")), view_of(system(text), system("more"), user("go"))
        assert [d.kind for d in last.system[0].documents] == [PieceKind.DOCUMENT] * 2
        assert last.system[0].fixed == "Answer from these:\nBe brief.\n"
        assert first.system == ()
        assert [i.text for i in last.items] == [
            '<document id="1">\none\n</document>\n',
            '<document id="2">\ntwo\n</document>\n',
        ]

    def test_a_document_that_stands_twice_keeps_its_places(self) -> None:
        text = '<doc id="1">one</doc>\n<doc id="1">one</doc>\nBe brief.\n'
        assert view_of(system(text), user("go")).system == ()

    def test_a_system_message_behind_the_head_is_a_turn(self) -> None:
        recognised = view_of(system("s"), user("a"), system(self.CLOCK), user("go"))
        assert (recognised.system, recognised.preamble) == ((), 1)


def test_documents_can_stand_elsewhere_whether_or_not_a_candidate_can() -> None:
    document = '<document id="1">\none\n</document>\n'
    (found,) = view_of(system(f"Answer.\n{document}Be brief.\n"), user("go"), movable=False).system
    assert (found.fixed, [item.text for item in found.documents]) == ("Answer.\nBe brief.\n", [document])
    assert view_of(system(document), user("go"), movable=False).system == ()


def test_messages_that_the_proxy_has_put_in_are_turns_but_not_the_conversations_own() -> None:
    talk = (system("s"), user("a"), assistant("b"), user("shown"), user("go"))
    plain, told = view_of(*talk), view_of(*talk, moving={3: 0.5})
    assert list(told.turns) == list(plain.turns) == [1, 2, 3, 4]
    assert list(told.own_turns) == [1, 2, 4]
    assert told.turn_digests == view_of(*talk[:3], talk[4]).turn_digests
    assert plain.turn_digests == view_of(*talk).turn_digests


LINES = [f"line {number} of a file that is long enough\n" for number in range(400)]


def test_a_short_text_is_one_span() -> None:
    assert span_ends("a = 1\n") == (6,)


@given(st.text(alphabet="ab\n", min_size=0, max_size=30).map(lambda text: text * 400))
def test_spans_cover_the_text_once(text: str) -> None:
    ends = span_ends(text)
    assert ends[-1] == len(text)
    assert all(a < b for a, b in pairwise(ends))
    assert len(ends) <= 10


def test_versions_share_their_spans_up_to_the_first_edit() -> None:
    text = "".join(LINES)
    edited = "".join([*LINES[:300], "new\n", *LINES[300:]])
    first = text.index(LINES[300])
    shared = [end for end in span_ends(text) if end <= first]
    assert len(shared) >= 3
    assert list(span_ends(edited)[: len(shared)]) == shared


def test_a_text_of_one_line_is_one_span() -> None:
    assert span_ends("x" * 50_000) == (50_000,)

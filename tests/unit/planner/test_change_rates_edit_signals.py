"""Which files have a prompt's words."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.planner.change_rates import EditSignals, FileWords, read_signs
from proxy.protocol.recognition import ContextPiece, FileClaim, PieceKind
from proxy.protocol.request.message import piece_digest
from tests.fidelity.chats import File
from tests.talk import Body, assistant, shown, system, user, view_of


def files(**texts: str) -> dict[str, ContextPiece]:
    return {
        key: ContextPiece(key, PieceKind.FILE, FileClaim.AS_SAID, text, piece_digest(text))
        for key, text in texts.items()
    }


CHAT = files(
    a="def parse_header(line):\n    return line\n",
    b="def render(template):\n    return template\n",
    c="class Header:\n    pass\n",
)


def test_the_file_with_the_prompts_words_stands_out() -> None:
    shares = FileWords(1 << 20).shares("Let the Header be parsed as one line, please.", CHAT)
    assert shares["a"] > shares["c"] > shares["b"]
    assert abs(sum(shares.values())) < 1e-9


def test_what_all_files_have_and_what_none_has_tells_nothing() -> None:
    chat = files(a="same words here\n", b="same words here, and more\n")
    assert FileWords(1 << 20).shares("the same words, elsewhere", chat) == {}
    assert FileWords(1 << 20).shares("", chat) == {}
    assert FileWords(1 << 20).shares("same", files(a="same words\n")) == {}


def test_short_words_and_endless_prompts_are_not_read() -> None:
    chat = files(a="one two\n", b="three\n")
    assert FileWords(1 << 20).shares("one two", chat) == {}
    endless = " ".join(f"{chr(97 + n % 26) * 4}{chr(97 + n // 26) * 4}" for n in range(300))
    assert FileWords(1 << 20).shares(f"{endless} three", chat) == {}


def test_all_but_letters_part_words_and_half_characters_can_be_read() -> None:
    chat = files(a="Parse_Header2\ud800\n", b="parseheader\n")
    assert FileWords(1 << 20).shares("parse the\udc00HEADER", chat) == {"a": 0.5, "b": -0.5}


def test_what_is_known_is_bounded() -> None:
    words = FileWords(capacity_bytes=3_000)
    for number in range(100):
        assert words.shares("alpha", files(a=f"alpha number{'x' * number}\n", b="beta\n"))["a"] == 0.5
    assert words._known.bytes <= 3_000


@given(st.text(), st.dictionaries(st.sampled_from("abcd"), st.text()))
def test_shares_balance(prompt: str, texts: dict[str, str]) -> None:
    chat = files(**texts)
    words = FileWords(1 << 20)
    shares = words.shares(prompt, chat)
    assert shares.keys() in (set(), chat.keys())
    assert abs(sum(shares.values())) < 1e-6
    assert words.shares(prompt, chat) == shares


PARSER = File("src/parser.py", "class RowParser:\n    def parse_row(self): ...\n")
WRITER = File("src/writer.py", "from parser import RowParser\n\ndef write_rows(): ...\n")
RULES = "\n\n# *SEARCH/REPLACE block* Rules:\n\nName the file: src/parser.py\n"


def signs(*messages: Body, age: int = 2) -> Mapping[str, EditSignals]:
    recognised = view_of(system("You are kind."), *messages)
    items = {item.key: item for item in recognised.items}
    found = read_signs(recognised, items, dict.fromkeys(items, age), FileWords(1 << 20))
    return {key.rpartition("/")[2]: sign for key, sign in found.items()}


def test_a_prompt_names_a_file_as_a_word_of_its_own() -> None:
    for prompt in ("Mend parser.py, please.", "parser.py is slow", "Mend my_parser.py and parser.py"):
        found = signs(*shown(PARSER, WRITER), user(prompt))
        assert found["parser.py"].is_named
        assert found["writer.py"].is_beside
    assert not signs(*shown(PARSER), user("Mend my_parser.py and parser.pyc"))["parser.py"].is_named


def test_a_word_hints_at_a_file() -> None:
    found = signs(*shown(PARSER, WRITER), user("The parser is slow"))
    assert found["parser.py"].is_hinted
    assert not found["parser.py"].is_told
    assert not found["writer.py"].is_beside


def test_identifiers_point_to_the_files_that_hold_them() -> None:
    found = signs(*shown(PARSER, WRITER), user("Rename `parse_row`"))
    assert (found["parser.py"].symbols, found["writer.py"].symbols) == (1.0, 0.0)
    both = signs(*shown(PARSER, WRITER), user("Document parse_row and write_rows"))
    assert (both["parser.py"].symbols, both["writer.py"].symbols) == (1.0, 1.0)
    uses = [File(f"src/{name}.py", "from parser import RowParser\n") for name in ("one", "two")]
    used = signs(*shown(*uses), user("Document RowParser"))
    assert (used["one.py"].symbols, used["two.py"].symbols) == (0.5, 0.5)


def test_the_file_that_defines_an_identifier_is_meant_before_those_that_use_it() -> None:
    found = signs(*shown(PARSER, WRITER), user("Document RowParser"))
    assert (found["parser.py"].symbols, found["writer.py"].symbols) == (1.0, 0.5)
    longer = File("src/longer.py", "class RowParserError: ...\nRowParser = 1\n")
    found = signs(*shown(longer, WRITER), user("Document RowParser"))
    assert (found["longer.py"].symbols, found["writer.py"].symbols) == (0.5, 0.5)


@pytest.mark.parametrize(("age", "is_open"), [(0, False), (1, True)])
def test_an_answer_whose_edits_were_not_made_will_be_given_again(age: int, is_open: bool) -> None:
    answer = assistant("I change this.\n\nsrc/parser.py\n<<<<<<< SEARCH\n")
    found = signs(user("Mend it"), answer, *shown(PARSER, WRITER), user("I added a file"), age=age)
    assert found["parser.py"].is_answered is is_open
    assert found["writer.py"].is_beside is is_open


def test_only_the_answer_directly_before_the_prompt_counts() -> None:
    answer = assistant("src/parser.py\n<<<<<<< SEARCH\n")
    later = (user("I committed the changes"), assistant("Ok."))
    found = signs(user("Mend it"), answer, *later, *shown(PARSER), user("go on"))
    assert not found["parser.py"].is_answered


def test_what_the_client_appends_to_a_prompt_says_nothing() -> None:
    assert not signs(*shown(PARSER, WRITER), user("go on" + RULES))["parser.py"].is_named


def test_a_prompt_in_parts_is_read() -> None:
    parts = [{"type": "text", "text": "look at"}, {"type": "text", "text": "parser.py"}]
    assert signs(*shown(PARSER), user(parts))["parser.py"].is_named


def test_of_a_huge_prompt_both_ends_are_read() -> None:
    filler = "x " * 50_000
    assert signs(*shown(PARSER), user(filler + " parser.py"))["parser.py"].is_named
    assert not signs(*shown(PARSER), user(filler + " parser.py " + filler))["parser.py"].is_named


def test_without_files_there_is_nothing_to_say() -> None:
    assert signs(user("parser.py")) == {}

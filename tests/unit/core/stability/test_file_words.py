"""Which files have a prompt's words."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import ContextPiece, PieceKind
from proxy.core.request.message import piece_digest
from proxy.core.stability.file_words import FileWords


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
    shares = FileWords().shares("Let the Header be parsed as one line, please.", CHAT)
    assert shares["a"] > shares["c"] > shares["b"]
    assert abs(sum(shares.values())) < 1e-9


def test_what_all_files_have_and_what_none_has_tells_nothing() -> None:
    chat = files(a="same words here\n", b="same words here, and more\n")
    assert FileWords().shares("the same words, elsewhere", chat) == {}
    assert FileWords().shares("", chat) == {}
    assert FileWords().shares("same", files(a="same words\n")) == {}


def test_short_words_and_endless_prompts_are_not_read() -> None:
    chat = files(a="one two\n", b="three\n")
    assert FileWords().shares("one two", chat) == {}
    endless = " ".join(f"{chr(97 + n % 26) * 4}{chr(97 + n // 26) * 4}" for n in range(300))
    assert FileWords().shares(f"{endless} three", chat) == {}


def test_all_but_letters_part_words_and_half_characters_can_be_read() -> None:
    chat = files(a="Parse_Header2\ud800\n", b="parseheader\n")
    assert FileWords().shares("parse the\udc00HEADER", chat) == {"a": 0.5, "b": -0.5}


def test_what_is_known_is_bounded() -> None:
    words = FileWords(capacity_bytes=3_000)
    for number in range(100):
        assert words.shares("alpha", files(a=f"alpha number{'x' * number}\n", b="beta\n"))["a"] == 0.5
    assert words.bytes <= 3_000


@given(st.text(), st.dictionaries(st.sampled_from("abcd"), st.text()))
def test_shares_balance(prompt: str, texts: dict[str, str]) -> None:
    chat = files(**texts)
    words = FileWords()
    shares = words.shares(prompt, chat)
    assert shares.keys() in (set(), chat.keys())
    assert abs(sum(shares.values())) < 1e-6
    assert words.shares(prompt, chat) == shares

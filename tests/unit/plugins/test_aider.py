import pytest
from hypothesis import given

from plugins.aider import AiderRecogniser, register_recognisers
from proxy.protocol.recognition import FileClaim, MessageKind, PieceKind, Recognition, covers
from tests.examples import for_every
from tests.fidelity.chats import (
    AIDER_FENCES,
    ASK_MAP_OPENING,
    EDITABLE_ACK,
    EDITABLE_OPENING,
    MAP_ACK,
    MAP_OPENING,
    READ_ONLY_ACK,
    READ_ONLY_OPENING,
    SHOWN_ACK,
    SHOWN_OPENING,
    AiderChat,
    File,
)
from tests.fidelity.strategies import aider_chats
from tests.talk import file_text

OPENINGS = [
    (EDITABLE_OPENING, "aider:files", FileClaim.EDITABLE, EDITABLE_ACK),
    (SHOWN_OPENING, "aider:files", FileClaim.SHOWN, SHOWN_ACK),
    (READ_ONLY_OPENING, "aider:read-only", FileClaim.READ_ONLY, READ_ONLY_ACK),
]


def recognise(text: str, role: str = "user") -> Recognition | None:
    return AiderRecogniser().recognise(role, text) if AiderRecogniser.texts.may_have(role, text) else None


def pieces(text: str) -> list[tuple[str, str]]:
    """(key, text) of every piece but the opening."""
    found = recognise(text)
    assert covers(found.cuts, len(text))
    return [(c.key, text[c.start : c.end]) for c in found.cuts if c.kind is not PieceKind.OPENING]


@pytest.mark.parametrize(("opening", "name", "claim", "acknowledgement"), OPENINGS)
@pytest.mark.parametrize("fence", AIDER_FENCES, ids=lambda fence: fence[0])
class TestFiles:
    def test_in_every_mode_and_fence(
        self, opening: str, name: str, claim: FileClaim, acknowledgement: str, fence: tuple[str, str]
    ) -> None:
        files = [File("a.py", "a = 1\n"), File("src/b.py", "\n\nb = 1\n\n")]
        text = file_text(files, opening, fence)
        found = recognise(text)
        assert (found.name, found.form, found.claim) == (name, MessageKind.CONTEXT, claim)
        assert acknowledgement.startswith(found.acknowledgements[0])
        assert pieces(text) == [
            ("file:a.py", f"\na.py\n{fence[0]}\na = 1\n{fence[1]}\n"),
            ("file:src/b.py", f"\nsrc/b.py\n{fence[0]}\n\n\nb = 1\n\n{fence[1]}\n"),
        ]
        assert text[: found.cuts[0].end] == opening


@for_every(
    [
        "",
        "no newline at the end",
        "\n",
        "crlf\r\nlines\r\n",
        "x = '```'\n",
        "    ```\n    indented\n    ```\n",
        "~~~\ncode\n~~~\n",
        "<source>\n</source>\n",
        "I have *added these files to the chat* so you can go ahead and edit them.\n\nc.py\n",
        "ends in a fence ```",
        "\u2028 \x0c \x00 🎉\n",
    ]
)
def test_any_content(content: str) -> None:
    files = [File("a.py", "a = 1\n"), File("nasty.txt", content), File("b.py", content), File("c.py", "c = 1\n")]
    text = file_text(files)
    assert [key for key, _ in pieces(text)] == [f"file:{f.path}" for f in files]
    assert pieces(text)[1][1] == f"\nnasty.txt\n```\n{content}```\n"


@for_every(["ü/ñ é.txt", "a b (c).md", "Makefile", "C:\\x\\y.py", "日本.py", "a`b.py", "-", "#1"])
def test_any_path(path: str) -> None:
    assert [key for key, _ in pieces(file_text([File(path, "x\n"), File("z", "y\n")]))] == [f"file:{path}", "file:z"]


def test_markdown_files_make_aider_take_another_fence() -> None:
    chat_file = File("README.md", "# Title\n\n```python\nx\n```\n\nb.py\n```\nnot a file\n```\n")
    text = file_text([chat_file, File("b.py", "b\n")], fence=("````", "````"))
    assert [key for key, _ in pieces(text)] == ["file:README.md", "file:b.py"]


def test_where_no_fence_is_free_the_message_stays_in_one_piece() -> None:
    every_fence = "".join(f"{opener}\n{closer}\n" for opener, closer in AIDER_FENCES)
    for content in (every_fence + "x\n```\n\nfake.py\n```\n", "x\n```\n\nfake.py\n```\nmore\n" + every_fence):
        text = file_text([File("a.md", content), File("b.py", "b\n")])
        assert pieces(text) == [("files", text)]


@pytest.mark.parametrize(
    "text",
    [
        EDITABLE_OPENING,
        EDITABLE_OPENING + "\nno fence here\n",
        file_text([File("a.py", "x\n")]) + "\nand please fix it",
        "Look: " + file_text([File("a.py", "x\n")]),
        "hello",
        "",
    ],
    ids=["opening alone", "no fence", "more behind it", "more before it", "a turn", "empty"],
)
def test_what_is_not_aiders_context(text: str) -> None:
    assert recognise(text) is None


@pytest.mark.parametrize("role", ["assistant", "system", "tool", "developer"])
def test_only_users_messages_are_context(role: str) -> None:
    assert recognise(file_text([File("a.py", "x\n")]), role) is None


@pytest.mark.parametrize("opening", [MAP_OPENING, ASK_MAP_OPENING])
def test_the_map_is_one_piece(opening: str) -> None:
    text = opening + "\nsrc/a.py:\n⋮\n│def f():\n⋮\n\nsrc/b.py\n"
    found = recognise(text)
    assert (found.name, found.claim) == ("aider:map", FileClaim.MAP)
    assert MAP_ACK.startswith(found.acknowledgements[0])
    ((key, piece),) = pieces(text)
    assert key == "map"
    assert piece.startswith("src/a.py:")
    assert text == opening + "\n" + piece


def test_a_map_of_another_shape_is_one_piece_all_the_same() -> None:
    assert pieces(MAP_OPENING.rstrip("\n")) == [("map", MAP_OPENING.rstrip("\n"))]


class TestReminder:
    @pytest.mark.parametrize(
        "rules",
        [
            "# *SEARCH/REPLACE block* Rules:\n\nEvery block ...",
            "# File editing rules:\n\nReturn edits ...",
            "# *file listing* rules:\n\nTo suggest changes ...",
        ],
    )
    def test_is_cut_off_the_prompt(self, rules: str) -> None:
        text = f"fix it\n\n{rules}"
        found = recognise(text)
        assert found.form is MessageKind.PROMPT
        assert [(c.kind, text[c.start : c.end]) for c in found.cuts] == [
            (PieceKind.PROMPT, "fix it"),
            (PieceKind.REMINDER, f"\n\n{rules}"),
        ]

    def test_alone_it_is_a_turn(self) -> None:
        assert recognise("# *SEARCH/REPLACE block* Rules:\n") is None
        assert recognise("\n\n# *SEARCH/REPLACE block* Rules:\n") is None


@given(aider_chats())
def test_a_file_is_never_cut_apart(chat: AiderChat) -> None:
    for context in chat.contexts():
        found = recognise(context.text)
        if found is None or context.header == "map":
            continue
        assert covers(found.cuts, len(context.text))
        at = len(context.opening)
        borders = {0, at}
        for entry in context.entries:
            at += len(entry) + 2
            borders.add(at)
        assert {cut.start for cut in found.cuts} <= borders
        # One piece only where a border is hard to see: a file that ends in backticks, with no newline behind them.
        glued = any("`" in file.content.rpartition("\n")[2] for file in (*chat.files, *chat.read_only))
        if chat.is_fence_free and not glued:
            assert len(found.cuts) == 1 + len(context.entries)


def test_the_plugin_registers_one_recogniser() -> None:
    (one,) = register_recognisers()
    assert (one.name, one.priority) == ("aider", 50)

"""The turns of a session follow from the commits."""

import re

import pytest

from proxy.lab.demo.chats import answer
from proxy.lab.demo.structured import (
    PACKAGE,
    Commit,
    History,
    busy,
    installed_files,
    quiet,
    session_files,
    turns,
)

FILES = {
    "shop/a.py": "import shop.b\n\n\ndef f():\n    return 1\n",
    "shop/b.py": "B = 1\n",
    "shop/far.py": "FAR = 1\n",
    "notes.md": "# Notes",
}
HISTORY = History(
    "h", "made here", FILES,
    (
        Commit("Return 2", {"shop/a.py": FILES["shop/a.py"].replace("1", "2")}),
        Commit("Add c", {"shop/c.py": "C = 1\n"}),
        Commit("Write notes", {"notes.md": "# Notes\nMore."}),
        Commit("Drop c", {"shop/c.py": None}),
    ),
)  # fmt: skip


def applied(files: dict[str, str], said: str) -> dict[str, str]:
    """The files behind an answer, as an editor applies its blocks."""
    found = dict(files)
    blocks = re.findall(r"\n(\S+)\n```\n<<<<<<< SEARCH\n(.*?)=======\n(.*?)>>>>>>> REPLACE\n```\n", said, re.DOTALL)
    for path, old, new in blocks:
        assert old in found.get(path, "") + "\n"
        found[path] = found[path].replace(old, new, 1) if old else new
    return found


def test_the_selected_files_are_those_of_this_commit_the_last_and_the_next_one() -> None:
    assert [turn.selected for turn in turns(HISTORY)] == [
        ("shop/a.py",),
        ("shop/a.py", "notes.md"),
        ("notes.md", "shop/c.py"),
        ("notes.md", "shop/c.py"),
    ]


def test_the_files_of_a_session_are_what_changes_and_what_is_imported_as_far_as_there_is_room() -> None:
    assert session_files(HISTORY) == ["notes.md", "shop/a.py", "shop/b.py", "shop/c.py"]
    assert session_files(HISTORY, most_chars=50) == ["shop/a.py", "shop/c.py"]
    steps = list(turns(HISTORY))
    assert set(steps[0].files) == {"notes.md", "shop/a.py", "shop/b.py"}
    assert steps[1].files["shop/a.py"].endswith("return 2\n")


def test_history_grows_by_what_was_asked_answered_and_committed() -> None:
    steps = list(turns(HISTORY))
    for before, after in zip(steps, steps[1:], strict=False):
        assert list(after.done[: len(before.done)]) == list(before.done)
        added = after.done[len(before.done) :]
        assert [one["role"] for one in added] == ["user", "assistant", "user", "assistant"]
        assert added[0]["content"] == before.prompt
        assert before.at < after.at


@pytest.mark.slow
def test_an_answer_says_exactly_what_the_commit_changes() -> None:
    for history in (make(PACKAGE, installed_files(PACKAGE), 8) for make in (quiet, busy)):
        for before, after, commit in zip(history.states(), history.states()[1:], history.commits, strict=False):
            assert applied(dict(before), answer(before, commit.changes)) == after


def test_an_answer_makes_new_files_and_names_those_that_go() -> None:
    assert applied({}, answer({}, HISTORY.commits[1].changes)) == {"shop/c.py": "C = 1\n"}
    assert "`shop/c.py` is not needed any more" in answer({"shop/c.py": "C = 1\n"}, HISTORY.commits[3].changes)


def test_a_text_without_a_line_end_keeps_the_block_whole() -> None:
    said = answer({"notes.md": "# Notes"}, HISTORY.commits[2].changes)
    assert "<<<<<<< SEARCH\n# Notes\n=======\n# Notes\nMore.\n>>>>>>> REPLACE" in said

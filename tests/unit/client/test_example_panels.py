"""The example reads what it shows: the files of a folder, the state of its repository, and a list of tasks."""

import io
import subprocess
from pathlib import Path

import pytest

from proxy.client import Context
from proxy.client.example_panels import MOST_FILES, asked, git_status, refresh, text_of, tree_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.py", "src/a.py", ".git-like/x", "node_modules/y"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x", "utf-8")
    return tmp_path


def contents(context: Context) -> dict[str, str]:
    return {panel["id"]: panel["content"] for panel in context.body()["panels"]}


def test_the_tree_lists_files_in_order_without_hidden_folders(folder: Path) -> None:
    assert tree_of(folder) == "b.py\nsrc/a.py"


def test_a_large_tree_ends_with_dots(folder: Path) -> None:
    for number in range(MOST_FILES):
        (folder / f"{number}.txt").touch()
    lines = tree_of(folder).split("\n")
    assert len(lines) == MOST_FILES + 1
    assert lines[-1] == "..."


def test_panels_follow_the_folder_and_keep_their_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    context = Context()
    refresh(context, folder, folder / "TODO.md")
    assert contents(context) == {"tree": "b.py\nsrc/a.py", "git": "", "todo": ""}
    subprocess.run(["git", "-C", str(folder), "init", "--quiet", "--initial-branch", "main"], check=True)
    (folder / "TODO.md").write_text("- write", "utf-8")
    (folder / "b.py").unlink()
    refresh(context, folder, folder / "TODO.md")
    assert list(contents(context)) == ["tree", "git", "todo"]
    assert contents(context)["tree"] == "TODO.md\nsrc/a.py"
    assert contents(context)["git"].startswith("## No commits yet on main\n")
    assert contents(context)["todo"] == "- write"


def test_bytes_that_are_no_text_are_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "todo").write_bytes(b"\xff- write")
    assert text_of(tmp_path / "todo") == "\ufffd- write"
    assert text_of(tmp_path) == ""
    assert git_status(tmp_path / "missing") == ""


def test_questions_are_typed_where_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert list(asked(["given"])) == ["given"]
    assert list(asked([])) == ["one", "two"]

"""Histories in real git repositories."""

from pathlib import Path

import pytest

from proxy.lab.demo.structured import Commit, GitError, History, read_history
from tests.git_repositories import git, needs_git, write_repository

pytestmark = needs_git

ODD = History(
    "odd",
    "made here",
    {"a.py": "x = 1\r\ny = 2\n", "folder/ä b.txt": "no line end", "empty.py": "", "old.py": "gone soon\n"},
    (
        Commit("Change two files", {"a.py": "x = 2\r\ny = 2\n", "folder/ä b.txt": "no line end, still"}),
        Commit("Remove one, add one: 100 %", {"old.py": None, "new/deep/er.py": "\n\n# two empty lines\n"}),
        Commit("Bring it back", {"old.py": "here again\n"}),
    ),
)


def test_the_files_and_commits_of_a_repository_are_read_to_the_letter(tmp_path: Path) -> None:
    write_repository(ODD, tmp_path)
    read = read_history(tmp_path, ODD.name, len(ODD.commits))
    assert dict(read.files) == dict(ODD.files)
    assert [(one.message, dict(one.changes)) for one in read.commits] == [
        (one.message, dict(one.changes)) for one in ODD.commits
    ]


def test_only_the_last_commits_are_read_and_the_first_one_may_be_among_them(tmp_path: Path) -> None:
    write_repository(ODD, tmp_path)
    last = read_history(tmp_path, "last", 1)
    assert [one.message for one in last.commits] == ["Bring it back"]
    assert last.files == ODD.states()[2]
    whole = read_history(tmp_path, "whole", 99)
    assert [one.message for one in whole.commits] == ["Import the files", *(one.message for one in ODD.commits)]
    assert whole.files == {}
    assert whole.states()[-1] == ODD.states()[-1]


def test_binaries_links_and_long_files_are_left_out(tmp_path: Path) -> None:
    write_repository(ODD, tmp_path)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "long.txt").write_text("x" * 300_001)
    (tmp_path / "link").symlink_to("a.py")
    (tmp_path / "a.py").write_text("x = 3\n")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message=Add much")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\1")
    git(tmp_path, "commit", "--quiet", "--all", "--message=A binary alone")
    read = read_history(tmp_path, "odd", 2)
    assert [(one.message, dict(one.changes)) for one in read.commits] == [("Add much", {"a.py": "x = 3\n"})]


def test_a_merge_counts_as_the_change_that_it_brings(tmp_path: Path) -> None:
    write_repository(ODD, tmp_path)
    git(tmp_path, "checkout", "--quiet", "-b", "side", "HEAD~1")
    (tmp_path / "side.py").write_text("side = 1\n")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message=On the side")
    git(tmp_path, "checkout", "--quiet", "main")
    git(tmp_path, "merge", "--quiet", "--no-edit", "side")
    read = read_history(tmp_path, "merged", 2)
    assert [dict(one.changes) for one in read.commits] == [{"old.py": "here again\n"}, {"side.py": "side = 1\n"}]


def test_a_folder_that_is_no_repository_says_so(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        read_history(tmp_path, "none", 3)
    with pytest.raises(GitError, match="No such file or directory"):
        read_history(tmp_path / "missing", "none", 3)
    git(tmp_path, "init", "--quiet")
    with pytest.raises(GitError, match="git rev-list"):
        read_history(tmp_path, "none", 3)


def test_without_git_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git is not installed"):
        read_history(tmp_path, "none", 3)

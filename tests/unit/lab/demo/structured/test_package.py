"""Histories made of an installed package: the same on every run, and each state is a package of real modules."""

import ast
from functools import cache

import pytest

from proxy.lab.demo.structured import PACKAGE, TURNS, History, busy, installed_files, package_source, quiet
from tests.examples import chosen


@cache
def files() -> dict[str, str]:
    return installed_files(PACKAGE)


@cache
def history_of(name: str) -> History:
    return {"quiet": quiet, "busy": busy}[name](package_source(PACKAGE), files())


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(["quiet", "busy"], "quiet"))
def test_a_history_ends_with_exactly_the_files_of_the_package(name: str) -> None:
    history = history_of(name)
    assert history.states()[-1] == files()
    assert history.files != files()
    assert len(history.commits) == TURNS
    assert history.source.startswith("starlette ")


@pytest.mark.slow
@pytest.mark.parametrize("make", [quiet, pytest.param(busy, marks=pytest.mark.slow)])
def test_the_same_package_gives_the_same_history(make: object) -> None:
    assert callable(make)
    again = make("starlette", dict(reversed(files().items())), 12)
    assert again.commits == make("starlette", files(), 12).commits


@pytest.mark.parametrize("name", chosen(["quiet", "busy"], "quiet"))
def test_every_commit_adds_whole_lines_and_leaves_modules(name: str) -> None:
    history = history_of(name)
    for before, commit in zip(history.states(), history.commits, strict=False):
        for path, after in commit.changes.items():
            ast.parse(after)
            ast.parse(before[path])
            added = len(after.splitlines()) - len(before[path].splitlines())
            assert added > 0
            left = iter(after.splitlines())
            assert all(line in left for line in before[path].splitlines()), "the old lines are there, in their order"


@pytest.mark.slow
def test_the_quiet_history_stays_with_a_file_and_the_busy_one_does_not() -> None:
    one, other = history_of("quiet"), history_of("busy")
    assert {len(commit.changes) for commit in one.commits} == {1}
    assert len({path for commit in one.commits for path in commit.changes}) == 5
    assert {len(commit.changes) for commit in other.commits} == {2, 3, 4}
    assert len({path for commit in other.commits for path in commit.changes}) > 20


@pytest.mark.parametrize("name", chosen(["quiet", "busy"], "quiet"))
def test_a_commit_says_what_it_adds_and_where(name: str) -> None:
    for commit in history_of(name).commits:
        assert commit.message.startswith("Add ")
        assert all(f" in {path}" in commit.message for path in commit.changes)


def test_files_without_parts_make_no_history() -> None:
    with pytest.raises(ValueError, match="too small"):
        quiet("tiny", {"tiny/a.py": "x = 1\n"})
    with pytest.raises(ValueError, match="too small"):
        busy("tiny", {"tiny/a.py": "def f():\n    return 1\n"})
    few = {"tiny/a.py": "from tiny import b\n\n\ndef f():\n    return 1\n", "tiny/b.py": "def g():\n    return 1\n"}
    with pytest.raises(ValueError, match="too few parts for a history of 9 commits"):
        busy("tiny", few, 9)
    assert len(busy("tiny", few, 1).commits) == 1


def test_a_package_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no_such_package is not installed"):
        installed_files("no_such_package")

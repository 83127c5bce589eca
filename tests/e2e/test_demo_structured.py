"""Sessions that follow a git history, over HTTP: structured context costs no more than it may, and nothing is lost."""

import argparse
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli import main
from proxy.lab.demo.command import configure
from proxy.lab.demo.structured import GOALS, Commit, GitError, History, TurnForm, histories
from tests.documents import Page
from tests.git_repositories import needs_git, write_repository

ROWS = {"quiet": "quiet history: one file a commit", "busy": "busy history: two to four files a commit"}


@pytest.mark.slow
def test_the_histories_of_a_package_need_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [history.name for history in histories(None, 30)] == ["quiet", "busy"]


@needs_git
def test_a_repository_of_the_user_is_followed_by_its_last_commits(tmp_path: Path) -> None:
    files = {"a.py": "x = 1\n", "b.py": "import a\n"}
    commits = (Commit("Double it", {"a.py": "x = 2\n"}), Commit("Use it", {"b.py": "import a\n\nprint(a.x)\n"}))
    write_repository(History("mine", "made here", files, commits), tmp_path)
    (found,) = histories(tmp_path, 1)
    assert [commit.message for commit in found.commits] == ["Use it"]
    with pytest.raises(GitError, match="not a git repository"):
        histories(tmp_path / "..", 1)


@pytest.mark.parametrize("words", [["--repository", "."], ["--commits", "3"], ["panels", "--commits", "3"]])
def test_arguments_of_these_sessions_are_refused_without_them(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", *words])
    assert caught.value.code == 1
    assert "belong to `stratiform demo structured`" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["other"], ["structured", "--commits", "0"], ["structured", "--commits", "many"]])
def test_arguments_that_make_no_sense_are_refused(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(words)
    assert caught.value.code == 2


@needs_git
def test_a_folder_without_commits_ends_the_command_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", "structured", "--repository", str(tmp_path)])
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: git rev-list in {tmp_path}: ")
    assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_every_form_costs_no_more_than_it_may_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "structured", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    report: dict[str, Any] = orjson.loads(shown.out)
    assert [session["name"] for session in report["sessions"]] == ["quiet", "busy"]
    for session in report["sessions"]:
        assert session["losses"] == []
        forms = {form["form"]: form for form in session["forms"]}
        assert [form["requests"] for form in forms.values()] == [session["turns"]] * len(TurnForm)
        for form, (other, most) in GOALS.items():
            assert forms[form.value]["compared_with"] == other.value
            assert forms[form.value]["ratio"] <= most, f"{session['name']}: {form.value}"
        row = Page(Path("proxy/lab/demo/README.md")).row(ROWS[session["name"]])
        assert row == [f"{forms[form.value]['ratio']:.2f}" for form in (TurnForm.FULL_ALL, TurnForm.SYMBOLS)]
        assert forms[TurnForm.SYMBOLS.value]["prompt_tokens"] < forms[TurnForm.FULL_ALL.value]["prompt_tokens"] / 2
        assert forms[TurnForm.FULL_ALL.value]["uploaded_bytes"] < forms[TurnForm.EDITOR_ALL.value]["uploaded_bytes"] / 2


@pytest.mark.slow
@needs_git
def test_a_repository_of_the_user_goes_through_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "shop.py": "".join(f"def price_{n}(crate):\n    return crate.weight * {n}\n\n\n" for n in range(40)),
        "README.md": "# Shop\n\n```python\nimport shop\n```\n",
        "Makefile": "test:\n\tpytest\n",
    }
    changed = [files["shop.py"].replace(f"* {n}\n", f"* {n}.5\n") for n in range(3)]
    commits = (
        *(Commit(f"Change {n}", {"shop.py": text, "new.py": f"N = {n}\n"}) for n, text in enumerate(changed)),
        Commit("Drop new.py", {"new.py": None, "README.md": "# Shop, and nothing else\n"}),
    )
    write_repository(History("mine", "made here", files, commits), tmp_path)
    assert main(["demo", "structured", "--repository", str(tmp_path), "--commits", "4"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for words in ("repository: 4 commits", "20 requests over HTTP, each checked", "structured, symbols", "4/4"):
        assert words in shown.out


@pytest.mark.slow
@needs_git
def test_the_first_commit_of_a_repository_has_no_files_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(History("new", "made here", {"a.py": "x = 1\n"}, (Commit("", {"a.py": "x = 2\n"}),)), tmp_path)
    assert main(["demo", "structured", "--repository", str(tmp_path)]) == 0
    assert "repository: 2 commits, 1 files" in capsys.readouterr().out

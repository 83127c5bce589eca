"""``stratiform prompts diff``: folders, configurations and revisions, the cached prefix, and the bill."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from proxy.kit.clock import SystemClock
from proxy.storage import LedgerEntry
from tests.ledgers import write_ledger
from tests.prompt_files import prompt, write_config, write_prompts
from tests.whole import whole

RULES = "{folders: [ours], shipped: false, use: [base, rules], teams: {red: {use: [base, rules, tail]}}}"
OLD = {
    "base": prompt("You help with code.", position="system"),
    "rules": prompt("Write tests.", position="constraints"),
    "tail": prompt("Be short.", position="user_suffix"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a configuration, and the prompts ``ours`` before and ``changed`` after the change."""
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path, RULES)
    write_prompts(tmp_path / "ours", OLD)
    write_prompts(tmp_path / "changed", OLD)
    return tmp_path


@pytest.fixture
def diff(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str, status: int = 0) -> Any:
        assert main(["prompts", "diff", *words, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return run


def changed(folder: Path, **prompts: str) -> None:
    write_prompts(folder / "changed", prompts)


def test_equal_prompts_change_nothing(diff: Any) -> None:
    report = diff("ours", "changed", "--exit-code")
    assert (report["changes"], report["bill"]) == ([], None)
    assert report["old"]["version"] == report["new"]["version"]
    assert report["unchanged"] == 1


def test_a_change_in_the_system_text_says_from_which_token_on_the_prefix_is_lost(diff: Any, folder: Path) -> None:
    changed(folder, rules=prompt("Write good tests.", position="constraints"))
    (change,) = diff("ours", "changed", "--exit-code", status=1)["changes"]
    assert change["prefix_lost"] is True
    assert 5 < change["kept_tokens"] < change["tokens"]["system"][0] < change["tokens"]["system"][1]
    assert "-Write tests." in change["diff"]
    assert "+Write good tests." in change["diff"]


def test_a_change_around_the_newest_message_keeps_the_prefix(diff: Any, folder: Path) -> None:
    changed(folder, tail=prompt("Be very short.", position="user_suffix"))
    (change,) = diff("ours", "changed", "--exit-code")["changes"]
    assert (change["prefix_lost"], change["kept_tokens"]) == (False, None)
    before, after = change["tokens"]["user"]
    assert after > before


def test_each_kind_of_request_is_compared_by_the_rules_of_the_configuration(diff: Any, folder: Path) -> None:
    changed(folder, tail=prompt("Be very short.", position="user_suffix"))
    report = diff("ours", "changed", "--config", "config.yaml")
    (change,) = report["changes"]
    assert [one["team"] for one in change["variants"]] == ["red"]
    assert change["variants"][0]["models"] == ["sonnet", "gpt", "mini", "assistant"]
    assert report["unchanged"] == 1


def test_kinds_of_requests_with_the_same_texts_are_shown_together(diff: Any, folder: Path) -> None:
    section = "{folders: [ours], shipped: false, use: [base], models: {gpt: {use: [base]}, mini: {use: [base, rules]}}}"
    write_config(folder, section)
    changed(folder, base=prompt("You code.", position="system"))
    both, mini = diff("ours", "changed", "--config", "config.yaml")["changes"]
    assert [one["models"] for one in both["variants"]] == [["sonnet"], ["gpt", "assistant"]]
    assert [one["models"] for one in mini["variants"]] == [["mini"]]


def test_a_changed_configuration_is_compared(diff: Any, folder: Path) -> None:
    write_config(folder, RULES.replace("use: [base, rules],", "use: [base],"), "new.yaml")
    report = diff("config.yaml", "new.yaml")
    (change,) = report["changes"]
    assert [one["team"] for one in change["variants"]] == [None], "team red has rules of its own"
    assert change["diff"][-2:] == ["-", "-Write tests."] or "-Write tests." in change["diff"]


def test_personas_that_clients_may_choose_are_kinds_of_their_own(diff: Any, folder: Path) -> None:
    persona = {"id": "'persona:reviewer'", "position": "system", "priority": 5}
    write_prompts(folder / "ours", {"reviewer": prompt("You review.", **persona)})
    changed(folder, reviewer=prompt("You judge.", **persona))
    (change,) = diff("ours", "changed")["changes"]
    assert [one["persona"] for one in change["variants"]] == ["reviewer"]


def test_each_given_context_is_compared(diff: Any, folder: Path) -> None:
    front = {"position": "system", "conditions": "[{field: custom.a, operator: eq, value: 1}]"}
    write_prompts(folder / "ours", {"more": prompt("Old.", **front)})
    changed(folder, more=prompt("New.", **front))
    (folder / "one.json").write_text('{"custom": {"a": 1}}')
    (folder / "two.json").write_text('{"custom": {"a": 2}}')
    report = diff("ours", "changed", "--context", "one.json", "--context", "two.json")
    (change,) = report["changes"]
    assert [one["context"] for one in change["variants"]] == ["one.json"]
    assert report["unchanged"] == 1


def test_what_goes_wrong_after_the_change_is_told(diff: Any, folder: Path) -> None:
    changed(folder, base=prompt("{{ custom.gone }}", position="system"))
    (change,) = diff("ours", "changed")["changes"]
    assert change["problems"] == {"old": None, "new": "'base' is left out: the template cannot be rendered"}


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(folder: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not here")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    write_prompts(folder / "ours", {"base": prompt("You code.", position="system")})
    return folder


@pytest.mark.parametrize("place", ["ours", "./ours", "config.yaml"])
def test_a_revision_is_compared_with_the_working_tree(diff: Any, repository: Path, place: str) -> None:
    change = diff(f"HEAD:{place}", place)["changes"][0]
    assert "-You help with code." in change["diff"]
    assert "+You code." in change["diff"]


def test_a_revision_is_read_without_links_that_lead_out_of_the_repository(diff: Any, repository: Path) -> None:
    links = repository / "ours" / "outside.md", repository / "ours" / "inside.md"
    for link, target in zip(links, ("/etc/hostname", "tail.md"), strict=True):
        link.symlink_to(target)
    write_config(repository, "{folders: [ours], shipped: false, use: [base, inside]}")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "links")
    for link in links:
        link.unlink()
    (change,) = diff("HEAD:config.yaml", "config.yaml")["changes"]
    assert "-Be short." in change["diff"], "a link within the repository is followed"


def test_a_revision_is_found_from_a_folder_below(diff: Any, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "below").mkdir()
    monkeypatch.chdir(repository / "below")
    assert diff("HEAD:../ours", "../ours")["changes"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "nowhere: there is no such file or folder"),
        ("HEAD:nowhere", "git cat-file: "),
        ("nonsense:ours", "git cat-file: "),
        ("--output=x:ours", "--output=x: is no revision"),
        ("HEAD:/etc", "lies outside of the repository"),
    ],
)
def test_a_place_that_is_none_is_told_in_one_line(
    repository: Path, place: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prompts", "diff", "--", place, "ours"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert message in told


def test_the_change_is_printed_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, base=prompt("You code.", position="system"))
    assert main(["prompts", "diff", "ours", "changed"]) == 0
    printed = capsys.readouterr().out
    assert "cached prefix: lost from token" in printed
    assert "-You help with code." in printed
    assert "kinds of requests that change: 1; that do not: 0" in printed


def test_no_terminal_obeys_what_a_prompt_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, base=prompt("You \x1b]0;owned\x07code\x9b2J.", position="system"))
    assert main(["prompts", "diff", "ours", "changed"]) == 0
    assert main(["prompts", "render", "--folder", "changed"]) == 0
    printed = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(printed)
    assert printed.count(r"You \x1b]0;owned\x07code\x9b2J.") == 2


def entries(team: str, requests: int, **tokens: int) -> list[LedgerEntry]:
    """One session: the first request writes its prompt, and the others read it."""
    now = SystemClock().now() - 86_400
    first = {"read_tokens": 0, "write_5m_tokens": 10_000}
    return [
        LedgerEntry(
            f"{team}{n}", now + n * 60, team, model="sonnet", status=200, output_tokens=50, cost=10_000_000,
            **(first if n == 0 else {"read_tokens": 10_000, "write_5m_tokens": 500, **tokens}),
        )
        for n in range(requests)
    ]  # fmt: skip


def test_the_bill_has_the_changed_size_of_each_request_and_one_write_for_each_session(diff: Any, folder: Path) -> None:
    write_ledger(folder / "spend.sqlite", [*entries("red", 11), *entries("blue", 1)])
    changed(folder, rules=prompt("Write good tests.", position="constraints"))
    bill = diff("ours", "changed", "--config", "config.yaml", "--ledger")["bill"]
    assert bill["is_estimate"] is True
    red, blue = bill["lines"]
    assert (red["team"], red["requests"], red["sessions"], red["system_tokens"]) == ("red", 11, 1, 1)
    # Sonnet: 0.30 USD for a million tokens that are read, 3.75 for those that are written.
    assert red["requests_usd"] == pytest.approx((10 * 0.30 + 3.75) / 1e6)
    (change,) = diff("ours", "changed")["changes"]
    kept = change["kept_tokens"]
    assert red["session_usd"] == pytest.approx((10_000 - kept) * (3.75 - 0.30) / 1e6)
    assert red["once_usd_at_most"] == red["session_usd"]
    assert 0 < red["once_usd"] < red["once_usd_at_most"]
    assert blue["session_usd"] == 0.0, "nothing was ever read from the cache"
    assert bill["requests_usd"] == pytest.approx(red["requests_usd"] + blue["requests_usd"])


def test_a_change_behind_the_newest_message_costs_no_write_of_the_prefix(diff: Any, folder: Path) -> None:
    write_ledger(folder / "spend.sqlite", [*entries("red", 11), *entries("blue", 2)])
    changed(folder, tail=prompt("Be very short.", position="user_suffix"))
    red, blue = diff("ours", "changed", "--config", "config.yaml", "--ledger")["bill"]["lines"]
    assert (red["user_tokens"], red["session_usd"]) == (1, 0.0)
    assert red["requests_usd"] == pytest.approx(11 * 3.75 / 1e6)
    assert (blue["user_tokens"], blue["requests_usd"]) == (0, 0.0)


def test_the_ledger_of_a_running_proxy_is_read(folder: Path, diff: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-master")
    write_ledger(folder / "spend.sqlite", entries("red", 3))
    changed(folder, rules=prompt("Write good tests.", position="constraints"))
    with whole(folder, (folder / "config.yaml").read_text()) as url:
        bill = diff("ours", "changed", "--config", "config.yaml", "--ledger", "--url", url)["bill"]
    assert [line["requests"] for line in bill["lines"]] == [3]


def test_the_bill_is_printed_as_an_estimate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ledger(folder / "spend.sqlite", entries("red", 3))
    changed(folder, rules=prompt("Write good tests.", position="constraints"))
    assert main(["prompts", "diff", "ours", "changed", "--config", "config.yaml", "--ledger"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "their bill would differ by +0.0000 USD" in printed
    assert "This is an estimate: " in printed


def test_an_empty_ledger_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompts", "diff", "ours", "changed", "--config", "config.yaml", "--ledger"]) == 0
    assert "the ledger has no requests of the last 30 days" in capsys.readouterr().out


def test_a_ledger_needs_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompts", "diff", "ours", "changed", "--ledger"]) == 1
    assert "--ledger: needs a configuration" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["--store", "--url"])
def test_a_ledger_that_would_not_be_read_is_refused(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["prompts", "diff", "ours", "changed", where, "sqlite:spend.sqlite"])
    assert capsys.readouterr().err == "error: --store and --url say whose ledger is read: they need --ledger\n"

"""``stratiform teams|keys|budgets|spend``, on a store and through a proxy that runs."""

import csv
import io
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from proxy.cli.admin_client import names
from proxy.storage import LedgerEntry
from proxy.storage.database import SERVING_WAIT_S
from tests.ledgers import write_ledger
from tests.strangers import BODIES, stranger
from tests.whole import whole

CONFIG = """
model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: "http://127.0.0.1:9/v1"}}]
general_settings: {master_key: sk-master}
stratiform:
  store: sqlite:spend.sqlite
  teams: [{name: red, keys: [sk-red], budget: {usd: 5}}]
"""

Run = Callable[..., str]


@pytest.fixture(params=["store", "url"])
def run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs a command and gives what it printed; the same commands on the store and over HTTP."""

    def with_(where: list[str]) -> Run:
        def command(*words: str) -> str:
            assert main([*words, *where]) == 0
            return capsys.readouterr().out

        return command

    (tmp_path / "config.yaml").write_text(CONFIG)
    if request.param == "store":
        yield with_(["--config", str(tmp_path / "config.yaml")])
        return
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-master")
    with whole(tmp_path, CONFIG) as url:
        yield with_(["--url", url])


def as_json(text: str) -> Any:
    return json.loads(text)


def test_teams_are_made_changed_listed_and_deleted(run: Run) -> None:
    run("teams", "create", "blue", "--models", "gpt-*, sonnet", "--rpm", "60", "--client-keys", "forward")
    blue = as_json(run("teams", "update", "blue", "--rpm", "none", "--mode", "observe", "--json"))
    assert (blue["models"], blue["requests_per_minute"], blue["mode"]) == (["gpt-*", "sonnet"], None, "observe")
    table = run("teams", "list")
    assert re.search(r"blue +observe +gpt-\*, sonnet", table)
    assert re.search(r"red .* yes", table)
    assert "blue" in run("teams", "delete", "blue")
    assert "blue" not in run("teams", "list")


def test_a_key_is_printed_once_and_revoked_by_its_id(run: Run) -> None:
    printed = run("keys", "create", "--team", "red", "--user", "alice", "--expires", "90d", "--note", "laptop")
    (secret,) = re.findall(r"sk-strat-[A-Za-z0-9]{43}", printed)
    assert printed.splitlines()[-1] == secret, "a line of its own, to be copied"
    listed = run("keys", "list", "--team", "red")
    assert secret not in listed
    (key_id,) = re.findall(r"^(key-\S+) +red +alice +active", listed, re.MULTILINE)
    assert as_json(run("keys", "update", key_id, "--tpm", "1000", "--json"))["tokens_per_minute"] == 1000
    assert "revoked" in run("keys", "revoke", key_id)
    assert "yes" in run("keys", "delete", key_id)
    assert key_id not in run("keys", "list")


@pytest.mark.slow
def test_what_a_budget_has_spent_is_corrected(run: Run) -> None:
    dry = as_json(run("budgets", "set-spent", "red/total", "1.25", "--dry-run", "--json"))
    assert (dry["spent_before"], dry["spent"], dry["left"], dry["dry_run"]) == (0.0, 1.25, 3.75, True)
    assert as_json(run("budgets", "list", "--json"))["data"][0]["spent"] == 0.0
    assert re.search(r"red/total .* 0 +1.25 +0 +3.75 ", run("budgets", "set-spent", "red/total", "1.25"))
    again = as_json(run("budgets", "set-spent", "red/total", "0.5", "--json"))
    assert (again["spent_before"], again["spent"]) == (1.25, 0.5)
    assert as_json(run("budgets", "list", "--json"))["data"][0]["left"] == 4.5
    run("budgets", "create", "--team", "red", "--scope", "user", "--tokens", "70", "--name", "each")
    ann = as_json(run("budgets", "set-spent", "red/each", "30", "--subject", "ann", "--json"))
    assert (ann["subject"], ann["spent"], ann["left"], ann["unit"]) == ("ann", 30, 40, "tokens")
    for user in ("ann", "bob"):
        run("keys", "create", "--team", "red", "--user", user)
    listed = as_json(run("budgets", "list", "--json"))["data"]
    (each,) = [one for one in listed if one["id"] == "red/each"]
    assert [(one["subject"], one["spent"], one["left"]) for one in each["counters"]] == [
        ("ann", 30, 40),
        ("bob", 0, 70),
    ]
    shown = [line.split() for line in run("budgets", "list").splitlines() if line.startswith("red/each")]
    assert [line[2] for line in shown] == ["*", "ann", "bob"], "each user has a line"
    assert {"30", "40"} <= set(shown[1])
    run("budgets", "create", "--team", "red", "--scope", "key", "--usd", "1", "--name", "keys")
    (keys,) = [one for one in as_json(run("budgets", "list", "--json"))["data"] if one["id"] == "red/keys"]
    assert len(keys["counters"]) == 3


def test_budgets_are_made_changed_and_say_what_is_left(run: Run) -> None:
    made = as_json(
        run("budgets", "create", "--team", "red", "--usd", "500", "--soft-usd", "400", "--window", "month",
            "--timezone", "Europe/Berlin", "--webhook", "https://hooks.example.com/x", "--json")
    )  # fmt: skip
    assert (made["id"], made["usd"], made["left"], made["webhook"]) == ("red/month", 500, 500, "hooks.example.com")
    assert re.search(r"red/month .* 600 +400 .* 600 ", run("budgets", "update", "red/month", "--usd", "600"))
    each = as_json(
        run("budgets", "create", "--team", "red", "--scope", "user", "--tokens", "7", "--name", "each", "--json")
    )
    assert (each["id"], each["tokens"]) == ("red/each", 7)
    assert {line.split()[0] for line in run("budgets", "list").splitlines()[1:]} == {
        "red/total", "red/month", "red/each",
    }  # fmt: skip
    assert run("budgets", "delete", "red/each")


def test_spend_is_reported_as_a_table_json_and_csv(run: Run, tmp_path: Path) -> None:
    entries = [
        LedgerEntry(
            "x1", 1_795_000_000.0, "red", "key-1", "alice", "m", read_tokens=100, cost=1_500_000_000, saved=10**9
        ),
        LedgerEntry("x2", 1_795_000_000.0, "blue", "key-2", "=cmd", "m", plain_tokens=7, cost=500_000_000),
    ]
    write_ledger(tmp_path / "spend.sqlite", entries)
    asked = ("spend", "--since", "2026-11-01", "--until", "2026-12-01")
    table = run(*asked, "--by", "team,model").splitlines()
    assert re.match(r"red +m +1 +100 +0 +0 +0 +1\.5 +1 +0", table[1])
    assert re.match(r"total .* 2 +1 +0", table[3])
    assert as_json(run(*asked, "--json"))["total"]["cost_usd"] == 2.0
    rows = list(csv.DictReader(io.StringIO(run(*asked, "--by", "user", "--csv"))))
    assert [(row["user"], row["cost_usd"]) for row in rows] == [("alice", "1.5"), ("'=cmd", "0.5")]
    ledger = [json.loads(line) for line in run(*asked, "--entries").splitlines()]
    assert {entry["exchange_id"] for entry in ledger} == {"x1", "x2"}
    assert len(list(csv.DictReader(io.StringIO(run(*asked, "--entries", "--csv"))))) == 2


def test_an_expiry_beyond_the_calendar_which_an_earlier_version_took_hides_no_key(run: Run, tmp_path: Path) -> None:
    printed = run("keys", "create", "--team", "red", "--expires", "90d")
    (key_id,) = re.findall(r"^(key-\S+) +red", printed, re.MULTILINE)
    with sqlite3.connect(tmp_path / "spend.sqlite") as store:
        changed = "update directory set record = json_set(record, '$.expires_at', 1e18) where name = ?"
        assert store.execute(changed, (key_id,)).rowcount == 1
        store.execute("update directory_version set version = version + 1")
    store.close()
    assert re.search(rf"{key_id} .* 9999-12-31 ", run("keys", "list"))


def test_names_in_reports_of_spend_cannot_command_a_terminal(run: Run, tmp_path: Path) -> None:
    model = "m\x1b]0;owned\x07\x9b2J"
    write_ledger(tmp_path / "spend.sqlite", [LedgerEntry("x1", 1_795_000_000.0, "red", "key-1", "alice", model)])
    asked = ("spend", "--since", "2026-11-01", "--until", "2026-12-01")
    summed, entry = run(*asked, "--by", "model", "--json"), run(*asked, "--entries")
    assert [row["model"] for row in (*as_json(summed)["data"], as_json(entry))] == [model, model]
    sheets = [run(*asked, *words, "--csv") for words in (["--by", "model"], ["--entries"])]
    for sheet in sheets:
        assert [row["model"] for row in csv.DictReader(io.StringIO(sheet))] == [r"m\x1b]0;owned\x07\x9b2J"]
    assert not {"\x1b", "\x07", "\x9b"} & {*summed, *entry, *"".join(sheets)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("teams", "create", "red"), "error: There is a team 'red' already."),
        (("keys", "create", "--rpm", "many"), "error: --rpm: must be a number, or none"),
        (("spend", "--by", "planet"), "error: 'by' must be some of team, key, user, model, day"),
    ],
)
def test_a_wrong_command_prints_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], words: Any, message: str
) -> None:
    with pytest.raises((SystemExit, AssertionError)):
        run(*words)
    told = capsys.readouterr().err
    assert told.startswith(message)
    assert told.count("\n") == 1


@pytest.mark.parametrize("words", [["--csv", "--json"], ["--entries", "--by", "team"]])
def test_options_of_spend_that_would_be_ignored_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["spend", *words, "--store", "sqlite:none.sqlite"])
    assert capsys.readouterr().err.startswith(("error: print either --csv or --json", "error: --by is for the sums"))


# Where


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that fails says."""
    status: object = None
    try:
        status = main(words)
    except SystemExit as error:
        status = error.code
    assert status == 1
    return capsys.readouterr().err


def test_a_command_must_know_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRATIFORM_MASTER_KEY", raising=False)
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)
    assert "use --config FILE, --store or --url" in fails(capsys, "keys", "list")
    assert "--store: must be sqlite:PATH or redis://HOST:PORT/DB" in fails(capsys, "keys", "list", "--store", "x")
    assert "is memory" in fails(capsys, "keys", "list", "--store", "memory")
    assert "the master key is missing" in fails(capsys, "keys", "list", "--url", "http://127.0.0.1:1")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    assert "does not answer as a proxy does" in fails(capsys, "keys", "list", "--url", "http://127.0.0.1:1")
    assert "does not answer as a proxy does" in fails(capsys, "keys", "list", "--url", "no url")
    (tmp_path / "config.yaml").write_text(CONFIG.replace("sk-red", "os.environ/NOT_SET_HERE"))
    assert "--store" in fails(capsys, "keys", "list")


def test_a_wrong_master_key_and_a_proxy_without_one_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-wrong")
    with whole(tmp_path, CONFIG) as url:
        told = fails(capsys, "keys", "list", "--url", f"{url}/v1/")
        assert "needs the proxy's master key" in told
        assert "sk-wrong" not in told
    with whole(tmp_path, CONFIG.replace("general_settings: {master_key: sk-master}", "")) as url:
        assert "this proxy has no admin API" in fails(capsys, "keys", "list", "--url", url)


@pytest.mark.slow
def test_a_command_waits_for_a_proxy_that_is_busy_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    where = ["--config", str(tmp_path / "config.yaml")]
    monkeypatch.chdir(tmp_path)
    assert main(["teams", "list", *where]) == 0
    (path,) = tmp_path.glob("**/spend.sqlite")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            held.set()
            done.wait(1.5 * SERVING_WAIT_S)
            other.execute("COMMIT")

    busy = threading.Thread(target=hold)
    busy.start()
    assert held.wait(60)
    assert main(["keys", "create", "--team", "red", *where]) == 0
    done.set()
    busy.join()


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("words", [["teams", "list"], ["spend"], ["top", "--once"], ["top", "--session", "a"]])
def test_a_server_that_is_no_proxy_is_told_in_one_line(
    words: list[str], body: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-master")
    with stranger(body) as url:
        assert "does not answer as a proxy does" in fails(capsys, *words, "--url", url)


@pytest.mark.parametrize(("code", "shown"), [(c, f"\\x{c:02x}") for c in (0x07, 0x0D, 0x1B, 0x7F, 0x9B)])
def test_names_that_clients_chose_do_not_command_the_terminal(
    code: int, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = LedgerEntry("x", 9.0, "red", "key-1", model=f"m{chr(code)}]0;owned", user="u", cost=10**9)
    write_ledger(tmp_path / "spend.sqlite", [entry])
    assert main(["spend", "--by", "model", "--since", "1", "--store", f"sqlite:{tmp_path / 'spend.sqlite'}"]) == 0
    printed = capsys.readouterr().out
    assert f"m{shown}]0;owned" in printed
    assert chr(code) not in printed


@pytest.mark.parametrize("words", [["spend", "--team"], ["keys", "create", "--note"]])
def test_an_argument_that_is_not_utf_8_is_told_in_one_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = fails(capsys, *words, "\udcff", "--store", f"sqlite:{tmp_path / 'spend.sqlite'}")
    assert told == "error: an argument is not valid UTF-8\n"


def test_names_have_commas_between_them() -> None:
    assert names("a, b,,c ") == ["a", "b", "c"]

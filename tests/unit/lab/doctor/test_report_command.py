"""``stratiform doctor``: what a person sees, what a program reads, and with which status the command ends."""

import os
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from proxy.cli import main
from proxy.lab.doctor import DiagnosedClient, count_entry, name_pieces
from proxy.lab.doctor.records import Problem
from proxy.lab.doctor.report import ClientReport, CulpritReport, ModeReport, Report
from proxy.storage import LedgerEntry
from tests import doctor_logs as logs
from tests.ledgers import write_ledger
from tests.strangers import BODIES, stranger
from tests.whole import whole

_DOCTOR = Path(__file__).parents[4] / "proxy" / "lab" / "doctor"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return _written(tmp_path, logs.recording(logs.talk()))


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(content)
    return path


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["doctor", *words, "--json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def test_the_text_names_the_culprit_the_price_and_the_remedy(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(log)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("helper  12 calls, 1 session, claude-sonnet-4-6\n")
    assert "  hit ratio 0.0%; each context was written " in printed
    assert "  1. line 3 of your system text is a clock: $" in printed
    assert " a month; put it behind the last user message, or let mode tier do it: $" in printed
    assert [line.split()[0] for line in printed.splitlines() if line.startswith("  ") and line[2:3].isalpha()][-3:] == [
        "passthrough",
        "mark",
        "tier",
    ]
    assert "a month are lost at this rate" in printed
    assert logs.SECRET not in printed


def test_json_has_the_form_that_the_schema_says(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = orjson.loads((_DOCTOR / "report.schema.json").read_bytes())
    found = _json(capsys, str(log))
    jsonschema.validate(found, schema)
    for form, told in (
        (Report, schema),
        (ClientReport, schema["$defs"]["client"]),
        (CulpritReport, schema["$defs"]["culprit"]),
        (ModeReport, schema["$defs"]["mode"]),
        (Problem, schema["$defs"]["problem"]),
    ):
        assert list(told["properties"]) == told["required"] == [field.name for field in fields(form)]


def test_a_name_commands_no_terminal_and_turns_no_line_around(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turned = "\x1b[2J\u202eevil\u2066\nsecond line\x9b"
    log = _written(tmp_path, logs.recording(logs.talk(3)).replace(b'"helper"', orjson.dumps(turned)))
    assert main(["doctor", str(log), "--html", str(tmp_path / "page.html")]) == 0
    for shown in (capsys.readouterr().out, (tmp_path / "page.html").read_text()):
        assert r"\x1b[2J\u202eevil\u2066 second line\x9b" in shown
        assert not set(turned) & set(shown) - set("[2Jevilsecond \n")


def test_a_page_is_written_beside_the_text(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(log), "--html", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert "helper" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["doctor", str(log), "--html", str(tmp_path / "no" / "page.html")])
    assert "cannot be written" in capsys.readouterr().err


def test_a_pipeline_fails_over_the_waste_that_it_allows(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waste = _json(capsys, str(log))["waste_usd_month"]
    assert main(["doctor", str(log), "--fail-over", str(waste + 1)]) == 0
    assert main(["doctor", str(log), "--fail-over", str(waste - 1)]) == 1
    assert capsys.readouterr().err.startswith("error: $")


def test_a_pipeline_fails_where_nobody_can_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [orjson.loads(line) for line in logs.recording(logs.talk()).splitlines()]
    log = _written(tmp_path, logs.json_lines([{k: v for k, v in row.items() if k != "t"} for row in rows]))
    assert main(["doctor", str(log), "--fail-over", "1000000"]) == 1
    assert "--fail-over cannot be answered" in capsys.readouterr().err


def test_what_cannot_be_read_is_told_in_one_sentence_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = logs.recording(logs.talk(4)).splitlines(keepends=True)
    log = _written(tmp_path, b"".join([good[0], b'{"t": 1, "requ\n', *good[1:], b'\xff\xfe{"t"\n']))
    empty, missing = tmp_path / "empty.jsonl", tmp_path / "none.jsonl"
    empty.touch()
    assert main(["doctor", str(log), str(empty), str(missing)]) == 0
    printed = capsys.readouterr().out
    assert "helper  4 calls" in printed
    assert f"{log}:2: the line is no JSON object; perhaps it is torn\n" in printed
    assert f"{log}:6: the line holds text that is not valid UTF-8\n" in printed
    assert f"{empty}: is empty\n" in printed
    assert f"{missing}: cannot be read: No such file or directory\n" in printed


def test_a_file_whose_name_is_no_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, page = tmp_path / os.fsdecode(b"odd\xff.jsonl"), tmp_path / "page.html"
    log.write_bytes(b'{"a": 1}\n')
    assert main(["doctor", "--json", "--html", str(page), str(log)]) == 1
    assert orjson.loads(capsys.readouterr().out)["problems"][0]["file"] == f"{tmp_path}/odd\\udcff.jsonl"
    assert "odd\\udcff.jsonl" in page.read_text()


def test_without_any_call_the_command_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path / "none")]) == 1
    assert "none: cannot be read: No such file or directory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name either the logs to read, or a running proxy"),
        (["x", "--url", "http://127.0.0.1:1"], "name either the logs to read, or a running proxy"),
        (["x", "--since", "30d"], "--since needs --url"),
        (["--url", "http://127.0.0.1:1", "--profile", "anthropic"], "--profile is for logs"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", *words])
    assert told in capsys.readouterr().err


_CONFIG = """
model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: "http://127.0.0.1:9/v1"}}]
general_settings: {master_key: sk-master}
stratiform: {store: "sqlite:spend.sqlite"}
"""


def test_a_running_proxy_tells_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    entries = [
        LedgerEntry(
            f"x{n}", now - 7200 + n * 600, "red", "key-1", model="m", read_tokens=300, plain_tokens=100, cost=10**9
        )
        for n in range(10)
    ]
    write_ledger(tmp_path / "spend.sqlite", entries)
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-master")
    with whole(tmp_path, _CONFIG) as url:
        found = _json(capsys, "--url", url)
    (client,) = found["clients"]
    assert (client["client"], client["calls"], client["hit_ratio"], client["usd"]) == ("key-1", 10, 0.75, 10.0)
    assert client["hours"] == pytest.approx(1.5)
    assert "stratiform spend" in client["modes_untold"]
    assert len(client["gaps"]) == 1


def test_the_sessions_of_a_proxy_name_pieces_of_breaks_that_its_ledger_knows() -> None:
    clients: dict[str, DiagnosedClient] = {}
    for at in range(3):
        count_entry(clients, {"key_id": "k", "at": at, "plain_tokens": 9, "break_kind": "changed", "break_usd": 2.0})
    told = {"kind": "changed", "culprit": "system:system", "is_waste": True, "line": 3, "lost": 70, "usd": 2.5}
    for diagnosis in ([told, {**told, "kind": "expired"}, {"kind": ""}, 7], "none", [{**told, "usd": "much"}]):
        name_pieces(clients, {"key": "k", "diagnosis": diagnosis})
    name_pieces(clients, {"key": "another", "diagnosis": [told]})
    found = {(culprit.piece, culprit.line): loss for culprit, loss in clients["k"].losses.items()}
    assert {place: (loss.breaks, loss.usd) for place, loss in found.items()} == {
        ("", 0): (1, 3.5),
        ("system", 3): (2, 2.5),
    }
    assert sum(loss.usd for loss in found.values()) == 6.0


@pytest.mark.parametrize("body", BODIES)
def test_a_server_that_is_no_proxy_is_told_in_one_line(
    body: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-master")
    with stranger(body) as url, pytest.raises(SystemExit) as caught:
        main(["doctor", "--url", url])
    assert caught.value.code == 1
    assert "does not answer as a proxy does" in capsys.readouterr().err

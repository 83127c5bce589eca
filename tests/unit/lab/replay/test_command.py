"""``stratiform replay``: what it prints and writes, how it fails, its comparison, and every recorded session."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli import main
from proxy.lab.replay.comparison import COLUMNS
from proxy.planner import TierPlanner
from tests.fidelity.recorded import trace_files
from tests.unit.lab.replay.sessions import growing, lines, write

SHORT = ("--short-life",)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "first.jsonl", lines(growing(3)))


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["replay", "--json", *arguments]) == 0
    return dict(orjson.loads(capsys.readouterr().out))


def test_json_has_every_figure(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, str(trace))
    assert (found["profile"], found["mode"], found["policy"]) == ("anthropic", "tier", "economic")
    (one,) = found["traces"]
    assert (one["name"], one["requests"], one["violations"], one["surprises"]) == ("first", 3, [], [])
    assert set(one["policies"]) == {"as sent", "client's own", "system + last", "stratiform"}
    ours = one["policies"]["stratiform"]
    assert ours["read"] + ours["write_5m"] + ours["write_1h"] + ours["plain"] == ours["prompt_tokens"]
    assert ours["hit_rate"] == pytest.approx(ours["read"] / ours["prompt_tokens"])
    assert one["policies"]["as sent"]["share"] == 1.0
    assert one["against_cheapest"] == pytest.approx(ours["share"] / one["policies"]["system + last"]["share"])
    assert sum(one["reasons"].values()) == 3
    assert found["summary"]["shares"]["stratiform"] == pytest.approx(ours["share"])
    assert found["summary"]["violations"] == 0


def test_options_reach_the_replay(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, str(trace), "--profile", "deepseek", "--mode", "observe", "--policy", "classic")
    assert (found["profile"], found["mode"], found["policy"]) == ("deepseek", "observe", "classic")
    assert found["traces"][0]["reasons"] == {"observe-mode": 3}
    high = report(capsys, str(trace), "--min-tokens", "1000000")
    assert high["traces"][0]["reasons"] == {"below-minimum": 3}
    assert high["traces"][0]["policies"]["system + last"]["read"] == 0


@pytest.mark.slow
def test_the_hour_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Pauses of ten minutes, which an hour bridges.
    path = write(tmp_path / "paused.jsonl", lines(growing(12, gap_s=600.0)))
    hour, minutes = (report(capsys, str(path), *more)["traces"][0]["policies"]["stratiform"] for more in ((), SHORT))
    assert hour["write_1h"] > 0 == minutes["write_1h"]
    compared = [report(capsys, str(path), "--compare", *more)["traces"][0]["shares"] for more in ((), SHORT)]
    assert [shares["economic"] for shares in compared] == pytest.approx([hour["share"], minutes["share"]])
    assert hour["share"] < minutes["share"]


def test_rules_that_no_source_states_can_turn_out_badly(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = [
        report(capsys, str(trace), "--profile", "vllm", "--unknowns", unknowns)["summary"]["shares"]["as sent"]
        for unknowns in ("pessimistic", "default", "optimistic")
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


def test_the_table_has_a_line_for_each_trace_and_one_for_all(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "second.jsonl", lines(growing(4)))
    assert main(["replay", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert [row[0] for row in rows[1:4]] == ["first", "second", "geometric"]
    assert rows[1][1] == "3"
    assert rows[3][2] == "7"
    assert all("ok" in row for row in rows[1:4])
    assert printed.err == ""


def test_out_holds_the_requests_as_they_would_be_forwarded(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "sent.jsonl"
    assert main(["replay", str(trace), "--out", str(out)]) == 0
    written = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["t"] for row in written] == [1000.0, 1010.0, 1020.0]
    assert [row["session"] for row in written] == ["s"] * 3
    assert "cache_control" in str(written[2]["request"]["messages"])
    # What was written can be replayed; its markers are then the client's own, and cost what ours cost.
    again = tmp_path / "again.jsonl"
    assert main(["replay", str(out), "--out", str(again), "--mode", "passthrough"]) == 0
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"t": 1}', "bad.jsonl:1: 'request' is missing"),
        (b"", "bad.jsonl: no requests"),
        (b'{"t": 1, "request": {"model": "m", "messages": []}}', "bad.jsonl:1: 'request' is no chat request"),
    ],
)
def test_a_bad_file_is_named_without_a_traceback(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(content + b"\n")
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(trace), str(bad)])
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.err.startswith("error: ")
    assert problem in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_a_file_that_cannot_be_written(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(trace), "--out", str(tmp_path / "no" / "folder")])
    assert ended.value.code == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--min-tokens", "-1"], ["--profile", "x"], ["--mode", "x"], ["--policy", "x"]])
def test_wrong_options_are_refused(trace: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(trace), *arguments])
    assert ended.value.code == 2
    assert "argument " + arguments[0] in capsys.readouterr().err


def test_harm_and_surprises_are_shown_and_fail(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = TierPlanner.plan

    def harmful(self: TierPlanner, request: bytes, *rest: Any) -> Any:
        made = plan(self, request, *rest)
        return replace(made, body=made.body.replace(b"question 0", b"question 9"))

    monkeypatch.setattr(TierPlanner, "plan", harmful)
    assert main(["replay", str(trace)]) == 1
    printed = capsys.readouterr().out
    assert "3 violated" in printed
    assert "first: request 1: a user message that the client did not send here" in printed

    def surprised(self: TierPlanner, request: bytes, *rest: Any) -> Any:
        return replace(plan(self, request, *rest), surprise=KeyError("secret"))

    monkeypatch.setattr(TierPlanner, "plan", surprised)
    assert main(["replay", str(trace)]) == 1
    printed = capsys.readouterr().out
    assert "first: request 2: KeyError while planning" in printed
    assert "secret" not in printed


LONG = "second-and-as-long-as-names-of-traces-are"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "first.jsonl", lines(growing(3)))
    write(tmp_path / f"{LONG}.jsonl", lines(growing(4, gap_s=400.0)))
    return tmp_path


def test_json_of_a_comparison_has_every_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--compare", "--json", "--profile", "deepseek", str(folder / "first.jsonl")]) == 0
    found: dict[str, Any] = orjson.loads(capsys.readouterr().out)
    assert (found["profile"], found["mode"]) == ("deepseek", "tier")
    (one,) = found["traces"]
    assert (one["name"], one["kind"], one["requests"], one["violations"]) == ("first", "append-only", 3, [])
    assert set(one["shares"]) == set(COLUMNS)
    assert one["shares"]["free limit"] <= one["shares"]["best found"] <= one["shares"]["economic"]
    assert set(one["hit_rates"]) == set(one["write_waste"]) == set(COLUMNS) - {"fixed limit", "free limit"}
    assert set(one["gains"]) == {"fixed limit", "best found", "free limit"}
    assert [line["name"] for line in found["summary"]] == ["append-only"]


@pytest.mark.slow
def test_two_tables_with_a_line_for_each_trace_kind_and_all(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--compare", str(folder), "--plot", str(folder / "out.svg")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 152  # 140 where rich is 14 or newer
    for name in ("first", "append-only, 1", LONG[:37], "mutable, 1", "all, 2"):
        assert sum(line.startswith(name + " ") for line in printed) == 2
    assert printed[printed.index(next(line for line in printed if line.startswith(LONG[:37]))) + 1].strip() == LONG[37:]
    assert ElementTree.parse(folder / "out.svg").getroot().attrib["role"] == "img"


@pytest.mark.parametrize("options", [["--plot", "x.svg"], ["--compare", "--out", "x.jsonl"]])
def test_options_that_do_not_go_together(options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["replay", str(folder), *options])
    assert capsys.readouterr().err.startswith("error: --compare")


@pytest.mark.slow
def test_a_broken_trace_among_others_ends_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "third.jsonl").write_text("nonsense\n")
    with pytest.raises(SystemExit, match="1"):
        main(["replay", "--compare", str(folder)])
    assert "third.jsonl:1" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["replay", "--compare", str(folder / "first.jsonl"), "--plot", str(folder / "none" / "out.svg")])
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_recorded_sessions_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = trace_files()[::4]  # the others are replayed in e2e/test_traces.py
    if not files:
        pytest.skip("no recorded sessions here")
    out = tmp_path / "sent.jsonl"
    assert main(["replay", *map(str, files), "--profile", "anthropic", "--json", "--out", str(out)]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert len(found["traces"]) == len(files)
    for trace in found["traces"]:
        assert (trace["violations"], trace["surprises"]) == ([], [])
        assert [policy["refused"] for policy in trace["policies"].values()] == [0] * 4
    with out.open("rb") as sent:
        assert sum(1 for _ in sent) == found["summary"]["requests"]


_INTERRUPTING = """
import multiprocessing, os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "proxy.lab.replay.command" and multiprocessing.parent_process() is not None:
            os.killpg(0, signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.slow
def test_an_interrupt_of_all_processes_of_a_comparison_is_quiet(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_INTERRUPTING)
    (script := tmp_path / "stratiform.py").write_text(
        "import sys, proxy.kit\nif __name__ == '__main__':\n    sys.exit(proxy.kit.main())\n"
    )
    command = [sys.executable, str(script), "replay", str(folder), "--compare"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, check=False, env=environment, start_new_session=True)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (130, False)

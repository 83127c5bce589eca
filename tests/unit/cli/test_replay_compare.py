"""``stratiform replay --compare``: tables, JSON and picture, and how it fails."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli import main
from proxy.replay.comparison import COLUMNS
from tests.unit.replay.sessions import growing, lines, write

LONG = "second-and-as-long-as-names-of-traces-are"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "first.jsonl", lines(growing(3)))
    write(tmp_path / f"{LONG}.jsonl", lines(growing(4, gap_s=400.0)))
    return tmp_path


def test_json_has_every_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
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

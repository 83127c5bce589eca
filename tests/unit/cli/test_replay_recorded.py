"""Every recorded session, through the command: no harm, no surprise, and nothing refused."""

from pathlib import Path

import orjson
import pytest

from proxy.cli import main
from tests.fidelity.recorded import trace_files


@pytest.mark.slow
def test_every_recorded_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = trace_files()
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

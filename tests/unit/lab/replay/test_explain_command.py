"""``stratiform explain``: the layout of one request as a table and as JSON."""

from pathlib import Path

import orjson
import pytest

from proxy.cli import main
from proxy.lab.demo.chats import editor_chat
from tests.unit.lab.replay.sessions import lines, write


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "chat.jsonl", lines(editor_chat().trace()))


def test_json_has_a_row_for_each_piece(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(trace), "--request", "5", "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert (found["trace"], found["request"], found["requests"], found["session"]) == ("chat", 5, 24, "editor")
    assert set(found["rows"][0]) == {"position", "segment", "tier", "what", "tokens", "marker", "read_again", "reason"}
    assert [row["position"] for row in found["rows"]] == sorted(row["position"] for row in found["rows"])
    assert any("file:shop/ledger.py" in row["what"] for row in found["rows"])
    assert set(found["predicted"]) == {"read", "write_5m", "write_1h", "plain", "hit"}


def test_the_table_ends_with_the_plan_and_both_bills(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(trace), "--request", "5"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "chat, request 5 of 24"
    assert printed[1].split() == ["at", "segment", "tier", "what", "tokens", "marker", "read", "again", "why"]
    assert printed[-4].startswith("plan: ")
    assert printed[-3] == "sent: rewritten"
    assert printed[-2].startswith("predicted bill: read ")
    assert printed[-1].startswith("bill of the client's own layout: read 0, written 0, plain ")


def test_the_last_request_is_meant_where_none_is_named(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(trace)]) == 0
    assert "request 24 of 24" in capsys.readouterr().out


def test_a_plan_without_a_draft_is_explained_too(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(trace), "--mode", "passthrough"]) == 0
    printed = capsys.readouterr().out
    assert "plan: passthrough-mode (the mode asks for no change: the request is sent as it came)" in printed
    assert "predicted bill: not known" in printed


@pytest.mark.parametrize("number", ["0", "25", "-1"])
def test_a_request_that_is_not_there(trace: Path, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(trace), "--request", number])
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {trace}: --request must be between 1 and 24\n"


def context(path: Path, content: dict[str, object]) -> Path:
    """A recorded request with one selected file."""
    section = {"files": [{"path": "a.py", "selected": True, **content}], "assembly": "flat"}
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stratiform": section}
    path.write_bytes(orjson.dumps({"t": 0, "session": "s", "request": body}))
    return path


def test_structured_context_is_shown_as_it_is_assembled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(context(tmp_path / "s.jsonl", {"content": "a = 1"}))]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert any("file:a.py" in line for line in printed)
    assert "sent: as it was assembled" in printed


def test_a_digest_without_a_content_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", str(context(tmp_path / "s.jsonl", {"digest": "0" * 64}))])
    assert "error: the request at t = 0.0 of session 's'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["explain"], ["replay"], ["replay", "--compare"]])
def test_what_a_replay_leaves_out_is_told(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = {"prompts": {"persona": "terse"}, "window": {"profile": "chat", "prefix": "p"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stratiform": section}
    path = tmp_path / "s.jsonl"
    path.write_bytes(orjson.dumps({"t": 0, "session": "s", "request": body}))
    assert main([command[0], str(path), *command[1:], "--json"]) == 0
    printed = capsys.readouterr()
    assert orjson.loads(printed.out)
    assert printed.err.startswith("s: 1 of 1 requests have 'stratiform.prompts' or 'stratiform.window'.")
    assert "composes no prompts" in printed.err

"""Who has a port that is taken, without what the program was told."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import taken_port
from proxy.cli.server import listen
from proxy.settings import ConfigError


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell who listens")
def test_of_the_process_that_has_the_port_no_argument_is_shown() -> None:
    script = (
        "import socket, sys; listener = socket.create_server(('127.0.0.1', 0)); "
        "print(listener.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, "--key=sk-secret"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with pytest.raises(ConfigError, match=rf"\(process {other.pid}\)") as caught:
            listen("127.0.0.1", port)
        assert "sk-secret" not in str(caught.value)
        assert other.stdin is not None
        other.stdin.close()


def test_where_nothing_is_told_of_processes_the_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken_port, "_PROC", tmp_path)
    assert taken_port.taken("127.0.0.1", 65535) == (
        "127.0.0.1:65535 is in use by another program; `--port 0` takes any free port"
    )

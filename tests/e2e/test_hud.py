"""``stratiform serve --hud`` as a process of its own whose standard error is a terminal."""

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

import pytest
from openai import OpenAI

from tests.examples import chosen
from tests.pages import OPEN
from tests.services import STRATIFORM
from tests.waiting import until


@pytest.mark.parametrize(("encoding", "bar"), chosen([("utf-8", "█"), ("ascii", r"\?")], ("utf-8", "█")))
def test_the_terminal_shows_each_request_in_its_tiers(tmp_path: Path, encoding: str, bar: str) -> None:
    file, heard = tmp_path / "config.yaml", bytearray()
    file.write_text(OPEN.replace("store: memory", "store: memory, port: 0"))
    ours, terminal = pty.openpty()

    def listen() -> None:
        while True:
            try:
                heard.extend(os.read(ours, 4096))
            except OSError:
                return  # nobody holds the terminal any more

    threading.Thread(target=listen, daemon=True).start()
    process = subprocess.Popen(
        [*STRATIFORM, "serve", "--config", str(file), "--hud"],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "PYTHONIOENCODING": encoding, "TERM": "xterm", "COLUMNS": "120"},
        cwd=Path(__file__).parents[2],
    )
    os.close(terminal)
    try:
        until(lambda: b"/v1, mode" in heard)
        found = re.search(rb"http://\S+/v1", bytes(heard))
        assert found is not None
        messages = [{"role": "system", "content": "rules " * 3000}, {"role": "user", "content": "secret question"}]
        with OpenAI(base_url=found[0].decode(), api_key="none", max_retries=0) as client:
            client.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]
        until(lambda: b"request " in heard)
        text = re.sub(r"\x1b\[[\d;]*m", "", heard.decode(encoding))
        assert "stratiform m" in text
        assert re.search(rf"L0 \(12\+\) +{bar}+ +[\d,]+ +\[cached\]", text)
        assert "secret" not in text
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours)

"""Runs the blocks of a page as one script, as a reader would: in order, in an empty folder, with an empty home.

The info string of a block says how it is used. It is the language and at most one more word:

- ``console`` and ``python`` are run. ``stratiform serve`` runs until the next one, or until the page ends.
- ``yaml NAME`` and ``json NAME``, with a dot in the name, are files that a reader saves under it.
- ``key``: needs a provider's key or server. ``repository``: is run in a clone of the repository, by tests of its own.
  ``machine``: needs a container engine, an init system or a cluster. ``other``: is a file of another program.
  ``values``: has names in capitals that a reader fills in, or ends only when it is interrupted.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.documents import Block, Page

UNSTARTED = ("key", "repository", "machine", "other", "values")
_RUN = ("console", "python")
_WAITED_S = 240
# A shell function replaces the command: it gives each server the free port, and waits until the server answers.
_PRELUDE = """
set -eu -o pipefail
server=
ended() { if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi; }
trap ended EXIT
curl() { command curl -sS --fail-with-body "$@"; }
stratiform() {
  if [ "$1" != serve ]; then command stratiform "$@"; return; fi
  shift; ended
  command stratiform serve --port "$PAGE_PORT" "$@" >server.log 2>&1 &
  server=$!
  for _ in $(seq 600); do
    if command curl -fs -o /dev/null "http://127.0.0.1:$PAGE_PORT/healthz"; then return; fi
    kill -0 "$server" || { cat server.log; exit 1; }
    sleep 0.1
  done
  exit 1
}
"""


def is_started(block: Block) -> bool:
    """Whether the script of its page runs the block."""
    return block.language in _RUN and not set(block.marks) & set(UNSTARTED)


def file_of(block: Block) -> str:
    """The name under which a reader saves it, or nothing."""
    return next((mark for mark in block.marks if "." in mark), "")


def script(page: Page, port: int) -> str:
    """The whole page for bash; the port of the examples is replaced by ``port``."""
    parts = [_PRELUDE]
    for block in page.blocks():
        text = block.text.replace(":4000", f":{port}")
        where = f"echo '--- {page}, line {block.line}'"
        if name := file_of(block):
            parts.append(f"{where}\ncat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE\n")
        elif is_started(block) and block.language == "python":
            parts.append(f"{where}\npython - <<'END_OF_PYTHON'\n{text}END_OF_PYTHON\n")
        elif is_started(block):
            parts.append(f"{where}\n{text}")
    return "".join(parts)


def run(page: Page, port: int, folder: Path) -> str:
    """The output of the blocks. Raises AssertionError with all output if a block fails."""
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "PAGE_PORT": str(port),
    }
    (folder / "page.sh").write_text(script(page, port))
    ended = subprocess.run(
        ["bash", str(folder / "page.sh")],
        cwd=folder / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_WAITED_S,
    )
    assert ended.returncode == 0, ended.stdout[-6000:]
    return ended.stdout

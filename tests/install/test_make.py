"""``make setup`` on machines whose Python is too old, with a uv that notes what it is asked for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = """#!/bin/sh
[ "$1" = --version ] && echo "uv 0.13.9" && exit 0
echo "$*" >> calls
case "$*" in "python find"*) exit FIND;; "python install"*) exit INSTALL;; esac
"""
SENTENCE = "Stratiform needs Python 3.11.5 or newer; uv found none here and could not fetch one: install it ("


def made(folder: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """``make setup`` in a folder of its own."""
    shutil.copy(ROOT / "Makefile", folder)
    (folder / ".venv").mkdir()
    for name in ("pyproject.toml", "uv.lock"):
        (folder / name).touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "UV", "PYTHON"))}
    return subprocess.run(
        ["make", "setup", *variables], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("find", "install", "calls"),
    [
        (0, 1, ["python find --quiet", "sync"]),
        (2, 0, ["python find --quiet", "python install --quiet 3.13", "sync"]),
    ],
)
def test_uv_finds_a_python_or_fetches_one(tmp_path: Path, find: int, install: int, calls: list[str]) -> None:
    uv = script(tmp_path / "bin/uv", UV.replace("FIND", str(find)).replace("INSTALL", str(install)))
    ended = made(tmp_path, f"UV={uv}", "CI=")
    assert ended.returncode == 0, ended.stderr
    found = (tmp_path / "calls").read_text().splitlines()
    assert [line.removesuffix(" --locked --all-extras") for line in found] == calls


def test_where_it_cannot_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    uv = script(tmp_path / "bin/uv", UV.replace("FIND", "2").replace("INSTALL", "1"))
    ended = made(tmp_path, f"UV={uv}")
    assert ended.returncode != 0
    first, *rest = ended.stderr.splitlines()
    assert first.startswith(SENTENCE)
    assert all(line.startswith("make: ") for line in rest)
    assert not (tmp_path / ".venv/.synced").exists()


@pytest.mark.parametrize(("version", "is_enough"), [((3, 7, 17), False), ((3, 8, 0), True), ((3, 11, 2), True)])
def test_a_python_for_uv_alone_may_be_older(tmp_path: Path, version: tuple[int, ...], is_enough: bool) -> None:
    # Runs what make asks of it as if it were another version; its virtual environment has a uv that does nothing.
    python = script(
        tmp_path / "bin/python",
        f"""#!{sys.executable}
import sys
from pathlib import Path
if sys.argv[1] == "-c":
    sys.version_info, sys.version = {version}, "{".".join(map(str, version))} (old)"
    exec(sys.argv[2])
for name in ("python", "uv"):
    Path(".tools/bin").mkdir(parents=True, exist_ok=True)
    Path(".tools/bin", name).write_text("#!/bin/sh\\n")
    Path(".tools/bin", name).chmod(0o755)
""",
    )
    ended = made(tmp_path, "OWN_UV=", f"PYTHON={python}")
    assert (ended.returncode == 0) is is_enough, ended.stderr
    if not is_enough:
        assert ended.stderr.startswith("uv, which installs everything else, needs Python 3.8 or newer; this is 3.7.17.")

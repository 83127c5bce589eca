"""Folders of the operator's that bear the name of one of our packages."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from proxy.app.settings import shadowing
from proxy.cli import main

ROOT = Path(__file__).parents[4]
CONFIG = "model_list: [{model_name: m, litellm_params: {model: embedded/claude}}]\n"


def warnings(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    (folder / "config.yaml").write_text(CONFIG)
    assert main(["check-config", "--json", str(folder / "config.yaml")]) == 0
    found: list[str] = orjson.loads(capsys.readouterr().out)["warnings"]
    return [line for line in found if str(folder) in line]


@pytest.mark.parametrize("name", ["plugins/mine.py", "plugins/__init__.py", "plugins.py", "proxy/hooks.py", "proxy.py"])
def test_code_beside_the_configuration_that_could_be_taken_for_ours_is_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    (line,) = warnings(tmp_path, capsys)
    assert line.startswith(f"{tmp_path / name.partition('/')[0]}: ")
    assert "rename" in line


def test_what_cannot_be_taken_for_ours_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plugins", "proxy", "my_plugins"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugins" / "README.md").write_text("")
    (tmp_path / "my_plugins" / "a.py").write_text("")
    assert warnings(tmp_path, capsys) == []
    assert list(shadowing(ROOT)) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", [["check-config", "c.yaml"], ["serve", "--config", "c.yaml"], ["explain", "x"]])
def test_plugins_that_python_finds_first_are_refused(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    for name in ("__init__", "aider", "tiered", "fenced", "system_text", "symbol_index"):
        (tmp_path / "plugins" / f"{name}.py").write_text("raise SystemExit('taken')\n" if name != "__init__" else "")
    (tmp_path / "c.yaml").write_text(CONFIG)
    program = "import sys; sys.path[:0] = sys.argv[1:3]; from proxy.cli import main; sys.exit(main(sys.argv[3:]))"
    run = [sys.executable, "-c", program, str(tmp_path), str(ROOT), *command]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: plugins: Python finds {tmp_path / 'plugins'}")
    assert "taken" not in ended.stderr

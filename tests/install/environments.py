"""Virtual environments outside the repository, with the wheel in them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services import absent

ROOT = Path(__file__).parents[2]
_UNREACHABLE = re.compile(
    r"dns error|error sending request|Failed to fetch|Connection refused|network is unreachable", re.I
)
_BUILT_S = 600


def uv(*words: str, folder: Path = ROOT) -> str:
    """What uv prints. In the repository it goes by the settings that stand in ``pyproject.toml``."""
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tools" / "bin"))
    if found is None:
        absent("uv is not here; `make setup` installs it")
    ended = subprocess.run([found, *words], cwd=folder, capture_output=True, text=True, timeout=_BUILT_S)
    if ended.returncode and _UNREACHABLE.search(ended.stderr):
        absent("no package index can be reached")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@dataclass(frozen=True, slots=True)
class Place:
    """An environment, and a folder without files of ours from which its commands are run."""

    environment: Path
    folder: Path

    @classmethod
    def new(cls, folder: Path) -> "Place":
        """An empty one."""
        uv("venv", "--quiet", "--python", sys.executable, str(folder / "environment"))
        (folder / "work").mkdir()
        return cls(folder / "environment", folder / "work")

    @property
    def python(self) -> str:
        return str(self.environment / "bin" / "python")

    def install(self, *words: str) -> None:
        uv("pip", "install", "--quiet", "--python", self.python, *words, folder=self.folder)

    def versions(self) -> dict[str, str]:
        """Every installed package."""
        listed = json.loads(uv("pip", "list", "--quiet", "--python", self.python, "--format", "json"))
        return {one["name"]: one["version"] for one in listed}

    def run(self, *words: str) -> str:
        """What ``stratiform`` prints."""
        ended = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=120, **self.around)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def command(self, *words: str) -> list[str]:
        return [str(self.environment / "bin" / "stratiform"), *words]

    @property
    def around(self) -> dict[str, Any]:
        """Nothing of the environment of the tests is seen by the commands."""
        home = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        return {"cwd": self.folder, "env": home}

    @contextmanager
    def serving(self, config: str) -> Iterator[tuple[str, list[str]]]:
        """``stratiform serve`` with that configuration: its address, and what it has logged once it has ended."""
        (self.folder / "config.yaml").write_text(config)
        words = self.command("serve", "--config", "config.yaml", "--port", "0")
        logged: list[str] = []
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **self.around) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    logged.append(line)
                    if address := re.search(r"http://127\S+?/v1", line):
                        break
                else:
                    pytest.fail("".join(logged))
                yield address[0], logged
            finally:
                process.send_signal(signal.SIGTERM)
                logged += process.communicate(timeout=60)[1].splitlines()


def asked(url: str, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The answer to a chat request, and its headers."""
    head = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response), dict(response.headers)

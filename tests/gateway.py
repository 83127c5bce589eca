"""A LiteLLM proxy for tests, in an environment with LiteLLM's versions, with Stratiform inside.

If no package index can be reached, the test is skipped, and fails in CI. ``STRATIFORM_GATEWAY`` may name a ready
environment.
"""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.install.environments import ROOT, Place
from tests.services import free_port

KEY = "sk-5d0c1f2b7a9e4c3d8f6a1b2c3d4e5f60"
CONSTRAINTS = sorted(Path(ROOT, "tests", "install").glob("constraints-litellm-*.txt"))
_STARTED_S = 180.0
_SAMPLE = re.compile(r"(stratiform_\w+)(?:\{(.*)\})? ([\d.e+-]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def gateway_place(folder: Path, constraints: Path = CONSTRAINTS[-1]) -> Place:
    """An environment of ``litellm[proxy]``, with this repository in it."""
    ready = os.environ.get("STRATIFORM_GATEWAY")
    if ready:
        (folder / "work").mkdir()
        return Place(Path(ready), folder / "work")
    place = Place.new(folder)
    place.install("--no-deps", "--requirements", str(constraints))
    place.install("--editable", str(ROOT))
    return place


@dataclass
class Gateway:
    """A running LiteLLM proxy. ``log`` is its log file."""

    url: str
    log: Path
    pid: int

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Stratiform's metric samples, as LiteLLM serves them."""
        request = urllib.request.Request(f"{self.url}/metrics/", headers={"authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            lines = response.read().decode().splitlines()
        found = (_SAMPLE.match(line) for line in lines)
        return {(one[1], frozenset(_LABEL.findall(one[2] or ""))): float(one[3]) for one in found if one is not None}

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        wanted = set(labels.items())
        return sum(value for (one, has), value in self.metrics().items() if one == name and wanted <= has)

    def settled(self, count: int) -> float:
        """How many attempts were settled. Waits until there are as many as expected, or no more come."""
        deadline = time.monotonic() + 20.0
        while (found := self.total("stratiform_requests_total")) < count and time.monotonic() < deadline:
            time.sleep(0.2)
        return found


@contextmanager
def gateway(place: Place, config: dict[str, Any], workers: int = 1, **variables: str) -> Iterator[Gateway]:
    """Run LiteLLM's own command with this configuration, until the end of the block."""
    port = free_port()
    settings = {
        "general_settings": {"master_key": KEY},
        "litellm_settings": {
            "callbacks": ["prometheus", "plugins.litellm_hook.stratiform"],
            **config.pop("litellm", {}),
        },
        **config,
    }
    (place.folder / "gateway.yaml").write_text(json.dumps(settings))
    words = [str(place.environment / "bin" / "litellm"), "--config", "gateway.yaml", "--host", "127.0.0.1"]
    # uvicorn's own supervisor ends workers that have not answered within five seconds, but litellm's import takes as
    # long.
    words += ["--port", str(port), "--num_workers", str(workers), *(["--run_gunicorn"] if workers > 1 else [])]
    around = {**place.around["env"], "LITELLM_LOCAL_MODEL_COST_MAP": "True", **variables}
    log = place.folder / "gateway.log"
    with log.open("w") as out:
        process = subprocess.Popen(words, cwd=place.folder, env=around, stdout=out, stderr=out, start_new_session=True)
        try:
            _wait(f"http://127.0.0.1:{port}/health/liveliness", process, log)
            yield Gateway(f"http://127.0.0.1:{port}", log, process.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _STARTED_S
    while True:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(log.read_text()[-4000:])
        time.sleep(0.3)

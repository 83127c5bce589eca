"""A real Prometheus for a test, and its API."""

import json
import math
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.services import absent, free_port
from tests.waiting import until

GRAFANA = Path(__file__).parents[1] / "grafana"


def tool(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``. Without it the test is skipped, and fails in CI."""
    return shutil.which(name) or absent(f"{name} is not installed: .ci/install-services.sh does that")


class Prometheus:
    """A running server's API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.began = time.time()
        self._at: float | None = None

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        with urllib.request.urlopen(self.url + "/-/ready", timeout=60):
            return True

    def get(self, path: str, **parameters: Any) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def instant(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The present [(labels, value)]."""
        data = self.get("/api/v1/query", query=query, time=self._at or time.time())
        assert data["resultType"] == "vector", query
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def range(self, query: str) -> list[tuple[dict[str, str], float]]:
        """[(labels, latest number)] since the first scrape, one step a second; NaN if a ratio never had a number.

        The last step is now: a step before now may not see the latest scrape, and a rate needs two scrapes."""
        end = self._at or time.time()
        start = end - math.ceil(end - self.began)
        data = self.get("/api/v1/query_range", query=query, start=start, end=end, step=1)
        return [(series["metric"], latest(series["values"])) for series in data["result"]]

    def scalar(self, query: str) -> float | None:
        """The only value, or None."""
        found = self.instant(query)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def last_scrape(self) -> float:
        """When the latest scrape was, of those that were not late."""
        return until(lambda: self.scalar("max(timestamp(stratiform_build_info))"))

    def stop_clock(self) -> None:
        """Let all later queries ask for the time of the latest scrape. The next scrape may be late on a busy machine,
        and then nothing has a present value."""
        self._at = self.last_scrape()

    def wait_for(self, query: str, value: float) -> None:
        """Wait until a scrape has brought this value."""
        until(lambda: self.scalar(query) == value)


def latest(points: list[tuple[float, str]]) -> float:
    """The last number of a series. A rate over a quiet window is 0, and a ratio of two such rates is not a number."""
    return next((number for _, text in reversed(points) if math.isfinite(number := float(text))), math.nan)


@contextmanager
def running(folder: Path, config: Mapping[str, Any]) -> Iterator[Prometheus]:
    """A server with this configuration. ``folder`` may hold data already, below ``data``."""
    binary = tool("prometheus")
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(dict(config)))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            until(server.is_ready, lambda: _goes_on(process, folder / "prometheus.log"))
            yield server
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[Prometheus]:
    """The repository's own scrape configuration, with the target of a test and shorter intervals."""
    config = yaml.safe_load((GRAFANA / "prometheus.yaml").read_text())
    config["global"]["scrape_interval"] = "500ms"
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    config["rule_files"] = [str(GRAFANA / name) for name in config["rule_files"]]
    with running(folder, config) as server:
        yield server


def _goes_on(process: "subprocess.Popen[bytes]", log: Path) -> None:
    assert process.poll() is None, log.read_text()

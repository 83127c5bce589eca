"""The files for containers and clusters start a proxy as they stand, and agree with what the proxy does."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.app.settings.schema import Limits
from proxy.cli.check_config import check
from tests.e2e.cluster import PIECES, container, piece
from tests.services import free_port

ROOT = Path(__file__).parents[2]
COMPOSE: Any = yaml.safe_load((ROOT / "compose.yaml").read_text())
PATHS = (ROOT / "proxy/app/web/__init__.py").read_text()


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_the_cluster_asks_for_paths_that_there_are_and_waits_long_enough() -> None:
    pod = piece("Deployment")["spec"]["template"]["spec"]
    probes = {name: container()[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert all(f'"{probe["path"]}"' in PATHS and probe["port"] == "http" for probe in probes.values())
    ours = yaml.safe_load(piece("ConfigMap")["data"]["config.yaml"])["stratiform"]
    _, pause = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > float(pause) + ours["limits"]["drain_s"]
    assert pod["securityContext"]["runAsUser"] == int(
        re.findall(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.M)[0]
    )
    assert piece("PodDisruptionBudget")["spec"]["minAvailable"] < piece("Deployment")["spec"]["replicas"]
    (metric,) = piece("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert f"as: {metric['pods']['metric']['name']}" in (ROOT / "deploy/README.md").read_text()


def test_the_pieces_of_the_cluster_find_each_other() -> None:
    labels = piece("Deployment")["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = piece(kind)["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels.items()
    mounted = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounted == {volume["name"] for volume in piece("Deployment")["spec"]["template"]["spec"]["volumes"]}
    asked = set(
        re.findall(r"secretKeyRef: \{name: stratiform, key: ([a-z-]+)\}", (ROOT / "deploy/kubernetes.yaml").read_text())
    )
    made = set(re.findall(r"--from-literal=([a-z-]+)=", (ROOT / "deploy/README.md").read_text()))
    assert asked == made
    monitor = yaml.safe_load((ROOT / "deploy/servicemonitor.yaml").read_text())
    assert monitor["spec"]["selector"]["matchLabels"].items() <= piece("Service")["metadata"]["labels"].items()
    assert len(PIECES) == len({(one["kind"], one["metadata"]["name"]) for one in PIECES})


def test_the_clusters_configuration_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(piece("ConfigMap")["data"]["config.yaml"])
    given = {one["name"]: one.get("value", "x" * 20) for one in container()["env"]}
    for name, value in given.items():
        monkeypatch.setenv(name, value.replace("$(REDIS_PASSWORD)", "secret"))
    report = check(config)
    assert "errors" not in report, report
    assert report["store"] == "redis://stratiform-redis:6379/0"


def test_compose_waits_longer_than_answers_may_take_and_stays_on_this_machine() -> None:
    service = COMPOSE["services"]["stratiform"]
    assert seconds(service["stop_grace_period"]) > Limits().drain_s
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.slow
def test_compose_makes_a_key_keeps_it_and_asks_for_it(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "config.yaml"
    config.write_text(COMPOSE["configs"]["stratiform"]["content"].replace("/var/lib/stratiform", str(tmp_path)))
    shell, flags, script = COMPOSE["services"]["stratiform"]["entrypoint"]
    script = script.replace("$$", "$").replace("/var/lib/stratiform", str(tmp_path))
    script = script.replace("0.0.0.0 --port 4000", f"127.0.0.1 --port {port}").replace("/etc/stratiform", str(tmp_path))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path)}
    keys = []
    for _ in range(2):
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen([shell, flags, script], stdout=log, stderr=log, env=environment, cwd=tmp_path) as process,
        ):
            try:
                assert status(port, "", process, tmp_path / "log") == 401
                keys.append((tmp_path / "master.key").read_text().strip())
                assert (tmp_path / "master.key").stat().st_mode & 0o077 == 0
                assert status(port, keys[-1], process, tmp_path / "log") == 200
            finally:
                process.terminate()
    assert keys[0] == keys[1]
    assert len(keys[0]) > 40


def status(port: int, key: str, process: "subprocess.Popen[bytes]", log: Path) -> int:
    """The status of the list of models, once the proxy listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"authorization": f"Bearer {key}"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)

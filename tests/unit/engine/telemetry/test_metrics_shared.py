"""The metrics of several processes, added up. Each process is a real one: prometheus_client is set up once in each."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

WORKER = """
import asyncio, os, sys
from pathlib import Path
from proxy.engine.telemetry.metrics import FOLDER_VARIABLE, SharedMetrics

slot, steps = int(sys.argv[1]), sys.argv[2]
shared = SharedMetrics(Path(os.environ[FOLDER_VARIABLE]))
shared.begin(slot)
from proxy.engine.telemetry.metrics import Metrics
metrics = Metrics(shared=shared, teams=["red"])
for step in steps:
    if step == "b":
        metrics.began()
    if step == "e":
        metrics.ended()
        metrics.requests("m", "tier", "200", "http")
    if step == "o":
        metrics.overhead(0.002)
    if step == "d":
        shared.died(1 - slot)
metrics.remaining = lambda: {"red": (5.0 - slot, 9.0)}
sys.stdout.buffer.write(asyncio.run(metrics.rendered()))
"""


def worker(folder: Path, slot: int, steps: str) -> str:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(slot), steps], cwd=ROOT, env=environment, capture_output=True, timeout=600
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def value(text: str, series: str) -> float:
    found = re.findall(rf"^stratiform_{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert len(found) == 1, (series, found)
    return float(found[0])


def requests(text: str) -> float:
    found = re.findall(r"^stratiform_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert len(found) == 1, text
    return float(found[0])


@pytest.mark.slow
def test_what_workers_count_is_added_up_and_read_from_any(tmp_path: Path) -> None:
    worker(tmp_path, 0, "bebebo")
    text = worker(tmp_path, 1, "bbeo")
    assert requests(text) == 3
    assert value(text, "in_flight") == 2
    assert value(text, "overhead_seconds_count") == 2
    assert value(text, 'overhead_seconds_bucket{le="0.0025"}') == 2
    assert value(text, 'overhead_seconds_bucket{le="0.001"}') == 0
    assert re.search(r"^stratiform_build_info\{.*\} 1.0$", text, re.MULTILINE)
    assert "_created" not in text
    assert "pid=" not in text


@pytest.mark.slow
def test_gauges_that_each_worker_knows_are_the_latest(tmp_path: Path) -> None:
    worker(tmp_path, 0, "")
    assert value(worker(tmp_path, 1, ""), 'budget_remaining_usd{team="red"}') == 4.0
    assert value(worker(tmp_path, 0, ""), 'budget_remaining_usd{team="red"}') == 5.0


@pytest.mark.slow
def test_a_worker_in_the_place_of_a_dead_one_counts_on(tmp_path: Path) -> None:
    worker(tmp_path, 0, "bebb")
    text = worker(tmp_path, 1, "d")
    assert requests(text) == 1, "what was counted stands"
    assert value(text, "in_flight") == 0, "what was under way is not any more"
    text = worker(tmp_path, 0, "be")
    assert (requests(text), value(text, "in_flight")) == (2, 0)
    files = sorted(file.name for file in tmp_path.iterdir())
    worker(tmp_path, 0, "be")
    assert sorted(file.name for file in tmp_path.iterdir()) == files


@pytest.mark.slow
def test_the_process_metrics_are_those_of_all(tmp_path: Path) -> None:
    text = worker(tmp_path, 0, "b")
    # The process that counted is gone when the next one reads: only those that run are seen.
    assert len(re.findall(r"^process_resident_memory_bytes ", text, re.MULTILINE)) == 1
    (tmp_path / "7.pid").write_text(str(os.getpid()))
    both = worker(tmp_path, 0, "b")
    one, two = (
        float(re.search(r"^process_resident_memory_bytes (\S+)$", found, re.MULTILINE)[1])  # type: ignore[index]
        for found in (text, both)
    )
    assert two > one * 1.3

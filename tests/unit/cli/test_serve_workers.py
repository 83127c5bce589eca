"""Worker processes: started, started again, and ended, by a process of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

ROOT = Path(__file__).parents[3]
WAIT_S = 180.0

ABOVE = """
import os, select, signal, sys, time
from pathlib import Path
from proxy.cli.serve import Workers

folder, kind = Path(sys.argv[1]), sys.argv[2]

def work(slot, lifeline):
    if kind == "broken" and slot == 1:
        return 3
    if kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "patient":
        def end(number, frame):
            time.sleep(0.3)
            (folder / f"ended-{slot}").write_text("in order")
            os._exit(0)
        signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, lambda number, frame: (folder / f"told-{slot}").write_text(""))
    (folder / f"{slot}-{os.getpid()}").write_text("")
    select.select([lifeline], [], [])
    (folder / f"alone-{slot}").write_text("")
    return 0

def died(slot):
    (folder / f"died-{slot}").write_text("")

def reload():
    (folder / "reread").write_text("")
    return kind != "wrong"

# Only a worker that is deaf is to be killed: the others have time, however busy the machine is.
patience_s = 2.0 if kind == "deaf" else 120.0
print(Workers(work, 2, patience_s, died, reload).run(), flush=True)
"""


@contextmanager
def above(folder: Path, kind: str = "plain") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", ABOVE, str(folder), kind], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)
        if process.stdout is not None:
            process.stdout.close()


def goes_on(process: subprocess.Popen[str]) -> None:
    assert process.poll() is None


def workers(folder: Path, slot: int) -> list[int]:
    return sorted(int(file.name.partition("-")[2]) for file in folder.glob(f"{slot}-*"))


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_signal_ends_all_workers_in_order(tmp_path: Path) -> None:
    with above(tmp_path, "patient") as process:
        until(lambda: workers(tmp_path, 0) and workers(tmp_path, 1), lambda: goes_on(process))
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert sorted(file.name for file in tmp_path.glob("ended-*")) == ["ended-0", "ended-1"]


@pytest.mark.slow
def test_a_worker_that_was_killed_is_replaced_in_its_slot(tmp_path: Path) -> None:
    with above(tmp_path) as process:
        for times in range(1, 4):
            until(lambda times=times: len(workers(tmp_path, 0)) == times, lambda: goes_on(process))  # type: ignore[misc]
            (running,) = [pid for pid in workers(tmp_path, 0) if lives(pid)]
            os.kill(running, signal.SIGKILL)
        until(lambda: len(workers(tmp_path, 0)) == 4, lambda: goes_on(process))
        assert len(workers(tmp_path, 1)) == 1
        assert [file.name for file in tmp_path.glob("died-*")] == ["died-0"]


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    with above(tmp_path, "broken") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "3\n"
        assert process.wait(WAIT_S) == 0
    assert not any(lives(pid) for pid in workers(tmp_path, 0))


@pytest.mark.slow
def test_a_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with above(tmp_path, "deaf") as process:
        until(lambda: workers(tmp_path, 0) and workers(tmp_path, 1), lambda: goes_on(process))
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert not any(lives(pid) for slot in (0, 1) for pid in workers(tmp_path, slot))


@pytest.mark.slow
def test_workers_do_not_outlive_the_process_above(tmp_path: Path) -> None:
    with above(tmp_path) as process:
        until(lambda: workers(tmp_path, 0) and workers(tmp_path, 1), lambda: goes_on(process))
        process.kill()
        process.wait(WAIT_S)
        until(lambda: (tmp_path / "alone-0").exists() and (tmp_path / "alone-1").exists())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "are_told"), [("plain", True), pytest.param("wrong", False, marks=pytest.mark.slow)])
def test_a_reload_reaches_every_worker_unless_the_configuration_is_wrong(
    tmp_path: Path, kind: str, *, are_told: bool
) -> None:
    with above(tmp_path, kind) as process:
        until(lambda: workers(tmp_path, 0) and workers(tmp_path, 1), lambda: goes_on(process))
        process.send_signal(signal.SIGHUP)
        until(lambda: (tmp_path / "reread").exists(), lambda: goes_on(process))
        if are_told:
            until(lambda: len(list(tmp_path.glob("told-*"))) == 2, lambda: goes_on(process))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "130\n", "SIGINT ends a command with 130"
    assert len(list(tmp_path.glob("told-*"))) == 2 * are_told
    assert len(workers(tmp_path, 0)) == 1

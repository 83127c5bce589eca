"""Runs drills one behind the other, and says what came of each."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.drill.drill import Check, Drill, Findings
from tests.drill.world import Impossible, Size, world

NO_REDIS = "redis-server is not installed: .ci/install-services.sh does that"


@dataclass(frozen=True, slots=True)
class Result:
    """A drill that has run, or the reason why it could not."""

    drill: Drill
    findings: Findings
    failures: Sequence[Check]
    seconds: float
    skipped: str = ""

    @property
    def verdict(self) -> str:
        """ok, FAILED or skipped."""
        return "skipped" if self.skipped else "FAILED" if self.failures else "ok"


def run(drill: Drill, size: Size, *, by_the_clock: bool, keep: Path | None = None) -> Result:
    """One drill in a folder of its own, which ``keep`` keeps. Goals in seconds count only ``by_the_clock``."""
    began, findings = time.monotonic(), Findings()
    if drill.needs_redis and shutil.which("redis-server") is None:
        return _skipped(drill, findings, NO_REDIS)
    folder = Path(tempfile.mkdtemp(prefix=f"stratiform-drill-{drill.name}-", dir=keep))
    try:
        with world(folder, size) as at:
            drill.run(at, findings)
    except Impossible as error:
        return _skipped(drill, findings, str(error))
    except AssertionError as error:
        # A drill that cannot go on has failed; the ones behind it run all the same.
        findings.expect("the drill comes to its end", str(error)[-500:] or "an assertion failed", False)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    failures = findings.failures(by_the_clock=by_the_clock)
    return Result(drill, findings, failures, time.monotonic() - began)


def run_all(
    drills: Sequence[Drill],
    size: Size,
    *,
    by_the_clock: bool,
    keep: Path | None,
    begin: Callable[[Drill], None],
    end: Callable[[Result], None],
) -> list[Result]:
    """All of them; ``begin`` is told before each, ``end`` behind it."""
    results = []
    for drill in drills:
        begin(drill)
        results.append(run(drill, size, by_the_clock=by_the_clock, keep=keep))
        end(results[-1])
    return results


def _skipped(drill: Drill, findings: Findings, reason: str) -> Result:
    failures = [Check("everything that a drill needs is there in CI", reason, False)] if _in_ci() else []
    return Result(drill, findings, failures, 0.0, "" if failures else reason)


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"

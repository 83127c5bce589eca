"""``make mutants``: small changes of the planner, the layouts and the budgets; at least 80 % must fail some test."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.mutation.run import Outcome, Target, Verdict, import_libraries, run, sample

ROOT = Path(__file__).resolve().parents[2]
LEAST_KILLED = 0.8
TARGETS = (
    Target(
        "proxy/planner",
        (
            "tests/golden",
            "tests/unit/planner",
            "tests/unit/services",
            "tests/unit/context/placement",
            "tests/unit/kit/test_modes.py",
            "tests/unit/lab/doctor/test_doctor.py",
            "tests/unit/lab/replay",
            "tests/unit/plugins/test_tiered.py",
            "tests/unit/protocol/recognition/test_lines.py",
            "tests/property/test_challengers.py",
            "tests/property/test_empty_records.py",
            "tests/property/test_fidelity.py",
            "tests/property/test_marked_estimate.py",
            "tests/property/test_orders.py",
            "tests/property/test_planner_any_json.py",
            "tests/property/test_prefix_stability.py",
            "tests/property/test_shadow.py",
            "tests/property/test_stability.py",
            "tests/meta/test_tuned_numbers.py",
        ),
    ),
    Target(
        "proxy/teams",
        (
            "tests/unit/teams",
            "tests/unit/app/admin",
            "tests/unit/app/test_foundation.py",
            "tests/unit/engine/attempts",
            "tests/unit/engine/test_engine_booking.py",
            "tests/contract/test_clock_steps.py",
            "tests/contract/test_epochs.py",
            "tests/security/test_prompt_bounds.py",
            "tests/security/test_usage_lies.py",
            "tests/property/test_administration.py",
            "tests/property/test_bills_add_up.py",
            "tests/property/test_hard_limits.py",
            "tests/property/test_limits.py",
            "tests/meta/test_names_users_hold.py",
            "tests/meta/test_promised_numbers.py",
        ),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many mutants (200)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only mutants of files with this text in their path")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (2)")
    arguments = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.monotonic()
    import_libraries()
    mutants = sample(ROOT, TARGETS, arguments.count, arguments.seed, arguments.only)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("mutants", total=len(mutants))
        verdicts = run(ROOT, TARGETS, mutants, arguments.workers, lambda _: bar.advance(task))
    seconds = time.monotonic() - started
    _print(verdicts, arguments.seed, seconds)
    return 0 if _killed_share(verdicts) >= LEAST_KILLED else 1


def _killed_share(verdicts: Sequence[Verdict]) -> float:
    survivors = sum(verdict.outcome is Outcome.SURVIVED for verdict in verdicts)
    return 1 - survivors / len(verdicts) if verdicts else 1.0


def _print(verdicts: Sequence[Verdict], seed: int, seconds: float) -> None:
    survivors = [verdict for verdict in verdicts if verdict.outcome is Outcome.SURVIVED]
    for verdict in sorted(survivors, key=lambda one: (one.mutant.path, one.mutant.line)):
        print(f"{verdict.mutant.path}:{verdict.mutant.line}\n  - {verdict.before}\n  + {verdict.after}")
    endless = sum(verdict.outcome is Outcome.ENDLESS for verdict in verdicts)
    print(
        f"{len(verdicts)} mutants of seed {seed} in {seconds:.0f} s: {len(survivors)} survived, "
        f"{_killed_share(verdicts):.1%} were killed ({endless} of them by time)"
    )


if __name__ == "__main__":
    sys.exit(main())

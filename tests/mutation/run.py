"""Mutants, judged by the tests of the module that they change.

mutmut changes no constants and no decorated functions, and cosmic-ray runs the same command of tests for every mutant,
so this is a small driver of our own. Each worker has a copy of the repository in a temporary folder. For each mutant
the worker changes the copy and forks a process that runs the tests and stops at the first failure. The tests at the
path of the module come first, then those of its package, quick files before slow ones.
"""

import compileall
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutation.operators import Mutant, mutants_of

_FORK = multiprocessing.get_context("fork")
_LIBRARIES = (
    "aiohttp", "hypothesis", "msgspec", "openai", "orjson", "prometheus_client", "pydantic", "starlette", "yaml",
)  # fmt: skip
_IGNORED = shutil.ignore_patterns(".*", "node_modules", "dist", "build", "*.sqlite*")
_VERDICT, _OUTPUT = ".verdict.json", ".output.txt"
_LEAST_LIMIT_S = 30.0
# A mutant may take so many times the time of its tests without a change.
_PATIENCE = 5


class Outcome(StrEnum):
    """What became of a mutant. One whose tests do not end is as good as killed."""

    KILLED = "killed"
    ENDLESS = "endless"
    SURVIVED = "survived"


@dataclass(frozen=True, slots=True)
class Target:
    """A package of which mutants are made, and the files or folders of tests that judge them."""

    package: str
    tests: Sequence[str]

    def files(self, root: Path) -> list[str]:
        """The files of tests."""
        found = (path for place in self.tests for path in (sorted((root / place).rglob("test_*.py")) or [root / place]))
        return [str(path.relative_to(root)) for path in found]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mutant's end: ``test`` is the first test that failed, ``before`` and ``after`` are the source line."""

    mutant: Mutant
    before: str
    after: str
    outcome: Outcome
    test: str
    seconds: float


class FailingTestsError(Exception):
    """Tests fail before anything is changed."""


def sample(root: Path, targets: Sequence[Target], count: int, seed: int, only: str = "") -> list[Mutant]:
    """So many mutants of all that the packages have; for one seed and one state of the code always the same. ``only``
    is a text that must stand in the path of their file."""
    files = (path for target in targets for path in sorted((root / target.package).rglob("*.py")))
    every = [mutant for path in files for mutant in mutants_of(str(path.relative_to(root)), path.read_bytes())]
    every = [mutant for mutant in every if only in mutant.path]
    return random.Random(seed).sample(every, min(count, len(every)))


def import_libraries() -> None:
    """Import what most tests import, once and not for each mutant."""
    for name in _LIBRARIES:
        import_module(name)


def run(
    root: Path, targets: Sequence[Target], mutants: Sequence[Mutant], workers: int, step: Callable[[Verdict], None]
) -> list[Verdict]:
    """Judge the mutants; ``step`` is told of each verdict as it comes. The verdicts are in the order of the mutants."""
    files = [target.files(root) for target in targets]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _pool(root, Path(folder), workers) as pool:
        quick_first = {}
        for target, times in zip(targets, pool.map(_timed, files), strict=True):
            quick_first[target.package] = times
        waiting = {
            pool.submit(_judge, mutant, _tests_of(root, mutant, times), sum(times.values())): mutant
            for mutant in mutants
            for package, times in quick_first.items()
            if mutant.path.startswith(package + "/")
        }
        verdicts = {}
        for done in as_completed(waiting):
            verdicts[waiting[done]] = done.result()
            step(done.result())
    return [verdicts[mutant] for mutant in mutants]


def _tests_of(root: Path, mutant: Mutant, times: Mapping[str, float]) -> list[str]:
    """The files of tests for a mutant, in their order."""
    module = Path(mutant.path)
    own = str(Path("tests/unit", *module.parent.parts[1:], f"test_{module.stem}.py"))
    others = sorted((name for name in times if name != own), key=times.__getitem__)
    return [own, *others] if (root / own).exists() else others


@contextmanager
def _pool(root: Path, folder: Path, workers: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(workers, _FORK, _prepare, (root, folder))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(root: Path, folder: Path) -> None:
    """Make a worker: its copy of the repository is its working directory from now on."""
    copy = folder / str(os.getpid())
    shutil.copytree(root, copy, ignore=_IGNORED, symlinks=True)
    os.chdir(copy)
    compileall.compile_dir(copy, quiet=2)
    os.environ["STRATIFORM_EXAMPLES"] = "first"
    # The compiled file of a mutant could be taken for that of the next one, which is written within the same second.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _timed(tests: Sequence[str]) -> Mapping[str, float]:
    """The seconds that each file of tests takes while nothing is changed."""
    found = _forked(tests, 600.0)
    if found is None or found["code"] != 0:
        raise FailingTestsError(Path(_OUTPUT).read_text()[-9000:])
    return found["times"]


def _judge(mutant: Mutant, tests: Sequence[str], usual_s: float) -> Verdict:
    path, started = Path(mutant.path), time.monotonic()
    source = path.read_bytes()
    path.write_bytes(mutant.applied(source))
    try:
        found = _forked(tests, _LEAST_LIMIT_S + _PATIENCE * usual_s)
    finally:
        path.write_bytes(source)
    outcome = Outcome.ENDLESS if found is None else Outcome.KILLED if found["code"] else Outcome.SURVIVED
    test = found["test"] if found else ""
    return Verdict(mutant, *mutant.shown(source), outcome, test, time.monotonic() - started)


def _forked(tests: Sequence[str], limit_s: float) -> dict | None:
    """What a process of its own says of these tests; None where it does not end in time."""
    Path(_VERDICT).unlink(missing_ok=True)
    child = _FORK.Process(target=_run_tests, args=(tests,))
    child.start()
    try:
        child.join(limit_s)
        ended = not child.is_alive()
    finally:
        # What the tests have started stands in the same group.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.join()
    if not ended:
        return None
    # A process that died without a verdict was ended by the change.
    return json.loads(Path(_VERDICT).read_text()) if Path(_VERDICT).exists() else {"code": 1, "test": "", "times": {}}


class _Watch:
    """A pytest plugin: which test failed first, and the seconds of each file."""

    def __init__(self) -> None:
        self.failed = ""
        self.times: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.times[report.location[0]] += report.duration
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _run_tests(tests: Sequence[str]) -> None:
    """In the forked process: import the copy, run its tests, write the verdict."""
    os.setsid()
    verdict = Path(_VERDICT).resolve()
    sys.stdout = sys.stderr = Path(_OUTPUT).open("w", buffering=1)  # noqa: SIM115 - open until the process ends
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    for name in [name for name in sys.modules if name.split(".")[0] in ("proxy", "plugins", "prompts", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, os.getcwd())
    watch = _Watch()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "-m", "not slow"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the libraries are imported already
    options += ["--basetemp", f"{Path.cwd()}-tests"]  # it goes with the copy; this process does not tidy up
    code = pytest.main([*options, *tests], plugins=[watch])
    verdict.write_text(json.dumps({"code": int(code), "test": watch.failed, "times": watch.times}))
    os._exit(0)

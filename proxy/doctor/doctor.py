"""Reads logs and reports: the way from files to a ``Report``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from proxy.doctor.entries import Entries
from proxy.doctor.findings import findings
from proxy.doctor.intake import Intake
from proxy.doctor.modes import mode_bills
from proxy.doctor.readers.reader import read_calls
from proxy.doctor.readers.records import Problem
from proxy.doctor.report import FileProblem, Report, report_of
from proxy.doctor.rules import Rules
from proxy.replay.runner import Setting, counted_once

_SUFFIXES = (".jsonl", ".ndjson", ".json", ".har", ".csv", ".log")
_COMPRESSED = (".xz", ".gz", ".bz2")
_MOST_PROBLEMS = 1_000
NONE_READ = "holds no call of a model that can be read"

Progress = Callable[[Path, int, int], None]
"""Called with a file, the bytes of it that were read, and its bytes."""


@dataclass(frozen=True, slots=True)
class Doctor:
    """``rules`` say what holds for a model, ``setting`` how requests are replayed."""

    rules: Rules
    setting: Setting

    def examine(self, paths: Sequence[Path], on_progress: Progress) -> Report:
        """Read the files and report. Raises OSError where the disk is full."""
        setting = replace(self.setting, encode=counted_once(self.setting.encode))
        problems = _Problems()
        files = list(_files(paths, problems))
        with closing(Entries()) as entries:
            intake = Intake(entries, setting.encode)
            for path in files:
                calls, before = len(entries), len(problems.found)
                for found in read_calls(path, lambda read, size, path=path: on_progress(path, read, size)):  # type: ignore[misc]
                    if isinstance(found, Problem):
                        problems.add(path, found)
                    else:
                        intake.take(found)
                if len(entries) == calls and len(problems.found) == before:
                    problems.add(path, Problem(0, NONE_READ))
            found_of = findings(entries, self.rules)
        bills = {
            name: mode_bills(kept.bodies, self.rules, setting) for name, kept in intake.kept.items() if kept.bodies
        }
        return report_of(found_of, intake.kept, bills, list(problems.found.values()), len(files))


class _Problems:
    """What is left out, and why; many records of a file for the same reason are one."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], FileProblem] = {}

    def add(self, path: Path, problem: Problem) -> None:
        """Count one more."""
        known = self.found.get((path, problem.text))
        if known is not None:
            self.found[path, problem.text] = replace(known, count=known.count + 1)
        elif len(self.found) < _MOST_PROBLEMS:
            self.found[path, problem.text] = FileProblem(str(path), problem.line, 1, problem.text)


def _files(paths: Sequence[Path], problems: _Problems) -> Iterator[Path]:
    """The files that are named, and the logs in the folders that are named, by name."""
    for path in dict.fromkeys(paths):
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file for file in path.rglob("*") if _is_log(file) and file.is_file())
        problems.add(path, Problem(0, f"is a directory: the {len(inside):,} logs in it are read"))
        yield from inside


def _is_log(path: Path) -> bool:
    name = path.name
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(_SUFFIXES)

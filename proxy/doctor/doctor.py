"""Reads log files and makes a ``Report`` of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from proxy.core.wire.surrogates import printable
from proxy.doctor.findings import diagnose_all
from proxy.doctor.intake import Entries, Intake
from proxy.doctor.modes import Rules, mode_runs
from proxy.doctor.readers.call import Call, Problem
from proxy.doctor.readers.reader import read_calls
from proxy.doctor.report import Report, report_of
from proxy.replay.runner import Setting, counted_once

_SUFFIXES = (".jsonl", ".ndjson", ".json", ".har", ".csv", ".log")
_COMPRESSED = (".xz", ".gz", ".bz2")
_LOGS = tuple(suffix + packed for suffix in _SUFFIXES for packed in ("", *_COMPRESSED))
_MOST_PROBLEMS = 1_000
NONE_READ = "holds no call of a model that can be read"

Progress = Callable[[Path, int, int], None]
"""Called with a file, how many of its bytes were read, and how many bytes it has."""


def examine(paths: Sequence[Path], rules: Rules, setting: Setting, on_progress: Progress) -> Report:
    """Read the files and report. ``rules`` are the rules and prices of each model; ``setting`` says how requests are
    replayed. Raises OSError if the disk is full."""
    setting = replace(setting, encode=counted_once(setting.encode))
    problems: dict[tuple[str, str], Problem] = {}
    files = set[Path]()
    with closing(Entries()) as entries:
        intake = Intake(entries, setting.encode, setting.recognisers)
        for path, found in _read(paths, on_progress):
            files.add(path)
            if isinstance(found, Call):
                intake.take(found)
                continue
            # If many records of a file are left out for the same reason, they count as one problem.
            file = printable(str(path))
            known = problems.get((file, found.text))
            if known is not None:
                problems[file, known.text] = replace(known, count=known.count + 1)
            elif len(problems) < _MOST_PROBLEMS:
                problems[file, found.text] = replace(found, file=file)
        diagnose_all(entries, intake.clients, rules)
    clients = intake.clients
    runs = {name: mode_runs(each.bodies, rules, setting) for name, each in clients.items() if each.bodies}
    return report_of(clients, runs, list(problems.values()), sum(not path.is_dir() for path in files))


def _read(paths: Sequence[Path], on_progress: Progress) -> Iterator[tuple[Path, Call | Problem]]:
    """Everything in the named files, and in the logs of the named folders, by name."""
    for named in dict.fromkeys(paths):
        files = [named]
        if named.is_dir():
            files = sorted(file for file in named.rglob("*") if file.name.endswith(_LOGS) and file.is_file())
            yield named, Problem(line=0, text=f"is a directory: the {len(files):,} logs in it are read")
        for path in files:
            is_read = False
            for found in read_calls(path, lambda read, size, path=path: on_progress(path, read, size)):  # type: ignore[misc]
                is_read = True
                yield path, found
            if not is_read:
                yield path, Problem(line=0, text=NONE_READ)

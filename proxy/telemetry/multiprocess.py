"""Combines the metrics of several workers: each writes its own into files of one folder, and any of them reads all.

The names of a worker's files contain its slot, not its process id. A worker that replaces a dead one goes on counting
where the dead one stopped, so that no counter falls and the folder does not grow.
(https://prometheus.github.io/client_python/multiprocess/)
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import add
from pathlib import Path

from prometheus_client import ProcessCollector, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.samples import Sample

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which prometheus_client looks for the folder. It must be set before the first metric is made."""


class SharedMetrics:
    """The folder, seen from one worker. ``begin`` must be called before the worker's first metric is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, slot: int) -> None:
        """From now on, this process counts for that slot."""
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
        (self._folder / f"{slot}.pid").write_text(str(os.getpid()), encoding="ascii")

    def died(self, slot: int) -> None:
        """Remove the gauges of a dead worker, such as its exchanges under way. Its counters stay."""
        (self._folder / f"{slot}.pid").unlink(missing_ok=True)
        mark_process_dead(slot, path=str(self._folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        """The metrics of all workers, added up."""
        yield from MultiProcessCollector(None, path=str(self._folder)).collect()  # type: ignore[no-untyped-call]
        yield from self._processes()

    def _processes(self) -> Iterator[Metric]:
        """CPU time, memory and files of all workers together, and the start time of the first worker."""
        found: dict[str, Metric] = {}
        for pid in self._process_ids():
            for family in ProcessCollector(registry=None, pid=lambda pid=pid: pid).collect():  # type: ignore[misc]
                known = found.setdefault(family.name, family)
                if known is not family:
                    _add(known, family)
        yield from found.values()

    def _process_ids(self) -> Iterator[int]:
        for file in sorted(self._folder.glob("*.pid")):
            with suppress(FileNotFoundError, ValueError):  # the worker may have died, or not have written the id yet
                yield int(file.read_text(encoding="ascii"))


def _add(known: Metric, other: Metric) -> None:
    merge = min if known.name == "process_start_time_seconds" else add
    known.samples = [
        Sample(ours.name, ours.labels, merge(ours.value, theirs.value))
        for ours, theirs in zip(known.samples, other.samples, strict=True)
    ]

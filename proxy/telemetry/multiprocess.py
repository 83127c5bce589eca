"""The metrics of several workers as one: each writes its own into files of one folder, and any of them reads all.

A worker's files carry its slot, not its process id. A worker that is started in the place of a dead one goes on
counting where that one stopped, so that no counter falls and the folder does not grow.
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
"""Where prometheus_client looks for the folder: set before the first metric is made."""


class SharedMetrics:
    """The folder, seen from one worker. ``begin`` comes before its first metric is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, slot: int) -> None:
        """This process counts for that slot, from now on."""
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
        (self._folder / f"{slot}.pid").write_text(str(os.getpid()), encoding="ascii")

    def died(self, slot: int) -> None:
        """Forget what a dead worker had under way. Its counters stand."""
        (self._folder / f"{slot}.pid").unlink(missing_ok=True)
        mark_process_dead(slot, path=str(self._folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        """Every worker's metrics, added up."""
        yield from MultiProcessCollector(None, path=str(self._folder)).collect()  # type: ignore[no-untyped-call]
        yield from self._processes()

    def _processes(self) -> Iterator[Metric]:
        """CPU time, memory and files of all workers together; the start of the first."""
        found: dict[str, Metric] = {}
        for pid in self._process_ids():
            for family in ProcessCollector(registry=None, pid=lambda pid=pid: pid).collect():  # type: ignore[misc]
                known = found.setdefault(family.name, family)
                if known is not family:
                    _add(known, family)
        yield from found.values()

    def _process_ids(self) -> Iterator[int]:
        for file in sorted(self._folder.glob("*.pid")):
            with suppress(FileNotFoundError, ValueError):  # it may have died, or be about to write
                yield int(file.read_text(encoding="ascii"))


def _add(known: Metric, other: Metric) -> None:
    merge = min if known.name == "process_start_time_seconds" else add
    known.samples = [
        Sample(ours.name, ours.labels, merge(ours.value, theirs.value))
        for ours, theirs in zip(known.samples, other.samples, strict=True)
    ]

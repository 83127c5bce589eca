"""The registry: the prompts in force, renewed when their files change.

Files are looked at and read beside the event loop. A request holds the snapshot that it began with. A file that cannot
be read changes nothing: the last good snapshot stays in force, and the log and a metric say so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

from proxy.prompting.files import PromptFileError
from proxy.prompting.sources import Snapshot, Sources
from proxy.telemetry.metrics import Metrics

_MOST_NAMED = 10

_log = logging.getLogger("stratiform")


class Reloaded(StrEnum):
    """The outcome of a look at changed files."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    BROKEN = "broken"


class Registry:
    """The prompts in force, which are its ``snapshot``."""

    def __init__(self, sources: Sources, metrics: Metrics) -> None:
        self._sources = sources
        self._held = sources.read(sources.states(), {})
        self._mistake = ""
        self._metrics = metrics
        self.snapshot = sources.composed(self._held)
        metrics.prompt_set(self.snapshot.version)

    async def watch(self, look_s: float, wait: Callable[[float], Awaitable[None]]) -> None:
        """Look at the files again and again, with a pause of ``look_s`` seconds before each time, until its task
        ends."""
        while True:
            await wait(look_s)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Look at the files once, and take over what has changed. It reads files, so it belongs beside the event
        loop; only one thread may look at a time."""
        try:
            states = self._sources.states()
            if states == tuple(self._held):
                self._mistake = ""
                return
            held = self._sources.read(states, self._held)
            if self._sources.states() != states:
                return  # A file is being written. The next look reads it.
            snapshot = self._sources.composed(held, self.snapshot)
        except PromptFileError as error:
            # The same mistake is reported only once, however often the files are looked at.
            if str(error) != self._mistake:
                self._mistake = str(error)
                _log.error("the prompts are not reloaded, version %s stays in force: %s", self.snapshot.version, error)
                self._metrics.prompts_reloaded(Reloaded.BROKEN)
            return
        self._held, self._mistake = held, ""
        self._take_over(snapshot)

    def _take_over(self, snapshot: Snapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        if before.version == snapshot.version:
            _log.info("the prompts were read again, and say what they said (version %s)", snapshot.version)
            self._metrics.prompts_reloaded(Reloaded.UNCHANGED)
            return
        _log.warning(
            "the prompts have changed from version %s to %s (%s): each session that uses one of them misses its cache "
            "once, from the changed text on",
            before.version,
            snapshot.version,
            _named(changed_ids(before, snapshot)),
        )
        self._metrics.prompt_set(snapshot.version)
        self._metrics.prompts_reloaded(Reloaded.CHANGED)


def changed_ids(before: Snapshot, after: Snapshot) -> list[str]:
    """The sorted ids of the prompts that were added, removed or changed. Empty if only fragments or the order have
    changed."""
    old = {prompt.id: prompt for prompt in before.prompts}
    new = {prompt.id: prompt for prompt in after.prompts}
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(ids[:_MOST_NAMED]) + more if ids else "fragments or the order"

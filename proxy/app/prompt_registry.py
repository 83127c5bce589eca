"""The registry of prompts of a running app, opened where the configuration composes any."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pluggy

from proxy.app.prompting import missing_prompts
from proxy.prompting.files import PromptFileError
from proxy.prompting.rules import Rules
from proxy.settings import ConfigError, Settings
from proxy.tasks import Tasks, cancel, spawn
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.prompting.registry import Registry
    from proxy.prompting.sources import Snapshot

_log = logging.getLogger("stratiform")


class LazyRegistry:
    """The prompts in force. Most proxies compose none, and do not pay for the language of templates."""

    def __init__(
        self,
        settings: Settings,
        manager: pluggy.PluginManager,
        metrics: Metrics,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``settings`` are those of the start: the folders stay the same until the process ends."""
        self._settings = settings
        self._manager = manager
        self._metrics = metrics
        self._wait = wait
        self._registry: Registry | None = None
        self._tasks: Tasks = set()

    def snapshot(self) -> "Snapshot":
        """The prompts that are in force. The registry was opened before: no rules that need it hold without it."""
        assert self._registry is not None
        return self._registry.snapshot

    async def open(self, settings: Settings, rules: Rules) -> None:
        """Make sure that the prompts which the ``rules`` of these settings compose are read, and that their files are
        looked at from then on. A warning tells of each prompt that the settings name and that is not there. Raises
        ConfigError."""
        if not rules.may_compose:
            return
        if self._registry is None:
            self._registry = await asyncio.to_thread(self._read)
            spawn(self._registry.watch(self._settings.stratiform.prompts.look_s, self._wait), self._tasks)
        for problem in missing_prompts(settings, [prompt.id for prompt in self.snapshot().prompts]):
            _log.warning("%s", problem)

    def _read(self) -> "Registry":
        # A tenth of the time that it takes to start, for those who compose prompts.
        from proxy.prompting.registry import Registry
        from proxy.prompting.sources import Sources

        folders, is_shipped = self._settings.prompt_folders, self._settings.stratiform.prompts.shipped
        try:
            return Registry(Sources.of(folders, is_shipped=is_shipped, manager=self._manager), self._metrics)
        except PromptFileError as error:
            raise ConfigError([f"stratiform.prompts: {error}"]) from error

    async def aclose(self) -> None:
        """Look at the files no more."""
        await cancel(self._tasks)

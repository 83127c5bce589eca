"""The registry of prompts of a running app, opened where the configuration composes any."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

from proxy.prompting.compositions import NoPrompts, PromptSet
from proxy.prompting.files import PromptFileError
from proxy.prompting.rules_in_force import RulesInForce
from proxy.settings import ConfigError
from proxy.tasks import Tasks, cancel, spawn
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.prompting.registry import Registry

_NONE = NoPrompts()


class PromptSource:
    """Gives the prompts of the moment. Most proxies compose none, and do not pay for the language of templates."""

    def __init__(
        self,
        folders: list[Path],
        *,
        is_shipped: bool,
        look_s: float,
        manager: pluggy.PluginManager,
        metrics: Metrics,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._folders = folders
        self._is_shipped = is_shipped
        self._look_s = look_s
        self._manager = manager
        self._metrics = metrics
        self._wait = wait
        self._registry: Registry | None = None
        self._tasks: Tasks = set()

    def prompt_set(self) -> PromptSet:
        """The prompts that are in force; none before ``open``."""
        return _NONE if self._registry is None else self._registry.snapshot

    async def open(self) -> None:
        """Read the prompts, and look at their files from then on; nothing where that was done before. Raises
        ConfigError."""
        if self._registry is not None:
            return
        # A tenth of the time that it takes to start, for those who compose prompts.
        from proxy.prompting.registry import Registry
        from proxy.prompting.sources import Sources

        def read() -> "Registry":
            sources = Sources.of(self._folders, is_shipped=self._is_shipped, manager=self._manager)
            return Registry.open(sources, self._metrics)

        try:
            self._registry = await asyncio.to_thread(read)
        except PromptFileError as error:
            raise ConfigError([f"stratiform.prompts: {error}"]) from error
        spawn(self._registry.watch(self._look_s, self._wait), self._tasks)

    async def aclose(self) -> None:
        """Look at the files no more."""
        await cancel(self._tasks)


def composes(rules: RulesInForce) -> bool:
    """Whether any request may be composed with prompts of the registry."""
    has_template = any(profile.template for profile in rules.windows.profiles.values())
    return not rules.prompts.is_empty or (has_template and not rules.windows.is_empty)

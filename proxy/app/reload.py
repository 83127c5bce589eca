"""Reads the configuration again while the proxy runs, when a SIGHUP asks for it.

Models, prices, teams, keys, budgets, and the rules for prompts and context windows are in force from then on. Running
requests keep their deployment, and no connection is closed. A file with mistakes changes nothing.
Everything else in the file (the address, the store, limits, workers, folders of prompts ...) is fixed when the process
starts; a change there is named in the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from proxy.access.directory import Directory
from proxy.app import declared, factories, prompting
from proxy.app.prompting import LazyRegistry
from proxy.core.money.prices import PriceMap
from proxy.core.value import dataclass, replace
from proxy.deployments import ModelTable
from proxy.prompting.composer import Composer
from proxy.settings import ConfigError, Settings, Stratiform

_TAKEN_OVER = frozenset({"teams", "client_keys", "prices", "mode", "prompts", "window"})
_FIXED = [name for name in Stratiform.model_fields if name not in _TAKEN_OVER]
_PROMPTS = ("folders", "shipped", "look_s")

_log = logging.getLogger("stratiform")


@dataclass(slots=True)
class ConfigSource:
    """The configuration as it was last read without mistakes, and how to read it again."""

    settings: Settings
    read: Callable[[], Settings]

    def reread(self) -> bool:
        """Read the configuration again. Returns whether it can be used. A mistake is logged, and the configuration that
        was read before stays."""
        try:
            settings = self.read()
            _, problems = factories.entries_with(settings)
            if problems:
                raise ConfigError(problems)
        except ConfigError as error:
            _log.error("the configuration is not reloaded: %s", "; ".join(error.problems))
            return False
        for what in _needs_restart(self.settings, settings):
            _log.warning("%s has changed: the change takes effect when the proxy is started again", what)
        self.settings = settings
        return True


@dataclass(frozen=True, slots=True)
class Reload:
    """The parts of a running app that follow the configuration."""

    models: ModelTable
    prices: PriceMap
    directory: Directory
    composer: Composer
    prompts: LazyRegistry

    async def run(self, source: ConfigSource) -> bool:
        """Read the configuration again and put it into force. Returns whether that was done."""
        if not await asyncio.to_thread(source.reread):
            return False
        settings = source.settings
        rules = prompting.rules_of(settings, self.models.spellings)
        # This comes first: if prompts could not be read, their rules would let requests go without the prompts.
        try:
            await self.prompts.open(settings, rules)
        except ConfigError as error:
            _log.error("the configuration is not reloaded: %s", "; ".join(error.problems))
            return False
        self.prices.override_all(factories.price_overrides(settings))
        self.models.replace(factories.model_table(settings, self.prices))
        self.composer.rules = rules
        self.directory.declare(declared.declared(settings))
        now = self.directory.snapshot
        found = len(self.models.names()), len(now.teams), len(now.keys), len(now.budgets)
        _log.info("the configuration is reloaded: %d models, %d teams, %d keys, %d budgets", *found)
        return True


def _needs_restart(before: Settings, now: Settings) -> Iterator[str]:
    """The changed settings that a running process cannot take over."""
    ours, new = before.stratiform, now.stratiform
    routing_before, routing_now = (
        replace(one.routing, fallbacks={}, context_window_fallbacks={}, targets=()) for one in (before, now)
    )
    admin = "general_settings.master_key (the admin API is switched on and off at the start)"
    fixed: list[tuple[str, object, object]] = [
        *((f"stratiform.{name}", getattr(ours, name), getattr(new, name)) for name in _FIXED),
        *((f"stratiform.prompts.{name}", getattr(ours.prompts, name), getattr(new.prompts, name)) for name in _PROMPTS),
        (admin, before.master_key is None, now.master_key is None),
        ("general_settings.allowed_ips", before.allowed_ips, now.allowed_ips),
        ("router_settings (retries, cooldowns and pre-call checks)", routing_before, routing_now),
    ]
    yield from (what for what, was, is_now in fixed if was != is_now)

"""Builds the plugin manager: the default plugins, then installed ones (entry point group ``stratiform``)."""

import importlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import pluggy

from proxy.core.recognition.pieces import MOST_CHARS, MOST_PIECES, Bound, Recogniser, Recognition, TooMuch
from proxy.core.structured.symbols import SymbolIndexer
from proxy.hookspecs import PROJECT, Hooks

DEFAULT_PLUGINS = ("plugins.aider", "plugins.tiered", "plugins.fenced", "plugins.system_text", "plugins.symbol_index")

_log = logging.getLogger("stratiform")

# What a recogniser may take: this much for any text, and this much more for each megabyte of it. The recognisers that
# come along take a tenth of it for the worst texts that are known.
_ANY_TEXT_S = 0.1
_MEGABYTE_S = 1.0
# One call that takes longer may have met the garbage collector; so many within so many calls have not.
_MOST_SLOW = 5
_CALLS = 1_000


class Watch(Protocol):
    """Hears what becomes of recognisers, each by its name."""

    def plugin_failed(self, plugin: str, hook: str) -> None:
        """A recogniser raised an exception in this hook, and was passed over."""

    def plugin_reached(self, plugin: str, bound: str) -> None:
        """A recogniser reached one of its bounds, and the text stayed whole."""

    def plugin_switched_off(self, plugin: str) -> None:
        """A recogniser was too slow too often, and is not asked again."""


@dataclass(slots=True)
class Pace:
    """Whether a recogniser is quick enough for its texts, by the processor's time that its own thread spends: a busy
    machine counts against nobody."""

    slow: int = 0
    calls: int = 0

    def took(self, seconds: float, chars: int) -> bool:
        """Count one call; True where it is too slow too often."""
        self.calls += 1
        if self.calls > _CALLS:
            self.calls = self.slow = 0
        if seconds > _ANY_TEXT_S + _MEGABYTE_S * chars / 1e6:
            self.slow += 1
        return self.slow >= _MOST_SLOW


@dataclass(slots=True)
class Guarded:
    """A recogniser whose failure costs its own answer and no more: the next one is asked. One that is too slow too
    often is switched off until the process ends."""

    name: str
    priority: int
    inner: Recogniser
    watch: Watch
    cpu_s: Callable[[], float] = time.thread_time
    is_off: bool = False
    pace: Pace = field(default_factory=Pace)

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The recogniser's answer; None where it raised, reached a bound, or is switched off."""
        if self.is_off:
            return None
        began_s = self.cpu_s()
        try:
            if len(text) > MOST_CHARS:
                raise TooMuch(Bound.LENGTH)
            found = self.inner.recognise(role, text)
            if found is not None and len(found.cuts) > MOST_PIECES:
                raise TooMuch(Bound.PIECES)
        except TooMuch as reached:
            self.watch.plugin_reached(self.name, reached.bound)
            found = None
        except Exception as error:  # noqa: BLE001 - a plugin's mistake is no reason to plan without the others
            # The type only: a message could quote the prompt.
            _log.error("plugin %s failed in recognise: %s", self.name, type(error).__name__)
            self.watch.plugin_failed(self.name, "recognise")
            found = None
        if self.pace.took(self.cpu_s() - began_s, len(text)) and not self.is_off:
            self.is_off = True
            _log.error("plugin %s is too slow for the texts that it gets: it is switched off", self.name)
            self.watch.plugin_switched_off(self.name)
        return found


def build_plugin_manager() -> pluggy.PluginManager:
    """A manager of its own for each caller. Raises pluggy.PluginValidationError where a hook's name is unknown."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for name in DEFAULT_PLUGINS:
        manager.register(importlib.import_module(name), name)
    manager.load_setuptools_entrypoints(PROJECT)
    manager.check_pending()
    return manager


def recognisers(manager: pluggy.PluginManager, watch: Watch | None = None) -> list[Recogniser]:
    """All recognisers, by priority and name; with ``watch`` what one of them raises is contained and told, and one that
    is too slow is switched off."""
    found: list[Recogniser] = [recogniser for some in manager.hook.register_recognisers() for recogniser in some]
    if watch is not None:
        found = [Guarded(r.name, r.priority, r, watch) for r in found]
    return sorted(found, key=lambda r: (r.priority, r.name))


def symbol_indexer(manager: pluggy.PluginManager) -> SymbolIndexer | None:
    """The symbol indexer that is asked: the one with the lowest priority, and then the first name. None where no plugin
    has registered one."""
    found: list[SymbolIndexer] = [one for some in manager.hook.register_symbol_indexers() for one in some]
    return min(found, key=lambda one: (one.priority, one.name), default=None)

"""The hooks by which a plugin extends the proxy, and the plugin manager that calls them.

An implementation of a hook takes only the arguments that it needs. The manager has the default plugins first, and then
the installed ones (entry point group ``stratiform``).
"""

import importlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pluggy

from proxy.context import SymbolIndexer
from proxy.prompts import Prompt
from proxy.protocol.recognition import MOST_CHARS, MOST_PIECES, Bound, KnownTexts, Recogniser, Recognition, TooMuch

PROJECT = "stratiform"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Hooks:
    """Start-up hooks: each returns typed objects, collected once when the proxy starts."""

    @hookspec
    def register_recognisers(self) -> list[Recogniser]:  # type: ignore[empty-body]
        """Recognisers of a client's texts. They must be pure, linear in the text, and cover it exactly once."""

    @hookspec
    def register_symbol_indexers(self) -> list[SymbolIndexer]:  # type: ignore[empty-body]
        """Makers of symbol blocks for structured context. They must be thread-safe and linear in the text. Only one is
        used: the one with the lowest priority, and among equals the first by name."""

    @hookspec
    def register_prompts(self) -> list[Prompt]:  # type: ignore[empty-body]
        """Prompts of the registry, after those from files. No prompt may have the id of another one."""

    @hookspec
    def register_fragments(self) -> dict[str, Callable[[], str]]:  # type: ignore[empty-body]
        """Texts that templates include by these names. Each callable is called whenever the prompts are read, outside
        the event loop. It must be quick, and return the same text until the code changes."""


DEFAULT_PLUGINS = (
    "plugins.aider",
    "plugins.tiered",
    "plugins.fenced",
    "plugins.system_text",
    # A slice: without its folder and this line everything else works.
    "plugins.symbol_index",
)

_log = logging.getLogger("stratiform")

# The time that a recogniser may take: so many seconds for any text, and so many more for each megabyte of it. The
# shipped recognisers take a tenth of it for the worst known texts.
_ANY_TEXT_S = 0.1
_MEGABYTE_S = 1.0
# A single slow call may be due to the garbage collector. So many slow calls within so many calls are not.
_MOST_SLOW = 5
_CALLS = 1_000


class Watch(Protocol):
    """Is told what happens to recognisers. Each is known by its name."""

    def plugin_failed(self, plugin: str, hook: str) -> None:
        """A recogniser raised an exception in this hook, and was skipped."""

    def plugin_reached(self, plugin: str, bound: str) -> None:
        """A recogniser reached one of its bounds, and the text stayed whole."""

    def plugin_switched_off(self, plugin: str) -> None:
        """A recogniser was too slow too often, and is not asked again."""


@dataclass(slots=True)
class Guarded:
    """A recogniser whose failure loses only its own answer: the next recogniser is asked. A recogniser that is too slow
    too often for its texts is switched off until the process ends. Only the processor time of its own thread counts, so
    that a busy machine makes no recogniser look slow."""

    name: str
    priority: int
    inner: Recogniser
    watch: Watch
    texts: KnownTexts | None = None
    cpu_s: Callable[[], float] = time.thread_time
    is_off: bool = False
    calls: int = 0
    slow: int = 0
    """How many of the latest calls were too slow."""

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The recogniser's answer; None if it raised an exception, reached a bound, or is switched off."""
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
        self.calls += 1
        if self.calls > _CALLS:
            self.calls = self.slow = 0
        self.slow += self.cpu_s() - began_s > _ANY_TEXT_S + _MEGABYTE_S * len(text) / 1e6
        if self.slow >= _MOST_SLOW and not self.is_off:
            self.is_off = True
            _log.error("plugin %s is too slow for the texts that it gets: it is switched off", self.name)
            self.watch.plugin_switched_off(self.name)
        return found


def build_plugin_manager() -> pluggy.PluginManager:
    """A new plugin manager for each caller. Raises pluggy.PluginValidationError if a hook's name is unknown."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for name in DEFAULT_PLUGINS:
        manager.register(importlib.import_module(name), name)
    manager.load_setuptools_entrypoints(PROJECT)
    manager.check_pending()
    return manager


def recognisers(manager: pluggy.PluginManager, watch: Watch | None = None) -> list[Recogniser]:
    """All recognisers, sorted by priority and name. With ``watch``, an exception in a recogniser is contained and
    reported, and a recogniser that is too slow is switched off."""
    found: list[Recogniser] = [recogniser for some in manager.hook.register_recognisers() for recogniser in some]
    if watch is not None:
        found = [Guarded(one.name, one.priority, one, watch, getattr(one, "texts", None)) for one in found]
    return sorted(found, key=lambda r: (r.priority, r.name))


def symbol_indexer(manager: pluggy.PluginManager) -> SymbolIndexer | None:
    """The symbol indexer that is used: the one with the lowest priority, and among equals the first by name. None if no
    plugin has registered one."""
    found: list[SymbolIndexer] = [one for some in manager.hook.register_symbol_indexers() for one in some]
    return min(found, key=lambda one: (one.priority, one.name), default=None)

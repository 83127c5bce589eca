"""Builds the plugin manager: the default plugins, then installed ones (entry point group ``stratiform``)."""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pluggy

from proxy.core.recognition import Recogniser, Recognition
from proxy.hookspecs import PROJECT, Hooks

DEFAULT_PLUGINS = ("plugins.aider", "plugins.fenced", "plugins.system_text")

_log = logging.getLogger("stratiform")

OnFailure = Callable[[str, str], None]
"""Hears which plugin failed, and in which hook."""


@dataclass(slots=True)
class Guarded:
    """A recogniser whose failure costs its own answer and no more: the next one is asked."""

    name: str
    priority: int
    inner: Recogniser
    on_failure: OnFailure

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The recogniser's answer; None where it raised."""
        try:
            return self.inner.recognise(role, text)
        except Exception as error:  # noqa: BLE001 - a plugin's mistake is no reason to plan without the others
            # The type only: a message could quote the prompt.
            _log.error("plugin %s failed in recognise: %s", self.name, type(error).__name__)
            self.on_failure(self.name, "recognise")
            return None


def build_plugin_manager() -> pluggy.PluginManager:
    """A manager of its own for each caller. Raises pluggy.PluginValidationError where a hook's name is unknown."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for name in DEFAULT_PLUGINS:
        manager.register(importlib.import_module(name), name)
    manager.load_setuptools_entrypoints(PROJECT)
    manager.check_pending()
    return manager


def recognisers(manager: pluggy.PluginManager, on_failure: OnFailure | None = None) -> list[Recogniser]:
    """All recognisers, by priority and name; with ``on_failure`` what one of them raises is contained and told."""
    found: list[Recogniser] = [recogniser for some in manager.hook.register_recognisers() for recogniser in some]
    if on_failure is not None:
        found = [Guarded(r.name, r.priority, r, on_failure) for r in found]
    return sorted(found, key=lambda r: (r.priority, r.name))

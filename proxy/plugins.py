"""Builds the plugin manager: the default plugins, then installed ones (entry point group ``stratiform``)."""

import importlib

import pluggy

from proxy.core.recognition import Recogniser
from proxy.hookspecs import PROJECT, Hooks

DEFAULT_PLUGINS = ("plugins.aider", "plugins.fenced", "plugins.system_text")


def build_plugin_manager() -> pluggy.PluginManager:
    """A manager of its own for each caller. Raises pluggy.PluginValidationError where a hook's name is unknown."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for name in DEFAULT_PLUGINS:
        manager.register(importlib.import_module(name), name)
    manager.load_setuptools_entrypoints(PROJECT)
    manager.check_pending()
    return manager


def recognisers(manager: pluggy.PluginManager) -> list[Recogniser]:
    """All recognisers, by priority and name."""
    found = [recogniser for some in manager.hook.register_recognisers() for recogniser in some]
    return sorted(found, key=lambda r: (r.priority, r.name))

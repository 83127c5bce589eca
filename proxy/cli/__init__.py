"""The ``stratiform`` command.

A command is one line in ``COMMANDS``, and a module of this package with the command's name. ``_PLACES`` has the modules
of other names, and the commands that share a module with others (as a ``Command``). A command has
``configure(parser)``, which adds its arguments, and ``run(arguments)``, which does the work and returns the exit
status. ``run`` may raise ConfigError. Only the module of the command that is run gets imported.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from proxy import __version__
from proxy.app.settings import ConfigError, places, refuse_shadowed
from proxy.kit.messages import visible

COMMANDS = {
    "serve": "run the proxy",
    "try": "see on a short conversation what the cache saves",
    "check-config": "check a configuration, and show what it means",
    "replay": "replay recorded sessions, and compare what they cost",
    "prompts": "list, render, check and compare composed prompts",
    "doctor": "find out in logs why caches missed, and what that costs",
    "explain": "show the layout of one recorded request, and why",
    "teams": "make and change teams",
    "keys": "make, change and revoke the proxy's own keys",
    "budgets": "make and change budgets, and show what is left",
    "spend": "report what was spent, and what caching saved",
    "prices": "show what models cost, and which pinned prices have changed",
    "top": "watch live sessions, or one of them in its layers",
    "demo": "show on sample sessions what the proxy saves",
}
_PLACES = {
    "try": "try_",
    "check-config": "check_config",
    "explain": "replay:explain",
    "teams": "accounts:teams",
    "keys": "accounts:keys",
    "budgets": "accounts:budgets",
    "spend": "costs:spend",
    "prices": "costs:prices",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name. Returns the exit status: 0 done, 1 not done, 2 wrong usage, 130
    interrupted."""
    try:
        refuse_shadowed()
        return _run(sys.argv[1:], _loaded_for_good) if arguments is None else _run(arguments, command_of)
    except KeyboardInterrupt:
        return 130
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {visible(problem)}", file=sys.stderr)
        return 1


def command_of(name: str) -> Any:
    """The module or the ``Command`` of this name."""
    module, _, attribute = _PLACES.get(name, name).partition(":")
    found = import_module(f"{__name__}.{module}")
    return getattr(found, attribute) if attribute else found


def _loaded_for_good(name: str) -> Any:
    """The command that this process runs. The objects that its modules make stay in memory, so garbage
    collection is avoided here: it would take a tenth of the start time."""
    gc.disable()
    found = command_of(name)
    gc.freeze()
    gc.enable()
    return found


def _run(words: Sequence[str], load: Callable[[str], Any]) -> int:
    parser = argparse.ArgumentParser(
        prog="stratiform", description="A transparent proxy that lays prompts out so that provider prompt caches hit."
    )
    parser.add_argument("--version", action="version", version=f"stratiform {__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    command: Any = None
    for name, summary in COMMANDS.items():
        subparser = choices.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
        if name == chosen:
            command = load(name)
            command.configure(subparser)
    parsed = parser.parse_args(words)
    assert command is not None, "argparse accepts no command that is not in COMMANDS"
    try:
        return int(command.run(parsed))
    except ConfigError as error:
        config = getattr(parsed, "config", None)
        if config is None:
            raise
        raise ConfigError(map(places(config).located, error.problems)) from error

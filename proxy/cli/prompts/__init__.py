"""Shows the prompts of the registry: ``stratiform prompts``.

Prompt files or a configuration come in; lists, composed texts, findings and differences go out. No command changes a
prompt.
"""

import argparse
from collections.abc import Mapping
from types import ModuleType

from proxy.cli.prompts import diff, lint, listing, render

_ACTIONS: Mapping[str, tuple[ModuleType, str]] = {
    "list": (listing, "list the prompts in the order in which they are composed"),
    "render": (render, "show what one request gets"),
    "lint": (lint, "find mistakes, prompts that are never composed, and what breaks caches"),
    "diff": (diff, "show what a change does to texts, tokens, cached prefixes and the bill"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (module, summary) in _ACTIONS.items():
        module.configure(choices.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}."))


def run(arguments: argparse.Namespace) -> int:
    module, _ = _ACTIONS[arguments.action]
    return int(module.run(arguments))

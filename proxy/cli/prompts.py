"""``stratiform prompts``: what is in the registry of prompts, what it gives, what is wrong with it, and what a change
does."""

import argparse
from collections.abc import Mapping
from types import ModuleType

from proxy.cli import prompt_diff, prompt_lint, prompt_list, prompt_render

_ACTIONS: Mapping[str, tuple[ModuleType, str]] = {
    "list": (prompt_list, "list the prompts in the order in which they are composed"),
    "render": (prompt_render, "show what one request gets"),
    "lint": (prompt_lint, "find mistakes, prompts that are never composed, and what breaks caches"),
    "diff": (prompt_diff, "show what a change does to texts, tokens, cached prefixes and the bill"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions, with their arguments."""
    choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (module, summary) in _ACTIONS.items():
        inner = choices.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
        module.configure(inner)


def run(arguments: argparse.Namespace) -> int:
    """Run the action, and return the exit status. Raises ConfigError."""
    module, _ = _ACTIONS[arguments.action]
    return int(module.run(arguments))

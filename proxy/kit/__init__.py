"""Tools that every other package uses: errors, the clock, tasks, bounded tables, digests, modes and reasons.

Here is how the command begins, before anything else is loaded, and how pages and pictures are filled in.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from signal import SIGINT, default_int_handler, getsignal, signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def main() -> int:
    """The ``stratiform`` command. Whoever interrupts it while its modules load sees nothing of that."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The stream is closed. The next file that is opened must not be taken for it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, leave)
    return int(import_module("proxy.cli").main())


def leave(*_: object) -> None:
    """End the process at once. An exception would cross the loading of extension modules, which may wrap it, or
    crash."""
    os._exit(130)


def templates_in(folder: Path) -> "Environment":
    """The templates in a folder of the package, as a Jinja environment. Every text that is filled in is escaped,
    wherever it comes from."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

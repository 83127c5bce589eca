"""Stratiform: a transparent proxy that lays LLM prompts out in stability tiers, so that provider prompt caches hit.

The life of a request, and where each step lives:

    admit ─ recognise ─ track ─ plan ─ render ─ forward ─ stream back ─ settle (exactly once)

``proxy.protocol`` and ``proxy.planner`` are pure: values in, values out; no clock, no I/O, no litellm. ``proxy.engine``
takes an exchange through the steps. It depends on ports, not on Starlette. ``proxy.app.web``, ``proxy.upstream`` and
``proxy.storage`` are the thin rim. Recognisers for single clients are plugins (top-level ``plugins``). They use the
same hooks as third-party plugins.
"""

import os
import sys
from importlib import import_module
from signal import SIGINT, default_int_handler, getsignal, signal

__version__ = "0.1.0"


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

"""Notes in which thread each call of some functions runs: in the event loop's, or beside it."""

from collections.abc import Callable
from importlib import import_module
from threading import current_thread

import pytest


def watched(patch: pytest.MonkeyPatch, *steps: str, least: int = 0) -> list[str]:
    """The calls of these functions ("module:name") from now on, each as "name in thread". ``least`` is the length of
    all arguments together from which on a call is noted."""
    seen: list[str] = []
    for step in steps:
        place, _, name = step.partition(":")
        module = import_module(place)
        work: Callable[..., object] = getattr(module, name)

        def noting(*args: object, work: Callable[..., object] = work, name: str = name, **more: object) -> object:
            if not least or sum(len(one) for one in args if isinstance(one, bytes | str)) > least:
                seen.append(f"{name} in {current_thread().name}")
            return work(*args, **more)

        patch.setattr(module, name, noting)
    return seen


def on_the_loop(seen: list[str]) -> list[str]:
    """The calls that ran in the event loop's thread. Threads beside it have names of ours."""
    return [one for one in seen if "stratiform-" not in one]

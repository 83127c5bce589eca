"""Puts something else in the place of a name of the product, in this process, wherever it was imported."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


def holder_of(where: str) -> tuple[Any, str]:
    """The module or class in which something stands ("package.module:Class.name"), and its name there."""
    module, _, path = where.partition(":")
    *holders, last = path.split(".")
    owner: Any = importlib.import_module(module)
    for holder in holders:
        owner = getattr(owner, holder)
    return owner, last


def replace(where: str, becomes: Callable[[Any], Any]) -> Callable[[], None]:
    """Put ``becomes(old)`` there; the function that is returned puts the old one back. Modules that have imported a
    function, a class or a collection get the new one, too; a number is only replaced where it stands."""
    import_all()
    owner, last = holder_of(where)
    old = getattr(owner, last)
    new = becomes(old)
    places = [(owner, last)]
    if not isinstance(owner, type) and not isinstance(old, int | float):
        places += [
            (known, key)
            for known in list(sys.modules.values())
            if getattr(known, "__name__", "").split(".")[0] in ("proxy", "plugins")
            for key, value in list(vars(known).items())
            if value is old
        ]
    for place, name in places:
        setattr(place, name, new)

    def undo() -> None:
        for place, name in places:
            setattr(place, name, old)

    return undo


@contextmanager
def replaced(where: str, becomes: Callable[[Any], Any]) -> Iterator[None]:
    """The same for a while."""
    undo = replace(where, becomes)
    try:
        yield
    finally:
        undo()


@lru_cache(maxsize=1)
def import_all() -> None:
    """Import every module of the product."""
    for package in ("proxy", "plugins"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)

"""Replaces a name of the product by another object, in this process, in every module that has imported it."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


def holder_of(where: str) -> tuple[Any, str]:
    """The module or class that holds the object ("package.module:Class.name"), and its name there."""
    module, _, path = where.partition(":")
    *holders, last = path.split(".")
    owner: Any = importlib.import_module(module)
    for holder in holders:
        owner = getattr(owner, holder)
    return owner, last


def replace(where: str, becomes: Callable[[Any], Any]) -> Callable[[], None]:
    """Replace the object by ``becomes(old)``. The returned function restores the old object. Modules that have imported
    a function, a class or a collection get the new one, too. A number is replaced only in its own module."""
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
    """Replace the object until the end of the block."""
    undo = replace(where, becomes)
    try:
        yield
    finally:
        undo()


@lru_cache(maxsize=1)
def import_all() -> None:
    """Import every module of the product, but for those that only another program imports. LiteLLM's proxy imports its
    hook; here, that would import litellm, which then fetches its price map."""
    for package in ("proxy", "plugins"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.endswith(("__main__", ".litellm_hook")):
                importlib.import_module(module.name)

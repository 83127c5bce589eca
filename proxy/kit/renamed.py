"""Keeps old places of modules importable for plugins of earlier versions, with a warning."""

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType


class OldPlace(ModuleType):
    """A module that has moved to ``successor``. ``names`` are new names by old ones; all other names are the same."""

    def __init__(self, place: str, successor: str, names: Mapping[str, str]) -> None:
        super().__init__(place, f"The old place of ``{successor}``.")
        self._successor = successor
        self._names = names

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        new = self._names.get(name, name)
        found: object = getattr(import_module(self._successor), new)
        warnings.warn(f"{self.__name__}.{name} is now {self._successor}.{new}", DeprecationWarning, stacklevel=2)
        return found


def keep(package: str, moved: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Make modules of a package importable that have moved (new places by old names)."""
    for name, successor in moved.items():
        sys.modules[f"{package}.{name}"] = OldPlace(f"{package}.{name}", successor, names)

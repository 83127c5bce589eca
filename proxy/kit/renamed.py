"""Keeps old names and old places of modules importable for plugins of earlier versions, with a warning."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType


def renamed(
    place: str, successor: str, names: Mapping[str, str] = MappingProxyType({}), *, whole: bool = False
) -> Callable[[str], object]:
    """The ``__getattr__`` of the module ``place``. It finds the ``names`` (new names by old names) in the module
    ``successor``. With ``whole`` the module has moved as a whole: all its other names are found in ``successor``,
    too."""

    def find(name: str) -> object:
        new = names.get(name, name if whole and not name.startswith("_") else "")
        if not new:
            raise AttributeError(f"module {place!r} has no attribute {name!r}")
        found: object = getattr(import_module(successor), new)
        warnings.warn(f"{place}.{name} is now {successor}.{new}", DeprecationWarning, stacklevel=2)
        return found

    return find

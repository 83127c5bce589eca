"""Old places of what plugins of earlier versions import. An import from them warns with the new place."""

import sys
import warnings
from importlib import import_module
from types import MappingProxyType, ModuleType

_MOVED = MappingProxyType(
    {
        "digest": "proxy.kit.value",
        "line_breaks": "proxy.protocol.recognition.lines",
        "recognition": "proxy.protocol.recognition",
        "tiered_files": "proxy.protocol.recognition",
        "words": "proxy.protocol.recognition",
    }
)
_NEW_NAMES = MappingProxyType({"Form": "MessageKind", "Claim": "FileClaim"})


class OldPlace(ModuleType):
    """A module that has moved to ``successor``."""

    def __init__(self, name: str, successor: str) -> None:
        super().__init__(name, f"The old place of ``{successor}``.")
        self._successor = successor

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        new = _NEW_NAMES.get(name, name)
        found: object = getattr(import_module(self._successor), new)
        warnings.warn(f"{self.__name__}.{name} is now {self._successor}.{new}", DeprecationWarning, stacklevel=2)
        return found


sys.modules.update({f"{__name__}.{name}": OldPlace(f"{__name__}.{name}", new) for name, new in _MOVED.items()})

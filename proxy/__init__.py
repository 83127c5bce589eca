"""Stratiform: a transparent proxy that lays LLM prompts out in stability tiers, so that provider prompt caches hit.

The life of a request, and where each step lives:

    admit ─ recognise ─ track ─ plan ─ render ─ forward ─ stream back ─ settle (exactly once)

``proxy.protocol`` and ``proxy.planner`` are pure: values in, values out; no clock, no I/O, no litellm. ``proxy.engine``
takes an exchange through the steps. It depends on ports, not on Starlette. ``proxy.app.web``, ``proxy.upstream`` and
``proxy.storage`` are the thin rim. Recognisers for single clients are plugins (top-level ``plugins``). They use the
same hooks as third-party plugins.
"""

import sys
import warnings
from importlib import import_module
from types import MappingProxyType, ModuleType

__version__ = "0.1.0"

# Old places of what plugins of earlier versions import. An import from them warns with the new place.
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


class _OldPlace(ModuleType):
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


sys.modules["proxy.core"] = core = ModuleType("proxy.core", "The old places.")
sys.modules.update({f"proxy.core.{name}": _OldPlace(f"proxy.core.{name}", new) for name, new in _MOVED.items()})

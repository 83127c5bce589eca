"""The hooks by which a plugin extends the proxy. An implementation takes only the arguments that it needs."""

from collections.abc import Callable

import pluggy

from proxy.context import SymbolIndexer
from proxy.prompts import Prompt
from proxy.protocol.recognition import Recogniser

PROJECT = "stratiform"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Hooks:
    """Start-up hooks: each returns typed objects, collected once when the proxy starts."""

    @hookspec
    def register_recognisers(self) -> list[Recogniser]:  # type: ignore[empty-body]
        """Recognisers of a client's texts. They must be pure, linear in the text, and cover it exactly once."""

    @hookspec
    def register_symbol_indexers(self) -> list[SymbolIndexer]:  # type: ignore[empty-body]
        """Makers of symbol blocks for structured context. They must be thread-safe and linear in the text. Only one is
        used: the one with the lowest priority, and among equals the first by name."""

    @hookspec
    def register_prompts(self) -> list[Prompt]:  # type: ignore[empty-body]
        """Prompts of the registry, after those from files. No prompt may have the id of another one."""

    @hookspec
    def register_fragments(self) -> dict[str, Callable[[], str]]:  # type: ignore[empty-body]
        """Texts that templates include by these names. Each callable is called whenever the prompts are read, outside
        the event loop. It must be quick, and return the same text until the code changes."""

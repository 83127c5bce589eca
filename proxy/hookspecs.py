"""What a plugin may add. An implementation takes only the arguments that it wants."""

from collections.abc import Callable

import pluggy

from proxy.core.prompts.prompt import Prompt
from proxy.core.recognition.pieces import Recogniser
from proxy.core.structured.symbols import SymbolIndexer

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
        """Makers of symbol blocks for structured context. They must be safe in several threads and linear in the text;
        of several the one with the lowest priority, and then the first name, is asked."""

    @hookspec
    def register_prompts(self) -> list[Prompt]:  # type: ignore[empty-body]
        """Prompts of the registry, behind those of files. None may have the id of another prompt."""

    @hookspec
    def register_fragments(self) -> dict[str, Callable[[], str]]:  # type: ignore[empty-body]
        """Texts that templates include by these names. Each callable is called whenever the prompts are read, beside
        the event loop; it must be quick, and give the same text until the code changes."""

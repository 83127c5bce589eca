"""The symbol index for tests, through its public interface. Without the extra `symbols` its tests are skipped, and fail
in CI."""

import hashlib
import importlib

from plugins.symbol_index import is_installed
from proxy.context import ContextFile, SymbolIndexer, SymbolMap
from tests.services import absent


def make_indexer(**bounds: int) -> SymbolIndexer:
    """A new indexer. ``bounds`` replace its bounds of memory."""
    if not is_installed():
        absent("the extra `symbols` is not installed; `make setup` installs it")
    indexer: SymbolIndexer = importlib.import_module("plugins.symbol_index.indexer").TreeSitterIndexer(**bounds)
    return indexer


def source(path: str, text: str | None) -> ContextFile:
    """A file in the form of a request."""
    data = (text or "").encode("utf-8", "surrogatepass")
    return ContextFile(path, text, hashlib.sha256(data).hexdigest(), is_selected=False)


def symbols(texts: dict[str, str], indexer: SymbolIndexer | None = None) -> SymbolMap:
    """The symbol map of these texts by path, without aliases."""
    return (indexer or make_indexer()).index([source(path, text) for path, text in texts.items()], {})

"""Symbol blocks of source files, by tree-sitter.

What comes in are the files of one request: a path, a text and the text's digest. What goes out is a compact block of
symbols for each file in a language that is known, a legend that explains the notation, and the graph of which file
refers to which. The package never reads a file, never runs what it reads, and downloads nothing: parsers come with the
optional extra ``symbols``. Without that extra it registers no indexer.
"""

import importlib
import importlib.util
import logging

from proxy.core.structured.symbol_index import SymbolIndexer
from proxy.hookspecs import hookimpl

_log = logging.getLogger("stratiform")


def is_installed() -> bool:
    """Whether the extra ``symbols`` is there."""
    return importlib.util.find_spec("tree_sitter") is not None


@hookimpl
def register_symbol_indexers() -> list[SymbolIndexer]:
    """Called once, when the proxy starts."""
    if not is_installed():
        _log.info("no symbol index: install the extra `symbols` for one (stratiform[symbols])")
        return []
    indexer: SymbolIndexer = importlib.import_module("plugins.symbol_index.indexer").TreeSitterIndexer()
    return [indexer]

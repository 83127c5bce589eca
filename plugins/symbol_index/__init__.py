"""Symbol blocks of source files, by tree-sitter.

The input is the files of one request: a path, a text and the text's digest. The output is a compact block of
symbols for each file in a known language, a legend that explains the notation, and the graph of references between
files. The package never reads a file, never runs the texts that it gets, and downloads nothing: parsers come with the
optional extra ``symbols``. Without that extra it registers no indexer.
"""

import importlib
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property

from proxy.context import ContextFile, SymbolIndexer, SymbolMap
from proxy.hookspecs import hookimpl

_log = logging.getLogger("stratiform")


def is_installed() -> bool:
    """Whether the extra ``symbols`` is installed."""
    return importlib.util.find_spec("tree_sitter") is not None


@hookimpl
def register_symbol_indexers() -> list[SymbolIndexer]:
    """Called once, when the proxy starts."""
    if not is_installed():
        _log.info("no symbol index: install the extra `symbols` for one (stratiform[symbols])")
        return []
    return [LazyIndexer()]


class LazyIndexer:
    """The index. Its parsers are loaded at the first question, because most proxies never ask it anything."""

    name = "tree-sitter"
    priority = 100

    @cached_property
    def _loaded(self) -> SymbolIndexer:
        # If two threads ask first, each makes an indexer, and one of the two stays: both give the same answers.
        indexer: SymbolIndexer = importlib.import_module("plugins.symbol_index.indexer").TreeSitterIndexer()
        return indexer

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """The symbols of these files. Several threads may call this at once."""
        return self._loaded.index(files, aliases)

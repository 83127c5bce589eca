"""Parses texts by the grammar of their files, with bounded work. A grammar is loaded when the first file needs it.

The work for one text is counted and not timed, so that a text always gets the same answer. In a text that is built for
it, a hundred steps may take fifty times as long, and only the clock shows that. So the processor time of all texts of a
call is bounded, too. The bound is above the time that texts written by people take.

After each hundred steps the parser calls a function that counts these steps and says whether it goes on. Other threads
of the process can run during this call: without it the parser would hold the interpreter until it is done.
"""

import ctypes
import importlib
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

from tree_sitter import Language, Parser, Point, Tree

_GRAMMARS: dict[str, tuple[str, str]] = {
    "python": ("tree_sitter_python", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "php": ("tree_sitter_php", "language_php"),
}
SUFFIXES: dict[str, str] = {
    **dict.fromkeys(("py", "pyi", "pyw"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), "javascript"),
    **dict.fromkeys(("ts", "mts", "cts"), "typescript"),
    "tsx": "tsx",
    "go": "go",
    "rs": "rust",
    "java": "java",
    **dict.fromkeys(("c", "h"), "c"),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp", "hh", "hxx", "h++", "c++", "inl", "ipp"), "cpp"),
    **dict.fromkeys(("rb", "rake"), "ruby"),
    **dict.fromkeys(("php", "phtml"), "php"),
}
"""The grammar by the last part of a file's name."""
_CPP_ONLY = re.compile(r"^[ \t]*+(?:class|namespace|template|using|public:|private:|protected:)\b", re.MULTILINE)


def grammar_of(path: str, text: str) -> str | None:
    """The name of the grammar for a file; None if no grammar knows it. A header is read as C++ if one of its lines
    begins with a word that only C++ has."""
    suffix = path.rpartition("/")[2].rpartition(".")[2].lower()
    return "cpp" if suffix == "h" and _CPP_ONLY.search(text) else SUFFIXES.get(suffix)


@cache
def language(grammar: str) -> Language:
    """The compiled grammar. Raises ImportError if its wheel is not installed."""
    package, function = _GRAMMARS[grammar]
    make: Callable[[], object] = getattr(importlib.import_module(package), function)
    return Language(make())


@cache
def _keeps_what_it_read(grammar: str) -> bool:
    """Whether the installed tree-sitter never gives up a reference to the bytes that a reader returns, so that every
    text would stay in memory until the process ends. That is so in all versions up to 0.26.1. Nothing may hold the
    reference any more when the parser and the tree are gone."""
    text = b"a " * 8
    before = sys.getrefcount(text)
    Parser(language(grammar)).parse(lambda position, _point: text if position == 0 else None)
    return sys.getrefcount(text) > before


MOST_BYTES = 512 << 10
"""Larger files get no symbols: they are generated or data."""
_ROUNDS = 60
_BYTES_A_ROUND = 40
"""A round is a hundred steps. Hand-written sources take a round for each 60 to 250 bytes, minified ones for 48."""
_CHUNK_BYTES = 64 << 10
_FEW_NODES = 300
_MOST_NODES_PER_BYTE = 0.75
"""Hand-written sources have 0.16 in the median, tables of short numbers 0.57. To read a node takes a microsecond."""
_FREE_S = 0.1
_S_PER_TEXT = 0.1e-3
_S_PER_CHAR = 0.6e-6
"""Processor time to parse and to read. Hand-written sources take half of it."""


class Budget:
    """The processor time that one call may take in its thread for texts that the index does not know."""

    def __init__(self) -> None:
        self._until_s = time.thread_time() + _FREE_S

    def grow(self, chars: int) -> None:
        """Add the time for a text of this length, which is to be parsed."""
        self._until_s += _S_PER_TEXT + chars * _S_PER_CHAR

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return time.thread_time() > self._until_s


class Parsers(threading.local):
    """One parser of each grammar for each thread."""

    def __init__(self) -> None:
        self._parser_of = cache(lambda grammar: Parser(language(grammar)))

    def parse(self, grammar: str, source: bytes, budget: Budget) -> Tree | None:
        """The tree of a text; None if it took too much work, or would take too much work to read."""
        parser = self._parser_of(grammar)
        left = _ROUNDS + len(source) // _BYTES_A_ROUND

        given: list[bytes] = []

        def read(position: int, _point: Point) -> bytes:
            given.append(source[position : position + _CHUNK_BYTES])
            return given[-1]

        def has_enough(_position: int, _has_error: bool) -> bool:
            """Whether the parser shall give up: another round is over."""
            nonlocal left
            left -= 1
            return left < 0 or budget.is_spent

        try:
            tree = parser.parse(read, progress_callback=has_enough)
        except ValueError:
            parser.reset()
            return None
        finally:
            if _keeps_what_it_read(grammar):
                for chunk in given:
                    ctypes.pythonapi.Py_DecRef(ctypes.py_object(chunk))
        has_many = tree.root_node.descendant_count > _FEW_NODES + _MOST_NODES_PER_BYTE * len(source)
        return None if has_many else tree

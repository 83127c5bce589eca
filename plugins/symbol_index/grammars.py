"""Which grammar reads a file. A grammar is loaded when the first file needs it, and stays."""

import importlib
import re
from collections.abc import Callable
from functools import cache

from tree_sitter import Language

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
    """The name of the grammar for a file; None where no grammar knows it. A header is read as C++ where a line of it
    begins with a word that only C++ has."""
    suffix = path.rpartition("/")[2].rpartition(".")[2].lower()
    grammar = SUFFIXES.get(suffix)
    return "cpp" if suffix == "h" and _CPP_ONLY.search(text) else grammar


@cache
def language(grammar: str) -> Language:
    """The compiled grammar. Raises ImportError where its wheel is not installed."""
    package, function = _GRAMMARS[grammar]
    make: Callable[[], object] = getattr(importlib.import_module(package), function)
    return Language(make())

"""The symbol indexer: it parses texts by the grammar of their files, with bounded work, and keeps the results.

A grammar is loaded when the first file needs it. The work for one text is counted and not timed, so that a text always
gets the same answer. In a text that is built for it, a hundred steps may take fifty times as long, and only the clock
shows that. So the processor time of all texts of a call is bounded, too. The bound is above the time that texts written
by people take. After each hundred steps the parser calls a function that counts these steps and says whether it goes
on. Other threads of the process can run during this call: without it the parser would hold the interpreter until it is
done.

Results for texts are kept by their digests, and those for whole repositories by their paths. Every kept value is a pure
function of texts and paths. So the answer is always that of an index from scratch, whatever was asked before, in any
order and by any thread. The kept values only make it quicker.
"""

import ctypes
import importlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from tree_sitter import Language, Parser, Point, Tree

from plugins.symbol_index.extract import Extract, Rules, extract
from plugins.symbol_index.languages import GO, JAVA, JAVASCRIPT, PHP, PYTHON, RUBY, RUST, C
from plugins.symbol_index.references import FAMILIES, Entry, References
from proxy.context import ContextFile, SymbolMap, shorten
from proxy.kit.lru import Bounded
from proxy.kit.value import dataclass

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
RULES: Mapping[str, Rules] = {
    "python": PYTHON,
    "javascript": JAVASCRIPT,
    "typescript": JAVASCRIPT,
    "tsx": JAVASCRIPT,
    "go": GO,
    "rust": RUST,
    "java": JAVA,
    "c": C,
    "cpp": C,
    "ruby": RUBY,
    "php": PHP,
}
"""The rules by the name of the grammar."""
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
# A round is a hundred steps. Hand-written sources take a round for each 60 to 250 bytes, minified ones for 48.
_ROUNDS = 60
_BYTES_A_ROUND = 40
_CHUNK_BYTES = 64 << 10
# Hand-written sources have 0.16 in the median, tables of short numbers 0.57. To read a node takes a microsecond.
_FEW_NODES = 300
_MOST_NODES_PER_BYTE = 0.75
# Processor time to parse and to read. Hand-written sources take half of it.
_FREE_S = 0.1
_S_PER_TEXT = 0.1e-3
_S_PER_CHAR = 0.6e-6


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
        most_nodes = _FEW_NODES + _MOST_NODES_PER_BYTE * len(source)
        return tree if tree.root_node.descendant_count <= most_nodes else None


@cache
def _notation() -> str:
    """The text of ``prompts/symbol_legend.md`` without its front matter."""
    return files("prompts").joinpath("symbol_legend.md").read_text("utf-8").split("---\n", 2)[2].strip()


def legend(aliases: Mapping[str, str]) -> str:
    """The notation, and one line for each alias in the order in which they were given: a new alias is appended."""
    if not aliases:
        return _notation()
    lines = [f"{alias}={directory}" for directory, alias in aliases.items()]
    return "\n".join([_notation(), "", "Directories (write paths in full when you name files):", *lines])


MOST_TEXT_BYTES = 96 << 20
"""The most memory for the results of texts. A repository of 2,000 files takes about a tenth of it."""
MOST_REPOSITORY_BYTES = 32 << 20
"""The most memory for answers about whole repositories. A request in which nothing has changed costs a comparison."""
MOST_CALL_CHARS = 32 << 20
"""The most text of one request that is read. Files behind it have no symbols."""

Found = Extract | None
"""Symbols of a text. None: it is not a text, its language is not known, it is too long, or the parser gave up."""


@dataclass(frozen=True, slots=True)
class _Repository:
    """The last answer for a list of paths, and the inputs from which it was made. The digest of a file without a text
    is empty. ``weight`` is about how many bytes the answer holds."""

    digests: tuple[str, ...]
    aliases: Mapping[str, str]
    answer: SymbolMap
    weight: int


class TreeSitterIndexer:
    """Makes symbol maps with tree-sitter. It may be called in several threads at once."""

    def __init__(self, text_bytes: int = MOST_TEXT_BYTES, repository_bytes: int = MOST_REPOSITORY_BYTES) -> None:
        self._lock = threading.Lock()
        self._parsers = Parsers()
        self._texts: Bounded[tuple[str, str], Found] = Bounded(text_bytes, _text_bytes)
        self._repositories: Bounded[tuple[str, ...], _Repository] = Bounded(
            repository_bytes, lambda repository: repository.weight
        )

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """See ``proxy.context.SymbolIndexer``."""
        paths = tuple(file.path for file in files)
        digests = tuple(file.digest if file.text is not None else "" for file in files)
        with self._lock:
            before = self._repositories.get(paths)
        if before is not None and before.digests == digests and before.aliases == aliases:
            return before.answer
        budget = Budget()
        entries = list(self._entries(files, budget))
        blocks = {one.path: f"{shorten(one.path, aliases)}\n{one.extract.body}" for one in entries if one.extract.body}
        answer = SymbolMap(blocks, legend(aliases), References(entries))
        if not budget.is_spent:  # if it is spent, the missing files are read for the next request
            repository = _Repository(digests, dict(aliases), answer, _weight(blocks, entries, paths))
            with self._lock:
                self._repositories.put(paths, repository)
        return answer

    def _entries(self, files: Sequence[ContextFile], budget: Budget) -> Iterator[Entry]:
        """The files that can be read, as long as the ``budget`` lasts."""
        left = MOST_CALL_CHARS
        for file in files:
            text = file.text or ""
            left -= len(text)
            grammar = grammar_of(file.path, text) if file.text is not None and left >= 0 else None
            found = self._found(grammar, file.digest, text, budget) if grammar is not None else None
            if grammar is not None and found is not None:
                yield Entry(file.path, FAMILIES[grammar], found)

    def _found(self, grammar: str, digest: str, text: str, budget: Budget) -> Found:
        key = (grammar, digest)
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        budget.grow(len(text))
        found = None if budget.is_spent else self._read(grammar, text, budget)
        if found is not None or not budget.is_spent:
            with self._lock:
                self._texts.put(key, found)
        return found

    def _read(self, grammar: str, text: str, budget: Budget) -> Found:
        data = text.encode("utf-8", "replace") if len(text) <= MOST_BYTES else None
        if data is None or len(data) > MOST_BYTES:
            return None
        tree = self._parsers.parse(grammar, data, budget)
        return extract(tree, data, RULES[grammar]) if tree is not None else None


def _text_bytes(one: Found) -> int:
    if one is None:
        return 400
    names = [*one.definitions, *one.uses, *(name for each in one.imports for name in each.names)]
    imports = sum(len(each.target) + 160 for each in one.imports)
    return 1_000 + len(one.body) + sum(len(name) + 57 for name in names) + imports


def _weight(blocks: Mapping[str, str], entries: Sequence[Entry], paths: tuple[str, ...]) -> int:
    """About how much memory an answer takes with its references: about ten edges a file, and the tables by which they
    are found."""
    texts = sum(sys.getsizeof(block) + 2 * len(path) + 400 for path, block in blocks.items())
    ends = sum(one.path.count("/") * (len(one.path) + 400) + 3_150 for one in entries)
    names = sum(250 * len(one.extract.definitions) for one in entries)
    return 1_000 + texts + ends + names + 200 * len(paths)

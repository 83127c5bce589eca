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

The file begins with the references between files: from imports to files by their paths, and from names to the defining
files. An import names ends of paths, by the rules of each family of languages: ``b/c`` finds ``a/b/c.py``. The work is
linear in the number of paths, imports and names. A name that several files define says nothing and is ignored, unless
one of these files is in the same directory.
"""

import ctypes
import importlib
import posixpath
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files

from tree_sitter import Language, Parser, Point, Tree

from plugins.symbol_index.extract import Extract, GrammarRules, Import, extract
from plugins.symbol_index.languages import GO, JAVA, JAVASCRIPT, PHP, PYTHON, RUBY, RUST, C
from proxy.context import ContextFile, SymbolMap, shorten
from proxy.kit.lru import Bounded
from proxy.kit.value import dataclass


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ends of paths. The first of them that finds something counts. If the lookup ``is_whole``, an end must be the
    whole path. If it ``is_folder``, the ends are ends of directories, and the lookup finds those of their files that
    define a name which the text uses."""

    ends: tuple[str, ...]
    is_whole: bool = False
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class LanguageFamily:
    """Languages whose files refer to each other. ``lookups`` are asked for the path of a file and one of its imports.
    ``heads`` are the names of files that represent their directory. If it ``has_suffixes``, imports are written with
    the suffix. If it ``goes_by_name``, names are visible without an import that tells their origin."""

    lookups: Callable[[str, Import], Iterator[Lookup]]
    heads: frozenset[str] = frozenset()
    has_suffixes: bool = False
    goes_by_name: bool = True


def _beside(path: str, relative: str) -> str:
    """A path relative to a file's directory; empty if it leaves the repository."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))
    return "" if joined.startswith("..") or joined == "." else joined.lstrip("/")


def _tails(parts: list[str], fewest: int) -> tuple[str, ...]:
    """The ends of a path with at least so many parts, the longest first."""
    return tuple("/".join(parts[start:]) for start in range(max(1, len(parts) - fewest + 1)))


def _stems(parts: list[str], fewest: int) -> tuple[str, ...]:
    """The beginnings of a path with at least so many parts, the longest first."""
    return tuple("/".join(parts[:count]) for count in range(len(parts), fewest - 1, -1))


def _python(path: str, one: Import) -> Iterator[Lookup]:
    dots = len(one.target) - len(one.target.lstrip("."))
    module = one.target[dots:].replace(".", "/")
    if dots:
        base = _beside(path, "/".join([".", *[".."] * (dots - 1), module]))
        yield Lookup((base,), is_whole=True)
        yield from (Lookup((f"{base}/{name}".lstrip("/"),), is_whole=True) for name in one.names)
        return
    for full in (module, *(f"{module}/{name}" for name in one.names)):
        if "/" in full:
            yield Lookup((full,))
        else:
            yield Lookup((full, f"src/{full}", _beside(path, full)), is_whole=True)


def _javascript(path: str, one: Import) -> Iterator[Lookup]:
    target = one.target.partition("?")[0]
    for suffix in (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx"):
        target = target.removesuffix(suffix)
    if target.startswith("."):
        yield Lookup((_beside(path, target),), is_whole=True)
    elif target.startswith(("@/", "~/", "#/")):
        yield Lookup((f"src/{target[2:]}", target[2:], f"app/{target[2:]}"))
    elif "/" in target.lstrip("@"):
        yield Lookup((target,))


def _go(path: str, one: Import) -> Iterator[Lookup]:
    parts = one.target.split("/")
    yield Lookup(_tails(parts, 1 if "." in parts[0] else 2), is_folder=True)


def _rust(path: str, one: Import) -> Iterator[Lookup]:
    parts = one.target.split("::")
    folder, name = posixpath.split(path)
    own = folder if name in ("mod.rs", "lib.rs", "main.rs") else path.removesuffix(".rs")
    match parts[0]:
        case "mod":
            yield Lookup((f"{own}/{parts[1]}".lstrip("/"), f"{folder}/{parts[1]}".lstrip("/")), is_whole=True)
        case "crate":
            root = path[: path.rfind("src/") + 4] if "src/" in path else ""
            yield Lookup(tuple(root + stem for stem in _stems(parts[1:], 1)), is_whole=True)
        case "self" | "super":
            for _ in range(parts.count("super")):
                own = posixpath.dirname(own)
            rest = [part for part in parts if part not in ("self", "super")]
            yield Lookup(tuple(f"{own}/{stem}".lstrip("/") for stem in (*_stems(rest, 1), "")), is_whole=True)
        case krate if len(parts) > 1:
            stems = _stems(parts[1:], 1)
            names = dict.fromkeys((krate, krate.replace("_", "-")))
            yield Lookup(tuple(f"{name}/src/{stem}" for stem in stems for name in names))


def _java(path: str, one: Import) -> Iterator[Lookup]:
    parts = one.target.split(".")
    if parts[-1] == "*":
        yield Lookup(("/".join(parts[:-1]),), is_folder=True)
        parts = parts[:-1]
    yield Lookup(_stems(parts, 2)[:2])


def _c(path: str, one: Import) -> Iterator[Lookup]:
    target = one.target.strip("<>")
    if target == one.target:
        yield Lookup((_beside(path, target),), is_whole=True)
    elif "/" not in target:
        return
    yield Lookup((posixpath.normpath(target).lstrip("./"),))


def _ruby(path: str, one: Import) -> Iterator[Lookup]:
    target = one.target.removesuffix(".rb")
    if target.startswith("."):
        yield Lookup((_beside(path, target),), is_whole=True)
    else:
        yield Lookup((f"lib/{target}", target) if "/" not in target else (target,), is_whole="/" not in target)


def _php(path: str, one: Import) -> Iterator[Lookup]:
    if "\\" in one.target:
        yield Lookup(_tails(one.target.strip("\\").split("\\"), 2))
    elif one.target.endswith(".php"):
        target = one.target.lstrip("/").removesuffix(".php")
        yield Lookup((_beside(path, target),), is_whole=True)
        yield Lookup((posixpath.normpath(target).lstrip("./"),))


_PYTHON = LanguageFamily(_python, frozenset({"__init__"}), goes_by_name=False)
_JAVASCRIPT = LanguageFamily(_javascript, frozenset({"index"}), goes_by_name=False)
_C = LanguageFamily(_c, has_suffixes=True)
FAMILIES: dict[str, LanguageFamily] = {
    "python": _PYTHON,
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "go": LanguageFamily(_go),
    "rust": LanguageFamily(_rust, frozenset({"mod", "lib", "main"})),
    "java": LanguageFamily(_java),
    "c": _C,
    "cpp": _C,
    "ruby": LanguageFamily(_ruby),
    "php": LanguageFamily(_php),
}
"""The family by the name of the grammar."""


MOST_DEFINERS = 3
"""A name that more files define is ignored."""
_MOST_DEPTH = 16
_MOST_ALIKE = 4
_MOST_TARGET_CHARS = 300
_FEWEST_CHARS = 4
_SURELY_CHARS = 10

Table = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """One file: its path, its family, and the extract of its text."""

    path: str
    family: LanguageFamily
    extract: Extract


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of one family by the ends of their paths, the directories by the ends of theirs, and the files that
    define each name. A list of paths that share an end stops at one more than its bound. Such a list is not used."""

    whole: Table
    ends: Table
    folders: Table
    definers: Table


class References(Mapping[str, frozenset[str]]):
    """The paths of the referred files, for each file that refers to others. They are found at the first question: only
    the first request of a session asks."""

    def __init__(self, entries: Iterable[IndexedFile]) -> None:
        self._entries = list(entries)

    @cached_property
    def _found(self) -> Mapping[str, frozenset[str]]:
        families: dict[LanguageFamily, list[IndexedFile]] = defaultdict(list)
        for entry in self._entries:
            families[entry.family].append(entry)
        tables = {family: _tables(some) for family, some in families.items()}
        found = ((entry.path, _references_of(entry, tables[entry.family])) for entry in self._entries)
        return {path: some for path, some in found if some}

    def __getitem__(self, path: str) -> frozenset[str]:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _references_of(entry: IndexedFile, files: _Files) -> frozenset[str]:
    """The paths that the file refers to, without its own."""
    found: set[str] = set()
    used = _used(entry.extract, files)
    for one in entry.extract.imports:
        found.update(_imported(entry, one, files, used))
    if entry.family.goes_by_name:
        for name in entry.extract.uses:
            found.update(_named(entry.path, name, files))
    return frozenset(found - {entry.path})


def _tables(entries: list[IndexedFile]) -> _Files:
    whole: dict[str, list[str]] = defaultdict(list)
    definers: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        whole[_stem(entry.path, entry.family)].append(entry.path)
        for name in entry.extract.definitions:
            definers[name].append(entry.path)
    ends = _by_ends((stem, path) for stem, paths in whole.items() for path in paths)
    folders = _by_ends((folder, folder) for folder in dict.fromkeys(entry.path.rpartition("/")[0] for entry in entries))
    return _Files(dict(whole), ends, folders, dict(definers))


def _by_ends(named: Iterable[tuple[str, str]]) -> Table:
    """The paths by the ends of their names."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, path in named:
        for end in _ends(name):
            if len(found[end]) <= _MOST_ALIKE:
                found[end].append(path)
    return dict(found)


def _stem(path: str, family: LanguageFamily) -> str:
    """The path in the form in which imports write it."""
    if family.has_suffixes:
        return path
    folder, _, name = path.rpartition("/")
    base = name.rpartition(".")[0].removesuffix(".d") or name
    if base in family.heads:
        return folder
    return f"{folder}/{base}" if folder else base


def _ends(path: str) -> Iterator[str]:
    """The last parts of a path, one more each time."""
    position = len(path)
    for _ in range(_MOST_DEPTH):
        position = path.rfind("/", 0, position)
        yield path[position + 1 :]
        if position < 0:
            return


def _imported(entry: IndexedFile, one: Import, files: _Files, used: Table) -> Iterator[str]:
    """The files that one import means: the files at its path, and the files that define its names, if they are not at
    the path."""
    if len(one.target) > _MOST_TARGET_CHARS:
        return
    lookups = entry.family.lookups(entry.path, one)
    at_path = {path for lookup in lookups for path in _looked_up(entry.path, lookup, files, used)}
    yield from at_path
    for name in one.names:
        definers = files.definers.get(name, ())
        if len(definers) == 1 and len(name) >= _FEWEST_CHARS and not at_path.intersection(definers):
            yield definers[0]


def _looked_up(path: str, lookup: Lookup, files: _Files, used: Table) -> list[str]:
    table = files.folders if lookup.is_folder else files.whole if lookup.is_whole else files.ends
    for end in lookup.ends:
        alike = table.get(end, [])
        if not alike or len(alike) > _MOST_ALIKE:
            continue
        # The file with the longest beginning of the path in common, then the first by name.
        one = min(alike, key=lambda other: (-len(posixpath.commonprefix((path, other))), other))
        return used.get(one, []) if lookup.is_folder else [one]
    return []


def _used(extract: Extract, files: _Files) -> Table:
    """The files that define names which a text uses, by directory."""
    used: dict[str, list[str]] = defaultdict(list)
    for name in extract.uses:
        definers = files.definers.get(name, ())
        if len(definers) <= MOST_DEFINERS:
            for path in definers:
                used[path.rpartition("/")[0]].append(path)
    return used


def _named(path: str, name: str, files: _Files) -> list[str]:
    """The file that defines a name: the only one in the same directory, or the only one at all for a name that is no
    ordinary word."""
    definers = files.definers.get(name)
    if definers is None or len(definers) > MOST_DEFINERS or len(name) < _FEWEST_CHARS:
        return []
    folder = path.rpartition("/")[0]
    beside = [one for one in definers if one.rpartition("/")[0] == folder]
    if len(beside) == 1:
        return beside
    if len({posixpath.splitext(one)[0].rpartition("/")[2] for one in definers}) == 1 < len(definers):
        return definers  # A header and its source.
    is_told_apart = not name.islower() or "_" in name.strip("_") or len(name) >= _SURELY_CHARS
    return definers if len(definers) == 1 and is_told_apart else []


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
RULES: Mapping[str, GrammarRules] = {
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


class TimeBudget:
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

    def parse(self, grammar: str, source: bytes, budget: TimeBudget) -> Tree | None:
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
        budget = TimeBudget()
        entries = list(self._entries(files, budget))
        blocks = {one.path: f"{shorten(one.path, aliases)}\n{one.extract.body}" for one in entries if one.extract.body}
        answer = SymbolMap(blocks, legend(aliases), References(entries))
        if not budget.is_spent:  # if it is spent, the missing files are read for the next request
            repository = _Repository(digests, dict(aliases), answer, _weight(blocks, entries, paths))
            with self._lock:
                self._repositories.put(paths, repository)
        return answer

    def _entries(self, files: Sequence[ContextFile], budget: TimeBudget) -> Iterator[IndexedFile]:
        """The files that can be read, as long as the ``budget`` lasts."""
        left = MOST_CALL_CHARS
        for file in files:
            text = file.text or ""
            left -= len(text)
            grammar = grammar_of(file.path, text) if file.text is not None and left >= 0 else None
            found = self._found(grammar, file.digest, text, budget) if grammar is not None else None
            if grammar is not None and found is not None:
                yield IndexedFile(file.path, FAMILIES[grammar], found)

    def _found(self, grammar: str, digest: str, text: str, budget: TimeBudget) -> Found:
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

    def _read(self, grammar: str, text: str, budget: TimeBudget) -> Found:
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


def _weight(blocks: Mapping[str, str], entries: Sequence[IndexedFile], paths: tuple[str, ...]) -> int:
    """About how much memory an answer takes with its references: about ten edges a file, and the tables by which they
    are found."""
    texts = sum(sys.getsizeof(block) + 2 * len(path) + 400 for path, block in blocks.items())
    ends = sum(one.path.count("/") * (len(one.path) + 400) + 3_150 for one in entries)
    names = sum(250 * len(one.extract.definitions) for one in entries)
    return 1_000 + texts + ends + names + 200 * len(paths)

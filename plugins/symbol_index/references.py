"""Finds the references between files: from imports to files by their paths, and from names to the defining files.

First come the places of the modules that an import names: the ends of paths to look for, by the rules of each family of
languages. An end is a path without its suffix, or the last parts of one: ``b/c`` finds ``a/b/c.py``.

Then the files are looked up. The work is linear in the number of paths, imports and names. A name that several files
define says nothing and is ignored, unless one of these files is in the same directory.
"""

import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from plugins.symbol_index.extract import Extract, Import
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
class Family:
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


_PYTHON = Family(_python, frozenset({"__init__"}), goes_by_name=False)
_JAVASCRIPT = Family(_javascript, frozenset({"index"}), goes_by_name=False)
_C = Family(_c, has_suffixes=True)
FAMILIES: dict[str, Family] = {
    "python": _PYTHON,
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "go": Family(_go),
    "rust": Family(_rust, frozenset({"mod", "lib", "main"})),
    "java": Family(_java),
    "c": _C,
    "cpp": _C,
    "ruby": Family(_ruby),
    "php": Family(_php),
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
class Entry:
    """One file: its path, its family, and the extract of its text."""

    path: str
    family: Family
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

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    @cached_property
    def _found(self) -> Mapping[str, frozenset[str]]:
        families: dict[Family, list[Entry]] = defaultdict(list)
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


def _references_of(entry: Entry, files: _Files) -> frozenset[str]:
    """The paths that the file refers to, without its own."""
    found: set[str] = set()
    used = _used(entry.extract, files)
    for one in entry.extract.imports:
        found.update(_imported(entry, one, files, used))
    if entry.family.goes_by_name:
        for name in entry.extract.uses:
            found.update(_named(entry.path, name, files))
    return frozenset(found - {entry.path})


def _tables(entries: list[Entry]) -> _Files:
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


def _stem(path: str, family: Family) -> str:
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


def _imported(entry: Entry, one: Import, files: _Files, used: Table) -> Iterator[str]:
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

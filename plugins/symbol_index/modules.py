"""Places of the modules that an import names: the ends of paths to look for, by the rules of each family of
languages.

An end is a path without its suffix, or the last parts of one: ``b/c`` finds ``a/b/c.py``. Nothing here looks at files.
"""

import posixpath
from collections.abc import Callable, Iterator

from plugins.symbol_index.extract import Import
from proxy.core.value import dataclass


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

    name: str
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


_PYTHON = Family("python", _python, frozenset({"__init__"}), goes_by_name=False)
_JAVASCRIPT = Family("javascript", _javascript, frozenset({"index"}), goes_by_name=False)
_C = Family("c", _c, has_suffixes=True)
FAMILIES: dict[str, Family] = {
    "python": _PYTHON,
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "go": Family("go", _go),
    "rust": Family("rust", _rust, frozenset({"mod", "lib", "main"})),
    "java": Family("java", _java),
    "c": _C,
    "cpp": _C,
    "ruby": Family("ruby", _ruby),
    "php": Family("php", _php),
}
"""The family by the name of the grammar."""

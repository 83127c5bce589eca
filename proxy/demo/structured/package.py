"""Two histories of an installed package. Parts of its own files are missing at first, and are added commit by commit.

The package's files are the files of its distribution. A history ends with exactly these files. It is made backwards:
the last commit adds some function, method, class or guard, so the state before it is the file without that part; and so
on to the first commit. The commits of the quiet history change one file each and stay with that file for a while. The
commits of the busy history change a file and up to three files that import it or are imported by it. A hash of a part's
name decides when the part comes, so nobody has chosen the order, and the same package always gives the same history.
"""

import ast
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from proxy.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Commit:
    """``changes`` has the whole new text by path; None if the commit removes the file."""

    message: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class History:
    """``files`` are the texts by path before the first commit. ``source`` describes their origin in a few words."""

    name: str
    source: str
    files: Mapping[str, str]
    commits: Sequence[Commit]

    def states(self) -> list[Mapping[str, str]]:
        """The files before each commit, and after the last one."""
        states = [self.files]
        for commit in self.commits:
            files = dict(states[-1])
            for path, text in commit.changes.items():
                if text is None:
                    files.pop(path, None)
                else:
                    files[path] = text
            states.append(MappingProxyType(files))
        return states

    def changed(self) -> list[str]:
        """The paths that any commit changes, each once, in the order of the first change."""
        return list(dict.fromkeys(path for commit in self.commits for path in commit.changes))


_SOURCE_FOLDERS = ("src/", "lib/")


def neighbours(files: Mapping[str, str]) -> dict[str, set[str]]:
    """For each path: the files that it imports, and the files that import it. A file that is not a Python module has
    none."""
    modules = {_module(path): path for path in files if path.endswith(".py")}
    near: dict[str, set[str]] = {path: set() for path in files}
    for name, path in modules.items():
        for imported in _imports(files[path], name, is_package=path.endswith("/__init__.py")):
            other = modules.get(imported) or modules.get(imported.rpartition(".")[0])
            if other is not None and other != path:
                near[path].add(other)
                near[other].add(path)
    return near


def _parsed(text: str) -> ast.Module | None:
    """The syntax tree of a Python module; None if the text is not a Python module."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _module(path: str) -> str:
    for folder in _SOURCE_FOLDERS:
        path = path.removeprefix(folder)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(text: str, name: str, *, is_package: bool) -> Iterator[str]:
    """The dotted names that a module imports at any place."""
    module = _parsed(text)
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, name, is_package=is_package)
            yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)


def _base(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    """The module behind ``from``, with the dots of a relative import resolved."""
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    own = parts[: len(parts) - node.level + is_package]
    return ".".join([*own, *([node.module] if node.module else [])])


_MOST_LINES = 60
_MOST_GUARD_LINES = 12
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole lines of a text, ``start`` included and ``end`` excluded, counted from 0. ``name`` is dotted, as
    ``Request.cookies``; a guard has the name of its function."""

    name: str
    is_guard: bool
    start: int
    end: int


def units_of(text: str) -> list[Unit]:
    """The units in their order. A text that is not a Python module has none."""
    module, lines = _parsed(text), text.splitlines(keepends=True)
    # Python's parser counts only line feeds; ``splitlines`` also ends a line at a form feed.
    return list(_units(module, lines)) if module is not None and len(lines) == text.count("\n") else []


def without(text: str, unit: Unit) -> str:
    """The text without the unit's lines."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[: unit.start] + lines[unit.end :])


def _units(module: ast.Module, lines: list[str]) -> Iterator[Unit]:
    for node in module.body:
        if isinstance(node, _Function):
            yield from _of_function(node, node.name, lines)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, _Function) and len(node.body) > 1:
                    yield from _of_function(inner, f"{node.name}.{inner.name}", lines)
            yield from _whole(node, node.name, lines)


def _of_function(node: _Function, name: str, lines: list[str]) -> Iterator[Unit]:
    """The guards of a function, and the function itself."""
    for statement in node.body:
        if isinstance(statement, ast.If) and not statement.orelse and len(node.body) > 1:
            start, end = statement.lineno - 1, statement.end_lineno or statement.lineno
            if end - start <= _MOST_GUARD_LINES and lines[start].lstrip().startswith("if "):
                yield Unit(name, True, _with_comments(start, lines), end)
    if not node.name.startswith("__"):
        yield from _whole(node, name, lines)


def _whole(node: _Function | ast.ClassDef, name: str, lines: list[str]) -> Iterator[Unit]:
    """A definition with its decorators, the comments above it, and the empty lines above the comments."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    start, end = _with_comments(first, lines), node.end_lineno or node.lineno
    if end - start > _MOST_LINES:
        return
    while start > 0 and not lines[start - 1].strip():
        start -= 1
    yield Unit(name, False, start, end)


def _with_comments(start: int, lines: list[str]) -> int:
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start


PACKAGE = "starlette"
"""The proxy itself needs this package, so it is always installed with the proxy."""
TURNS = 30
_STRETCH = 6
_FEWEST_UNITS = 14
_MOST_USERS = 3


_Step = tuple[Sequence[str], int]
"""A commit to be made: paths, and how many of them it changes. It takes the first ones that still have a part to take
away."""


def installed_files(name: str) -> dict[str, str]:
    """The Python files of an installed package by path, in the order of the paths. Raises OSError, UnicodeDecodeError,
    and ValueError if there is no such package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {name} is not installed")
    folder = Path(spec.submodule_search_locations[0])
    found = sorted(path for path in folder.rglob("*.py") if path.is_file())
    return {path.relative_to(folder.parent).as_posix(): path.read_text("utf-8") for path in found}


def package_source(name: str) -> str:
    """Name and version of an installed package, to be shown."""
    return f"{name} {importlib.metadata.version(name)}"


def quiet(source: str, files: Mapping[str, str], turns: int = TURNS) -> History:
    """One file a commit, and several commits in a row for each file. Raises ValueError if the files have too few
    parts."""
    rich = [path for path, text in files.items() if len(units_of(text)) >= _FEWEST_UNITS]
    if not rich:
        raise ValueError(f"the files of {source} are too small to make a history of them")
    order = sorted(rich, key=_chance)
    plan = [([order[number // _STRETCH % len(order)]], 1) for number in range(turns)]
    return _history("quiet", source, files, plan)


def busy(source: str, files: Mapping[str, str], turns: int = TURNS) -> History:
    """Two to four files a commit, spread over the package. Raises ValueError if the files have too few parts."""
    near = neighbours(files)
    order = [path for path in sorted(files, key=_chance) if units_of(files[path]) and near[path]]
    if not order:
        raise ValueError(f"the files of {source} are too small to make a history of them")
    plan: list[_Step] = []
    for number in range(turns):
        first = order[number % len(order)]
        others = sorted(near[first], key=lambda path: _chance(f"{number} {path}"))
        plan.append(([first, *others], 2 + number % _MOST_USERS))
    return _history("busy", source, files, plan)


def _history(name: str, source: str, files: Mapping[str, str], plan: Sequence[_Step]) -> History:
    """Take parts away from the last commit of the plan to the first one, then reverse the order."""
    state, commits = dict(files), list[Commit]()
    for paths, most in reversed(plan):
        after, units = dict[str, str](), list[Unit]()
        for path in paths:
            unit = _next_unit(state[path], units) if len(after) < most else None
            if unit is not None:
                after[path], state[path] = state[path], without(state[path], unit)
                units.append(unit)
        if after:
            commits.append(Commit(_message(list(after), units), after))
    if len(commits) < len(plan):
        raise ValueError(f"the files of {source} have too few parts for a history of {len(plan)} commits")
    return History(name, source, state, tuple(reversed(commits)))


def _next_unit(text: str, others: Sequence[Unit]) -> Unit | None:
    """The part to take away. A part that names something which this commit adds elsewhere is preferred."""
    lines = text.splitlines(keepends=True)
    names = [unit.name.rpartition(".")[2] for unit in others]

    def rank(unit: Unit) -> tuple[bool, str]:
        own = "".join(lines[unit.start : unit.end])
        return not any(name in own for name in names), _chance(f"{unit.name} {unit.is_guard}")

    return next((unit for unit in sorted(units_of(text), key=rank) if _parsed(without(text, unit)) is not None), None)


def _message(paths: Sequence[str], units: Sequence[Unit]) -> str:
    parts = [
        f"{'a check to' if unit.is_guard else ''} {unit.name} in {path}".lstrip()
        for path, unit in zip(paths, units, strict=True)
    ]
    return f"Add {', '.join(parts)}"


def _chance(text: str) -> str:
    return sha256(text.encode()).hexdigest()

"""Two histories of an installed package: its own files, with parts of them still missing, added commit by commit.

The package's files are what its distribution contains. A history ends with exactly these files. It is made backwards:
the last commit adds some function, method, class or guard, so the state before it is the file without it; and so on to
the first commit. The commits of the quiet history change one file each and stay with that file for a while. Those of
the busy one change a file and up to three files that import it or are imported by it. Which part comes when is decided
by a hash of its name, so that nobody has chosen it, and the same package always gives the same history.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from proxy.demo.structured.history import Commit, History
from proxy.demo.structured.imports import neighbours
from proxy.demo.structured.units import Unit, is_module, units_of, without

PACKAGE = "starlette"
"""The proxy itself needs this package, so it is there wherever the proxy is."""
TURNS = 30
_STRETCH = 6
_FEWEST_UNITS = 14
_MOST_USERS = 3


_Step = tuple[Sequence[str], int]
"""A commit to be made: it changes the first so many of these paths that still have a part to take away."""


def installed_files(name: str) -> dict[str, str]:
    """The Python files of an installed package by path, in the order of the paths. Raises OSError, UnicodeDecodeError,
    and ValueError where there is no such package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {name} is not installed")
    folder = Path(spec.submodule_search_locations[0])
    found = sorted(path for path in folder.rglob("*.py") if path.is_file())
    return {path.relative_to(folder.parent).as_posix(): path.read_text("utf-8") for path in found}


def package_source(name: str) -> str:
    """Name and version of an installed package, to be shown."""
    return f"{name} {importlib.metadata.version(name)}"


def quiet_and_busy(source: str, files: Mapping[str, str], turns: int = TURNS) -> list[History]:
    """Both histories. Raises ValueError where the files have too few parts."""
    return [quiet(source, files, turns), busy(source, files, turns)]


def quiet(source: str, files: Mapping[str, str], turns: int = TURNS) -> History:
    """One file a commit, and several commits in a row for each file. Raises ValueError where the files have too few
    parts."""
    rich = [path for path, text in files.items() if len(units_of(text)) >= _FEWEST_UNITS]
    if not rich:
        raise ValueError(f"the files of {source} are too small to make a history of them")
    order = sorted(rich, key=_chance)
    plan = [([order[number // _STRETCH % len(order)]], 1) for number in range(turns)]
    return _history("quiet", source, files, plan)


def busy(source: str, files: Mapping[str, str], turns: int = TURNS) -> History:
    """Two to four files a commit, spread over the package. Raises ValueError where the files have too few parts."""
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
    """Take parts away from the last commit of the plan to the first one, then turn the order round."""
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
    """The part to take away: one that names what this commit adds elsewhere, if there is one."""
    lines = text.splitlines(keepends=True)
    names = [unit.name.rpartition(".")[2] for unit in others]

    def rank(unit: Unit) -> tuple[bool, str]:
        own = "".join(lines[unit.start : unit.end])
        return not any(name in own for name in names), _chance(f"{unit.name} {unit.is_guard}")

    return next((unit for unit in sorted(units_of(text), key=rank) if is_module(without(text, unit))), None)


def _message(paths: Sequence[str], units: Sequence[Unit]) -> str:
    parts = [
        f"{'a check to' if unit.is_guard else ''} {unit.name} in {path}".lstrip()
        for path, unit in zip(paths, units, strict=True)
    ]
    return f"Add {', '.join(parts)}"


def _chance(text: str) -> str:
    return sha256(text.encode()).hexdigest()

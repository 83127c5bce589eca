"""Finds all mistakes of a configuration in one run, although one mistake may hide others.

A value that is wrong is told, and taken out, so that the rest can be read. What is found in the rest is told where it
does not follow from what was told already: a path is not told again, and neither is what stands above or below it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

from proxy.settings.environment import join
from proxy.settings.messages import ConfigError

Location = tuple[int | str, ...]

_MODELS = "model_list"
_UNREAD = "embedded/unread"


class Mistakes:
    """What is wrong with a configuration: lines, each of which begins with the path of a key."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._unsure: set[str] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Add what was found at one look, but for what follows from what earlier looks have found."""
        self.lines += [line for line in dict.fromkeys(lines) if not self.cover(line)]

    def cover(self, line: str) -> bool:
        """Whether a line says nothing new: its path, or one above or below it, was told already."""
        path, known = path_of(line), [*map(path_of, self.lines), *self._unsure]
        return any(_holds(path, other) or _holds(other, path) for other in known)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """What the block refuses is added."""
        try:
            yield
        except ConfigError as error:
            self.add(error.problems)

    def doubt(self, path: str) -> None:
        """Say no more of what stands there: not all of it could be read."""
        self._unsure.add(path)


def path_of(line: str) -> str:
    """The path with which a line begins."""
    return line.partition(": ")[0]


def _holds(outer: str, inner: str) -> bool:
    """Whether a path is that of a value which holds another one, or the same path."""
    return inner.startswith(outer) and inner[len(outer) :][:1] in ("", ".", "[")


def without(raw: Mapping[str, Any], locations: Iterable[Location], mistakes: Mistakes) -> dict[str, Any]:
    """The values without those at the locations, as pydantic names them. A value that lacks something goes as a whole;
    of a model of the model list the name stays, because others may refer to it."""
    rest: dict[str, Any] = _unshared(raw)
    # From the end, so that the places of the others in a list do not change.
    for steps in sorted({tuple(_steps(raw, location)) for location in locations}, key=_order, reverse=True):
        _take_out(rest, steps, mistakes)
    return rest


def _unshared(value: Any) -> Any:
    """A copy in which nothing stands twice: what an alias of YAML repeats is one object at several places."""
    if isinstance(value, Mapping):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _order(steps: Location) -> list[tuple[int, str]]:
    return [(step, "") if isinstance(step, int) else (-1, step) for step in steps]


def _steps(raw: Any, location: Location) -> Iterator[int | str]:
    """The steps of a location that lead to a value. Others are names of a union's members, or of what is missing."""
    for step in location:
        is_there = isinstance(step, int) and isinstance(raw, list) and step < len(raw)
        if is_there or (isinstance(raw, dict) and step in raw):
            yield step
            raw = raw[step]


def _take_out(rest: dict[str, Any], steps: Location, mistakes: Mistakes) -> None:
    holder: Any = rest
    for step in steps[:-1]:
        holder = holder[step]
    path = reduce(join, steps[:-1], "")
    if not steps:
        rest.clear()
    elif path == _MODELS:
        name = holder[steps[-1]].get("model_name") if isinstance(holder[steps[-1]], dict) else None
        named = name if isinstance(name, str) and name else "-"
        holder[steps[-1]] = {"model_name": named, "litellm_params": {"model": _UNREAD}}
    else:
        del holder[steps[-1]]
        if isinstance(holder, list):
            mistakes.doubt(path)

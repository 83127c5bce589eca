"""The parts of a Python module that a commit can add: functions, classes, methods, and guards within functions."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_LINES = 60
_MOST_GUARD_LINES = 12
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole lines of a text, ``start`` included and ``end`` excluded, counted from 0. ``name`` is dotted, as
    ``Request.cookies``; a guard has the name of the function in which it stands."""

    name: str
    is_guard: bool
    start: int
    end: int


def units_of(text: str) -> list[Unit]:
    """The units in their order. A text that is no Python module has none."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    lines = text.splitlines(keepends=True)
    # Python's parser counts line feeds alone; a form feed ends a line for ``splitlines`` only.
    if len(lines) != text.count("\n"):
        return []
    return list(_units(module, lines))


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
    """A definition with its decorators, the comments above it, and the empty lines in front of these."""
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


def is_module(text: str) -> bool:
    """Whether a text is a Python module."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True

"""Functions stay short enough to be read at once, and the product does not grow by habit. (ruff's PLR0913 counts the
arguments of functions.)"""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 50
# What the product has. Lower both with the code. A change that needs more takes out first what it replaces.
MOST_STATEMENTS, MOST_FILES = 42_269, 180
_ROOM = 1.01


def functions(nodes: Iterable[ast.AST]) -> list[tuple[str, int]]:
    """Each function's name, and how many lines it has."""
    found = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in found]


@cache
def product() -> dict[str, tuple[int, list[tuple[str, int]]]]:
    """How many statements each file of the product has, and its functions."""
    found = {}
    for path in (path for folder in ("proxy", "plugins") for path in (ROOT / folder).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        found[str(path.relative_to(ROOT))] = sum(isinstance(node, ast.stmt) for node in nodes), functions(nodes)
    return found


def test_the_product_has_no_more_statements_and_files_than_it_had() -> None:
    statements = sum(count for count, _ in product().values())
    assert MOST_STATEMENTS / 2 < statements <= MOST_STATEMENTS * _ROOM
    assert MOST_FILES / 2 < len(product()) <= MOST_FILES * _ROOM


def test_no_function_is_longer_than_fifty_lines() -> None:
    found = [(path, name, lines) for path, (_, inner) in product().items() for name, lines in inner]
    assert [one for one in found if one[2] > MOST_LINES] == []


def test_a_function_of_fifty_one_lines_is_found() -> None:
    body = "    pass\n" * 50
    source = f"async def short():\n    pass\n\n\ndef long():\n{body}"
    assert functions(ast.walk(ast.parse(source))) == [("short", 2), ("long", 51)]

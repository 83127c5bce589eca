"""Functions stay short enough to be read at once, and the product does not grow by habit. (ruff's PLR0913 counts the
arguments of functions.)"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 50
# What the product has. Lower both with the code. A change that needs more takes out first what it replaces.
MOST_STATEMENTS, MOST_FILES = 44_600, 291
_ROOM = 1.01


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Each function's name, and how many lines it has."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def product() -> dict[str, str]:
    """The source of each file of the product."""
    paths = (path for folder in ("proxy", "plugins") for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}


def long_functions() -> set[str]:
    return {
        f"{path}:{name}"
        for path, source in product().items()
        for name, lines in functions(source)
        if lines > MOST_LINES
    }


def test_the_product_has_no_more_statements_and_files_than_it_had() -> None:
    files = product()
    statements = sum(isinstance(node, ast.stmt) for source in files.values() for node in ast.walk(ast.parse(source)))
    assert MOST_STATEMENTS / 2 < statements <= MOST_STATEMENTS * _ROOM
    assert MOST_FILES / 2 < len(files) <= MOST_FILES * _ROOM


def test_no_function_is_longer_than_fifty_lines() -> None:
    assert long_functions() == set()


def test_a_function_of_fifty_one_lines_is_found() -> None:
    body = "    pass\n" * 50
    found = list(functions(f"async def short():\n    pass\n\n\ndef long():\n{body}"))
    assert found == [("short", 2), ("long", 51)]

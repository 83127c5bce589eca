"""Functions stay short enough to be read at once. (ruff's PLR0913 counts their arguments.)"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 50


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Each function's name, and how many lines it has."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def long_functions() -> set[str]:
    return {
        f"{path.relative_to(ROOT)}:{name}"
        for folder in ("proxy", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        for name, lines in functions(path.read_text("utf-8"))
        if lines > MOST_LINES
    }


def test_no_function_is_longer_than_fifty_lines() -> None:
    assert long_functions() == set()


def test_a_function_of_fifty_one_lines_is_found() -> None:
    body = "    pass\n" * 50
    found = list(functions(f"async def short():\n    pass\n\n\ndef long():\n{body}"))
    assert found == [("short", 2), ("long", 51)]

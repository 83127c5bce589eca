"""Which Python files import which."""

import ast
from collections.abc import Iterator, Mapping

_SOURCE_FOLDERS = ("src/", "lib/")


def neighbours(files: Mapping[str, str]) -> dict[str, set[str]]:
    """For each path the files that it imports, and those that import it. A file that is no Python module has none."""
    modules = {_module(path): path for path in files if path.endswith(".py")}
    near: dict[str, set[str]] = {path: set() for path in files}
    for name, path in modules.items():
        for imported in _imports(files[path], name, is_package=path.endswith("/__init__.py")):
            other = modules.get(imported) or modules.get(imported.rpartition(".")[0])
            if other is not None and other != path:
                near[path].add(other)
                near[other].add(path)
    return near


def _module(path: str) -> str:
    for folder in _SOURCE_FOLDERS:
        path = path.removeprefix(folder)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(text: str, name: str, *, is_package: bool) -> Iterator[str]:
    """The dotted names that a module imports, wherever it does so."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(module):
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

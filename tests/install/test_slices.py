"""A capability is a slice: to take it out is to delete its folder and one line of the composition.

The test does that in a copy of the repository's files, and deletes the tests that name the slice, too. Then mypy has no
complaint, each module that is left can be imported, and the rest of the fast tests pass, as far as they are in
``JUDGES``: the long searches for faults and attacks would take another two minutes, and the tests of the repository
itself look at pages and tables of the whole product.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services import STRATIFORM

ROOT = Path(__file__).parents[2]
JUDGES = ("tests/unit", "tests/contract", "tests/golden", "tests/fidelity", "tests/e2e")
# These read tables of the whole product, which name all of its parts.
TABLES = ("tests/e2e/test_pages.py", "tests/golden/test_rule_tables.py", "tests/security/defences.py")
IMPORTS = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
_MOST_S = 1_200


@dataclass(frozen=True, slots=True)
class Slice:
    """``folder`` is deleted, and the ``line`` of the ``file``. ``names``: how a test names it. Without the slice,
    ``stratiform`` with these ``words`` ends with this ``status``, and with a line in which is ``told``."""

    folder: str
    file: str
    line: str
    names: str
    words: tuple[str, ...]
    status: int
    told: str


LAB = Slice(
    "proxy/lab",
    "proxy/cli/__init__.py",
    '**import_module("proxy.lab").COMMANDS,',
    r"proxy[./]lab|tests[./]unit[./]lab",
    ("demo",),
    2,
    "stratiform: error: argument COMMAND: invalid choice: 'demo' (choose from ",
)
SYMBOLS = Slice(
    "plugins/symbol_index",
    "proxy/hookspecs.py",
    '"plugins.symbol_index",',
    r"symbol_index|demo structured",
    ("demo", "structured"),
    1,
    "error: no symbol index: install the extra `symbols`",
)


def copied(folder: Path) -> Path:
    """A copy of the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def take_out(one: Slice, root: Path) -> None:
    """Delete the folder and the line, which stands there once."""
    shutil.rmtree(root / one.folder)
    lines = (root / one.file).read_text("utf-8").splitlines(keepends=True)
    left = [line for line in lines if line.strip() != one.line]
    assert len(left) == len(lines) - 1
    (root / one.file).write_text("".join(left), "utf-8")


def imported(path: Path) -> Iterator[str]:
    """The modules below ``tests`` that a file imports, and perhaps names in them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))


def naming(one: Slice, root: Path) -> set[Path]:
    """The test files that name the slice, and those that import such a file."""
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path in (root / "tests").rglob("*.py")}
    found = {
        name
        for name, path in files.items()
        if str(path.relative_to(root)) not in TABLES and re.search(one.names, path.read_text("utf-8"))
    }
    imports = {name: set(imported(path)) for name, path in files.items()}
    while more := {name for name in files if name not in found and imports[name] & found}:
        found |= more
    return {files[name] for name in found}


def modules(root: Path) -> Iterator[str]:
    """Every module of the product that may be imported as it is."""
    for path in (path for folder in ("proxy", "plugins") for path in sorted((root / folder).rglob("*.py"))):
        if path.name not in ("__main__.py", "litellm_hook.py"):
            yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def python(root: Path, *words: str, status: int = 0) -> str:
    """Run Python in the copy, as outside of any test; the last line of its errors."""
    # A service that CI has installed beside the repository's files is not in the copy: its tests are skipped.
    others = ("PYTEST_", "STRATIFORM_EXAMPLES", "CI")
    around = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**around, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=_MOST_S,
    )
    assert ended.returncode == status, ended.stdout[-8_000:] + ended.stderr[-2_000:]
    return "".join(ended.stderr.splitlines()[-1:])


SLICES = pytest.mark.parametrize("one", [LAB, SYMBOLS], ids=["lab", "symbol index"])


@SLICES
def test_no_code_names_a_slice_but_the_line_of_the_composition(one: Slice) -> None:
    name = re.compile(rf"\b{re.escape(one.folder.replace('/', '.'))}\b")
    others = (path for folder in ("proxy", "plugins") for path in (ROOT / folder).rglob("*.py"))
    found = [
        line.strip()
        for path in others
        if not path.is_relative_to(ROOT / one.folder)
        for line in path.read_text("utf-8").splitlines()
        if name.search(line)
    ]
    assert found == [one.line]


@pytest.mark.slow
@SLICES
def test_without_its_folder_and_one_line_everything_else_works(one: Slice, tmp_path: Path) -> None:
    root = copied(tmp_path)
    take_out(one, root)
    for path in naming(one, root):
        path.unlink()
    python(root, "-m", "mypy")
    python(root, "-c", IMPORTS, *modules(root))
    said = python(root, *STRATIFORM[1:], *one.words, status=one.status)
    assert one.told in said
    ignored = (f"--ignore={path}" for path in TABLES)
    python(root, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *ignored, *JUDGES)

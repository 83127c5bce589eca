"""Tests stand at the path of what they test, go through public names, and never measure elapsed seconds. No constant of
a module has two values."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.examples import for_every

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
UNIT = TESTS / "unit"

# What is tested through a neighbour: a module or a whole folder, and the tests that go through it. All others have a
# test at their own path, or belong to a package whose face has one (``engine/test_engine.py`` is of all of engine).
NEIGHBOURS = {
    "app/admin": "unit/app/admin/test_operations.py",
    "app": "unit/app/test_composition_reload.py",
    "kit/tasks.py": "security/test_event_loop.py",
    "cli/__init__.py": "unit/cli/test_main.py",
    "cli/accounts.py": "unit/cli/test_admin_client.py",
    "lab/demo/command.py": "e2e/test_demo.py",
    "cli/costs.py": "unit/cli/test_admin_client.py",
    "protocol/account.py": "security/test_objects.py",
    "protocol/caches": "unit/protocol/caches/test_init.py",
    "plugins/symbol_index": "unit/plugins/symbol_index/test_languages.py",
    "models": "unit/models/test_charges.py",
    "protocol/providers": "unit/protocol/providers/test_init.py",
    "protocol/recognition": "unit/protocol/recognition/test_pieces.py",
    "core": "meta/test_names_users_hold.py",
    "protocol/request": "unit/protocol/request/test_transcript_view.py",
    "protocol/response": "unit/protocol/response/test_init_folds.py",
    "planner/observation.py": "unit/planner/test_session.py",
    "planner/shadow.py": "unit/planner/test_sharing.py",
    "lab/demo": "unit/lab/demo/test_chats.py",
    "app/inside": "unit/app/inside/test_init_callback.py",
    "services/context_assembler.py": "unit/services/test_context_assembler.py",
    "services/context_sessions.py": "unit/services/test_context_assembler.py",
    "services/planner_port.py": "security/test_event_loop.py",
    "services/layout_state.py": "unit/services/test_layout_state.py",
    "services/session_book.py": "unit/app/ui/test_endpoint.py",
    "services/__init__.py": "unit/protocol/request/test_tokens.py",
    "lab/replay": "unit/lab/replay/test_comparison.py",
    "app/settings": "unit/app/settings/test_config_file.py",
    "teams": "contract/test_epochs.py",
    "storage": "contract/test_store.py",
    "engine/telemetry/spans.py": "e2e/test_spans.py",
    "app/ui": "unit/app/ui/test_endpoint.py",
    "upstream/http.py": "e2e/test_azure.py",
    "upstream/litellm_library.py": "unit/upstream/test_litellm.py",
    "app/web": "e2e/test_chat.py",
}
# Growth is measured by the ratio of processor time in these, and pages by their share of it; the others time nothing.
STOPWATCHES = {
    "browser/test_speed.py", "growth.py", "security/pumps.py", "security/test_event_loop.py",
    "security/test_unfolding.py", "fuzz/growth.py", "fuzz/run.py",
}  # fmt: skip
_LOGIC = (ast.If, ast.For, ast.While, ast.Try, ast.AsyncFor, ast.IfExp, ast.Match, ast.comprehension, ast.BoolOp)
_MEASURED = ("bench", "drill")


def modules() -> Iterator[tuple[Path, Path]]:
    """Every module, and its path as tests/unit mirrors it."""
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        yield path, path.relative_to(ROOT / "proxy")
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        yield path, path.relative_to(ROOT)


@cache
def subjects() -> set[Path]:
    """What a test can be of: a module, or a package by its name or as ``init`` within it. An underscore at the end of a
    name, which keeps it apart from a library's, does not count. Tests of a module may fill a folder of its name."""
    found = set()
    for _, path in modules():
        if path.name == "__init__.py":
            found |= (
                {path.parent.with_name(path.parent.name.rstrip("_")), path.with_name("init")}
                if path.parts[1:]
                else set()
            )
        else:
            found.add(path.with_name(path.stem.strip("_")))
    return found


def is_of(test: str, subject: str) -> bool:
    """``test_X.py`` is of X, and so is ``test_X_TOPIC.py``, where there is much to say of it."""
    return test == f"test_{subject}" or test.startswith(f"test_{subject}_")


def python_files() -> list[Path]:
    return sorted(TESTS.rglob("*.py"))


def test_marks_of_a_whole_file_stand_above_its_tests() -> None:
    """Else they mark tests above them, too, where nobody sees it: slow ones leave the short run."""
    below = re.compile(r"^(?:@|(?:async )?def |class ).*^pytestmark = ", re.MULTILINE | re.DOTALL)
    assert [str(path) for path in python_files() if below.search(path.read_text("utf-8"))] == []


def test_every_unit_test_stands_at_the_path_of_its_subject() -> None:
    names: dict[Path, set[str]] = {}
    for subject in subjects():
        names.setdefault(subject.parent, set()).add(subject.name)
    elsewhere = [
        str(path.relative_to(UNIT))
        for path in sorted(UNIT.rglob("test_*.py"))
        if not any(is_of(path.stem, name) for name in names.get(path.relative_to(UNIT).parent, ()))
        and path.relative_to(UNIT).parent not in subjects()
    ]
    assert elsewhere == [], (
        "name it test_X.py or test_X_TOPIC.py, in the folder of module or package X, or X/test_TOPIC.py"
    )


def has_test(path: Path) -> bool:
    """A test of its own, a folder of them, one of the face of a package around it, or an entry among ``NEIGHBOURS``."""
    name = "init" if path.name == "__init__.py" else path.stem.strip("_")
    tests = [(UNIT / path.parent, name)]
    folder = path.parent if path.name == "__init__.py" else path.with_suffix("")
    if any((UNIT / folder).glob("test_*.py")):
        return True
    for package in path.parents[:-1]:
        tests += [(UNIT / package, package.name), (UNIT / package.parent, package.name.rstrip("_"))]
    return any(is_of(test.stem, subject) for folder, subject in tests for test in folder.glob("test_*.py")) or any(
        str(one) in NEIGHBOURS for one in (path, *path.parents)
    )


def test_every_module_with_logic_has_a_test_at_its_path_or_a_neighbour_that_is_named() -> None:
    untested = [
        str(path)
        for file, path in modules()
        if not has_test(path)
        and any(
            isinstance(node, _LOGIC)
            for function in ast.walk(ast.parse(file.read_text()))
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
            for node in ast.walk(function)
        )
    ]
    assert untested == []


@for_every(NEIGHBOURS.items())
def test_every_named_neighbour_is_there(subject: str, test: str) -> None:
    assert (ROOT / "proxy" / subject).exists() or (ROOT / subject).exists()
    assert (TESTS / test).exists()


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


# An import that may have a private name. Most files have none, and to parse all of them takes seconds.
_MAYBE_PRIVATE = re.compile(r"^\s*from (?:proxy|plugins)\b[^\n(]*(?:\([^)]*)?\b_[A-Za-z]", re.MULTILINE)


def test_no_test_imports_a_private_name() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in python_files()
        if _MAYBE_PRIVATE.search(path.read_text())
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("proxy", "plugins")
        if any(private(name) for name in (*(node.module or "").split("."), *(alias.name for alias in node.names)))
    ]
    assert found == []


def test_no_test_measures_elapsed_seconds() -> None:
    """Seconds say how busy the machine is. What grows is compared by ``tests.growth``; a deadline that ends a hanging
    test may read the monotonic clock, outside of what is asserted of the product."""
    stopwatch = re.compile(r"\b(?:perf_counter|process_time|thread_time)\b|assert .*monotonic\(\) -")
    found = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in python_files()
        if path.relative_to(TESTS).parts[0] not in _MEASURED and str(path.relative_to(TESTS)) not in STOPWATCHES
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if stopwatch.search(line)
    ]
    assert found == []


# A constant of a module, whose value is not built from an earlier value of its own.
_CONSTANT = re.compile(r"^(_?[A-Z][A-Z0-9_]*)(?:: [^=\n]+)? = (?!.*\b\1\b)", re.MULTILINE)


def test_no_constant_of_a_module_has_two_values() -> None:
    """Where two files are joined, the second value would silently replace the first one."""
    names = ((path, Counter(_CONSTANT.findall(path.read_text(encoding="utf-8")))) for path, _ in modules())
    assert [f"{path}: {name}" for path, counts in names for name, count in counts.items() if count > 1] == []

"""The parts of a module that a commit can add."""

import pytest

from proxy.demo.structured.package import is_module, units_of, without

TEXT = '''"""A shop."""

import os

LIMIT = 3


# Says what is open.
@decorated
def is_open(day):
    if day is None:
        raise ValueError
    # Sunday.
    if day == 6:
        return False
    return True


class Stall:
    """A stall."""

    def __init__(self, name):
        self.name = name

    @property
    def label(self):
        return self.name


class Empty:
    def only(self):
        return 1
'''


def texts() -> dict[tuple[str, bool, int], str]:
    lines = TEXT.splitlines(keepends=True)
    return {(unit.name, unit.is_guard, unit.start): "".join(lines[unit.start : unit.end]) for unit in units_of(TEXT)}


def test_functions_methods_classes_and_guards_are_found_in_their_order_of_definition() -> None:
    assert [(name, guard) for name, guard, _ in texts()] == [
        ("is_open", True), ("is_open", True), ("is_open", False), ("Stall.label", False), ("Stall", False),
        ("Empty", False),
    ]  # fmt: skip


def test_a_unit_has_its_decorators_the_comments_above_it_and_the_empty_lines_in_front() -> None:
    found = list(texts().values())
    assert found[1] == "    # Sunday.\n    if day == 6:\n        return False\n"
    assert found[2].startswith("\n\n# Says what is open.\n@decorated\ndef is_open(day):\n")
    assert found[3] == "\n    @property\n    def label(self):\n        return self.name\n"


def test_without_a_unit_the_text_is_still_a_module_and_only_its_lines_are_gone() -> None:
    for unit in units_of(TEXT):
        left = without(TEXT, unit)
        assert is_module(left)
        lines = TEXT.splitlines(keepends=True)
        assert left == "".join(lines[: unit.start]) + "".join(lines[unit.end :]) != TEXT


def test_the_only_method_of_a_class_and_the_only_statement_of_a_function_stay() -> None:
    assert "Empty.only" not in {unit.name for unit in units_of(TEXT)}
    assert [unit.is_guard for unit in units_of("def f(x):\n    if x:\n        return 1\n")] == [False]


def test_long_parts_and_conditions_with_an_else_are_no_units() -> None:
    long = "def f():\n" + "    pass\n" * 60
    assert units_of(long) == []
    branch = "def f(x):\n    if x:\n        y = 1\n    else:\n        y = 2\n    return y\n"
    assert [unit.is_guard for unit in units_of(branch)] == [False]


@pytest.mark.parametrize("text", ["", "def f(:\n", "x = 1", "a\x00b\n", "# \x0c page\ndef f():\n    return 1\n"])
def test_a_text_that_is_no_module_or_whose_lines_are_in_doubt_has_no_units(text: str) -> None:
    assert units_of(text) == []

"""What holds for every test."""

import logging
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the layouts expected in tests/golden")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that a test ran in this process has set logging up for itself: levels, and a handler on a stream that
    pytest has closed since. The tests behind it must not see that."""
    root, ours = logging.getLogger(), logging.getLogger("stratiform")
    levels = root.level, ours.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # pytest's own handlers are subclasses
            root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])

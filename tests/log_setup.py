"""Logging as it was before a command set it up for itself."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_restored() -> Iterator[None]:
    """Afterwards levels are what they were, and the handlers are those that were there.

    A command takes the root logger's handlers away, also one that a test with a longer life listens with, and adds one
    of its own, on a stream that pytest closes when the test has ended.
    """
    root, ours = logging.getLogger(), logging.getLogger("stratiform")
    levels, handlers = (root.level, ours.level), root.handlers[:]
    try:
        yield
    finally:
        for handler in root.handlers[:]:
            if type(handler) is logging.StreamHandler:  # pytest's own handlers are subclasses
                root.removeHandler(handler)
        for handler in handlers:
            if type(handler) is not logging.StreamHandler:
                root.addHandler(handler)  # one that is there is not added again
        root.setLevel(levels[0])
        ours.setLevel(levels[1])

"""Logging as it was before a command set it up for itself."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_restored() -> Iterator[None]:
    """Restore the levels and the handlers at the end of the block.

    A command removes the root logger's handlers, including those that a longer test uses. It adds its own handler, on a
    stream that pytest closes when the test has ended.
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
                root.addHandler(handler)  # a handler that is still there is not added again
        root.setLevel(levels[0])
        ours.setLevel(levels[1])

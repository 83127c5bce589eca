"""Containment of errors: a failure in caching or accounting must not fail the request."""

import logging
from types import TracebackType
from typing import Self

_log = logging.getLogger("stratiform")


class suppress_and_log:
    """A block whose failure is logged and goes no further (fidelity rule 7: caching never fails a request).

    The log names only the error's type and place, because a message could quote the prompt.
    """

    def __init__(self, step: str) -> None:
        self._step = step
        self.has_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.has_failed = True
        _log.error("contained a failure in %s: %s", self._step, place_of(error))
        return True


def place_of(error: Exception) -> str:
    """The type of an error and where it was raised, without its message."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    return f"{type(error).__name__} at {where}"

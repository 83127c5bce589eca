"""Containment: steps that serve caching or accounting, and must not fail the request that they serve."""

import logging
from types import TracebackType
from typing import Self

_log = logging.getLogger("stratiform")


class Contained:
    """A block whose failure is logged and goes no further (fidelity rule 7: caching never fails a request)."""

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        _log.error("contained a failure in %s", self._step, exc_info=error)
        return True

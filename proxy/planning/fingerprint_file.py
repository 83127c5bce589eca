"""The file of fingerprints: what was sent, as keyed digests and sizes, a line for each request.

All workers of a host append to one file. Its key is in a file beside it and is made at the same time. Only the user
that runs the proxy can read the two files. Lines are written beside the event loop. If the disk is full or slow, lines
are lost, but no request fails or waits.
"""

import asyncio
import errno
import fcntl
import logging
import os
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proxy.core.diagnosis.fingerprints import VERSION, Fingerprint, line_of
from proxy.core.money.prices import cost
from proxy.core.planner.plan import Plan
from proxy.core.response.usage import Usage
from proxy.storage.private_file import make_private, tighten
from proxy.tasks import Tasks, drain, spawn

MOST_BYTES = 1 << 30
"""A larger file is renamed to ``.1`` and replaces an earlier ``.1``. A new file is begun in its place."""
_MOST_WAITING = 256
_KEY_BYTES = 32

_log = logging.getLogger("stratiform")


class FingerprintFile:
    """Appends to the file of this path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = b""
        self._waiting: deque[Fingerprint] = deque(maxlen=_MOST_WAITING)
        self._writing: Tasks = set()
        self._has_failed = False

    def add(self, plan: Plan, usage: Usage | None) -> None:
        """Write a request that was planned and answered. If more lines wait than the disk takes, the oldest are
        lost."""
        if plan.in_flight is None or plan.in_flight.sent is None:
            return
        analysis, is_told = plan.in_flight.analysis, usage is not None and not usage.estimated
        self._waiting.append(
            Fingerprint(
                v=VERSION,
                session=plan.session,
                model=analysis.route.name,
                record=plan.in_flight.sent.record,
                client=plan.client,
                profile=analysis.profile.name,
                tokens=(usage.prompt, usage.output, usage.read, usage.write_5m, usage.write_1h)
                if usage is not None and is_told
                else None,
                cost_usd=cost(usage, plan.price).total_usd if usage is not None and plan.price is not None else None,
            )
        )
        if all(task.done() for task in self._writing):  # the set still holds a task that has just ended
            spawn(self._write_all(), self._writing)

    async def aclose(self) -> None:
        await drain(self._writing)

    async def _write_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            await asyncio.to_thread(self._write, batch)

    def _write(self, batch: Sequence[Fingerprint]) -> None:
        try:
            self._key = self._key or _key_of(self._path)
            self._make_room()
            lines = b"".join(line_of(fingerprint, self._key) for fingerprint in batch)
            make_private(self._path)
            with open(self._path, "ab", buffering=0) as file:
                # A line that was written only in part ends here, so that the next line can be read.
                whole = b"\n" * self._has_failed + lines
                if file.write(whole) < len(whole):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("fingerprints cannot be written to %s: %s", self._path, error.strerror or error)
            self._has_failed = True

    def _make_room(self) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size <= MOST_BYTES:
                return
            with open(_key_file(self._path), "rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                # Another worker may have renamed the file meanwhile: the new file must not replace the full one.
                if self._path.stat().st_size > MOST_BYTES:
                    self._path.replace(self._path.with_name(f"{self._path.name}.1"))


def _key_of(path: Path) -> bytes:
    """The key beside the file. It is made if there is none. If two processes make one at the same time, the first one's
    key is used. Raises OSError, also for a key that is too short to keep anything secret."""
    file = _key_file(path)
    with suppress(FileNotFoundError):
        tighten(file)
        return _read(file)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = file.with_name(f"{file.name}.{os.getpid()}")
    make_private(mine)
    mine.write_bytes(secrets.token_bytes(_KEY_BYTES))
    with suppress(FileExistsError):
        os.link(mine, file)
    mine.unlink()
    return _read(file)


def _key_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.key")


def _read(file: Path) -> bytes:
    key = file.read_bytes()[:_KEY_BYTES]
    if len(key) < _KEY_BYTES:
        raise OSError(errno.EINVAL, f"{file} is no key: remove it, and a new one is made")
    return key

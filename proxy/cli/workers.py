"""Several processes that serve one socket, and the parent process that starts, watches and ends them.

The socket is bound once and shared: if a worker dies, another worker takes the waiting connections. A worker that dies
is started anew in its slot. A worker that cannot start at all ends the whole. Each worker watches the parent process,
and ends in order if the parent is gone.
"""

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext
from multiprocessing.process import BaseProcess

_log = logging.getLogger("stratiform.workers")

# A worker that dies again and again within this time of its start is started after a pause, which grows each time.
_SHORT_LIFE_S = 5.0
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130  # what a shell expects of a command that SIGINT has ended
_HANDLED = (*_SIGNALS, signal.SIGHUP)

Work = Callable[[int, socket.socket], int]
"""Serves in the slot of that number until a signal ends it, or until the socket can be read. It can be read when its
other end, which the parent process holds, is gone. Returns the process's exit code."""


@dataclass(slots=True)
class _Worker:
    slot: int
    process: BaseProcess | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    short_lives: int = 0
    has_served: bool = False


@dataclass(slots=True)
class Workers:
    """``count`` processes that do ``work``. A process that has not ended ``grace_s`` after it was told to is killed.
    ``on_death`` is called with the slot of a process that ended by itself. ``on_stop`` is called before all processes
    are told to end. SIGHUP calls ``on_reload``; its result says whether the running workers are told, too."""

    work: Work
    count: int
    grace_s: float
    on_death: Callable[[int], None]
    on_reload: Callable[[], bool] = bool
    on_stop: Callable[[], None] = lambda: None
    _slots: list[_Worker] = field(default_factory=list)
    _stops: bool = False
    _reloads: bool = False
    _code: int = 0

    def run(self) -> int:
        """Run the workers until a signal ends them, or until no worker can start. Returns the exit code."""
        # Workers are forked from a process with one thread and nothing open but the socket. A fork takes milliseconds.
        context = multiprocessing.get_context("fork")
        self._slots = [_Worker(slot) for slot in range(self.count)]
        near, far = socket.socketpair()
        with near, far, self._woken_by_signals() as waker:
            code = 0
            while not self._stops:
                for worker in self._slots:
                    if worker.process is None and time.monotonic() >= worker.start_at:
                        self._start(worker, context, near, far)
                due = [worker.start_at for worker in self._slots if worker.process is None]
                timeout = max(0.0, min(due) - time.monotonic()) if due else None
                _wait(waker, [worker.process for worker in self._slots if worker.process], timeout)
                if self._reloads:
                    self._reload()
                code = self._look_after()
                if code:
                    break
            self.on_stop()
            self._end(waker)
        return code or self._code

    def _start(self, worker: _Worker, context: ForkContext, near: socket.socket, far: socket.socket) -> None:
        worker.process = context.Process(
            target=_work, args=(self.work, worker.slot, near, far), name=f"worker-{worker.slot}"
        )
        # A signal that comes before the worker has its own handlers must wait, and not reach the parent's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        worker.process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        worker.started_at = time.monotonic()
        _log.info("worker %d is process %d", worker.slot, worker.process.pid)

    def _reload(self) -> None:
        """Let running workers read the configuration again. Workers that start later inherit it from this process."""
        self._reloads = False
        if not self.on_reload():
            return
        for worker in self._slots:
            if worker.process is not None and worker.process.pid is not None and worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGHUP)

    def _look_after(self) -> int:
        """Clear the slots of processes that ended. Returns the exit code of the whole if the whole must end."""
        for worker in self._slots:
            process = worker.process
            if process is None or process.exitcode is None or self._stops:
                continue
            process.join()
            worker.process = None
            self.on_death(worker.slot)
            lived_s = time.monotonic() - worker.started_at
            is_short = lived_s < _SHORT_LIFE_S
            worker.has_served = worker.has_served or not is_short
            if process.exitcode > 0 and not worker.has_served:
                _log.error("worker %d ended with code %d as it started", worker.slot, process.exitcode)
                return process.exitcode
            worker.short_lives = worker.short_lives + 1 if is_short else 0
            pause_s = (
                min(_LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (worker.short_lives - 2)) if worker.short_lives > 1 else 0.0
            )
            worker.start_at = time.monotonic() + pause_s
            _log.error(
                "worker %d (process %s) ended with code %d after %.0f s", worker.slot, process.pid, process.exitcode,
                lived_s,
            )  # fmt: skip
        return 0

    def _end(self, waker: socket.socket) -> None:
        processes = [worker.process for worker in self._slots if worker.process is not None]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + self.grace_s
        while running := [process for process in processes if process.exitcode is None]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                for process in running:
                    _log.error("process %s did not end in time and is killed", process.pid)
                    process.kill()
            _wait(waker, running, max(left_s, 1.0))
        for process in processes:
            process.join()

    @contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        """A socket that can be read after a signal came."""

        def stop(number: int, frame: object) -> None:
            self._stops = True
            self._code = _INTERRUPTED if number == signal.SIGINT else 0

        def reload(number: int, frame: object) -> None:
            self._reloads = True

        reader, writer = socket.socketpair()
        with reader, writer:
            reader.setblocking(False)
            writer.setblocking(False)
            wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            handlers = {number: signal.signal(number, stop) for number in _SIGNALS}
            handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, reload)
            try:
                yield reader
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(wakeup)


def _work(work: Work, slot: int, near: socket.socket, far: socket.socket) -> None:
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # SIGHUP is ignored: the configuration at the fork is as new as the one that the signal would make the worker read.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    # Only the parent process keeps this end.
    far.close()
    raise SystemExit(work(slot, near))


def _wait(waker: socket.socket, processes: Iterable[BaseProcess], timeout: float | None) -> None:
    """Wait until a process ends, a signal comes, or the timeout is over."""
    wait([waker, *(process.sentinel for process in processes)], timeout)
    with suppress(BlockingIOError):
        while waker.recv(1024):
            pass

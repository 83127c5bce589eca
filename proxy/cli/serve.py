"""``stratiform serve``: the proxy on a socket, until it is told to stop.

First come the processes. Several workers may serve one socket; their parent process starts, watches and ends them. The
socket is bound once and shared: if a worker dies, another worker takes the waiting connections. A worker that dies is
started anew in its slot. A worker that cannot start at all ends the whole. Each worker watches the parent process, and
ends in order if the parent is gone.

Then come the logs: each record is a line of text or JSON on the standard error. The proxy's own lines hold no keys.
Libraries quote addresses, headers and exceptions, so their lines are searched for keys here.

Then come the socket, the event loop, and uvicorn with the limits of the configuration; and last the command itself.
"""

import argparse
import asyncio
import errno
import gc
import json
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from proxy import __version__
from proxy.app import composition, factories, foundation
from proxy.app.composition import ConfigSource
from proxy.app.settings import (
    IGNORE_FLAG,
    MOST_WORKERS,
    NO_SHARED_STORE,
    ConfigError,
    Limits,
    Settings,
    export,
    load,
    shadowing,
)
from proxy.app.web import create_app
from proxy.app.web.connection import WireLimits, guarded_http
from proxy.cli import number_within
from proxy.cli.check_config import IGNORE_HELP, dear_prices, expired_keys, not_honoured, refuse_exposed, unsupported
from proxy.engine.conclusion import Line
from proxy.engine.telemetry.metrics import FOLDER_VARIABLE, SharedMetrics
from proxy.kit.clock import SystemClock
from proxy.kit.modes import Mode
from proxy.kit.secrets import without_keys
from proxy.kit.tasks import Tasks, spawn
from proxy.models import Transport
from proxy.protocol.providers import PROFILES

_workers_log = logging.getLogger("stratiform.workers")

# A worker that dies again and again within this time of its start is started after a pause, which grows each time.
_SHORT_LIFE_S = 5.0
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
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
            while not self._stops:
                for worker in self._slots:
                    if worker.process is None and time.monotonic() >= worker.start_at:
                        self._start(worker, context, near, far)
                due = [worker.start_at for worker in self._slots if worker.process is None]
                timeout = max(0.0, min(due) - time.monotonic()) if due else None
                _wait(waker, [worker.process for worker in self._slots if worker.process], timeout)
                if self._reloads:
                    self._reloads = False
                    # Workers that start later inherit the configuration from this process.
                    for worker in self._slots if self.on_reload() else ():
                        if worker.process is not None and worker.process.pid is not None and worker.process.is_alive():
                            os.kill(worker.process.pid, signal.SIGHUP)
                self._look_after()
            self.on_stop()
            self._end(waker)
        return self._code

    def _start(self, worker: _Worker, context: ForkContext, near: socket.socket, far: socket.socket) -> None:
        worker.process = context.Process(
            target=_work, args=(self.work, worker.slot, near, far), name=f"worker-{worker.slot}"
        )
        # A signal that comes before the worker has its own handlers must wait, and not reach the parent's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        worker.process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        worker.started_at = time.monotonic()
        _workers_log.info("worker %d is process %d", worker.slot, worker.process.pid)

    def _look_after(self) -> None:
        """Clear the slots of processes that ended. A process that could not start ends the whole, with its own exit
        code."""
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
                _workers_log.error("worker %d ended with code %d as it started", worker.slot, process.exitcode)
                self._stops, self._code = True, process.exitcode
                return
            worker.short_lives = worker.short_lives + 1 if is_short else 0
            # The first short life costs no pause.
            pause_s = min(_LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (worker.short_lives - 2))
            worker.start_at = time.monotonic() + (pause_s if worker.short_lives > 1 else 0.0)
            _workers_log.error(
                "worker %d (process %s) ended with code %d after %.0f s", worker.slot, process.pid, process.exitcode,
                lived_s,
            )  # fmt: skip

    def _end(self, waker: socket.socket) -> None:
        processes = [worker.process for worker in self._slots if worker.process is not None]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + self.grace_s
        while running := [process for process in processes if process.exitcode is None]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                for process in running:
                    _workers_log.error("process %s did not end in time and is killed", process.pid)
                    process.kill()
            _wait(waker, running, max(left_s, 1.0))
        for process in processes:
            process.join()

    @contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        """A socket that can be read after a signal came."""

        def stop(number: int, frame: object) -> None:
            self._stops = True
            # A shell expects 130 of a command that SIGINT has ended.
            self._code = self._code or (130 if number == signal.SIGINT else 0)

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


class Formatter(logging.Formatter):
    """Formats a record, including its traceback, and removes texts that look like keys."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.name == "stratiform" and record.exc_info is None else without_keys(text)


class JsonFormatter(Formatter):
    """Formats a record as an object of JSON. The line of an exchange has a member for each of its values."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        if isinstance(record.msg, Line):
            found |= {"message": record.msg.about, **record.msg.values}
        else:
            found["message"] = super().format(record)
        return json.dumps(found, default=float)


def log_to_stderr(level: str, log_format: str = "text") -> None:
    """From now on log every record of at least that level, as text or as JSON."""
    # No format here names the place in the code, the thread or the process. Without these facts a line takes about half
    # of the time: https://docs.python.org/3/howto/logging.html#optimization.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    text = Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter("%(message)s") if log_format == "json" else text)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("stratiform").setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    logging.getLogger("uvicorn.error").setLevel(level.upper())
    # This logger reports for each batch that a collector is away; proxy.engine.telemetry.spans reports it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    if level in ("debug", "error"):
        logging.getLogger().setLevel(level.upper())


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the server has information that no line of the proxy has.

    A request that still runs when the proxy must end is cancelled, and its client is told so: that needs no traceback.
    Nor does the server itself, which a second Ctrl-C cancels. An answer that breaks off is left incomplete, so that its
    client can notice it. The engine logs which exchange it was. Of what the server does, one line is news: it waits for
    running answers, and a second Ctrl-C ends them.
    """
    if not logging.getLogger().isEnabledFor(record.levelno):
        return record.msg.startswith("Waiting for connections to close")
    raised = record.exc_info[1] if record.exc_info else None
    is_cancelled = isinstance(raised, asyncio.CancelledError) or record.getMessage().endswith("CancelledError\n")
    return not is_cancelled and record.msg != "ASGI callable returned without completing response."


# This is longer than the time for which clients' pools keep an idle connection (httpx 5 s, aiohttp 15 s, nginx 60 s, Go
# and Traefik 90 s, Caddy 120 s, Google's load balancers 600 s). The client must be the first to close an idle
# connection, or a request that it just sends is lost.
_KEEPALIVE_S = 620
_BACKLOG = 2048
# Python's own interval is 5 ms. With half a millisecond threads are switched more often; the cost is not measurable.
_SWITCH_S = 0.0005


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to that address. Raises ConfigError."""
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        why = f"stratiform.host: cannot listen on host `{host}`, port {port}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            with socket.create_server((where[0], 0), family=family) as other:
                why = f"stratiform.port: {host}:{port} is in use; `--port {other.getsockname()[1]}` is free"
        raise ConfigError([why]) from error


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_on_loop(work: Coroutine[object, object, None]) -> None:
    """Run the work on the event loop that uvicorn prefers here.

    While a thread reads a large request, the loop waits for that thread for one switch interval, once for each of the
    ten steps of a small request.
    """
    sys.setswitchinterval(_SWITCH_S)
    with asyncio.Runner(loop_factory=uvicorn.Config("", log_config=None).get_loop_factory()) as runner:
        runner.run(work)


class _Server(uvicorn.Server):
    """A server whose answers all come to their end. uvicorn leaves those that a second Ctrl-C ends to the event loop,
    and then repeats the signals, of which the first ends a worker at once."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            for task in self.server_state.tasks:
                task.cancel()
            await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
            await self.lifespan.shutdown()


def server(assembly: composition.BuiltApp, limits: Limits) -> uvicorn.Server:
    """A server for an app. It is not running yet. Its open pages end when it ends."""
    wire = WireLimits(int(limits.max_header_kib * 1024), limits.max_headers, limits.receive_s, limits.send_s)
    config = uvicorn.Config(
        create_app(assembly.parts),
        http=guarded_http(wire),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEPALIVE_S,
        timeout_graceful_shutdown=math.ceil(limits.drain_s),
    )
    built = _Server(config)
    if assembly.ui is not None:
        assembly.ui.live.is_stopping = lambda: built.should_exit
    return built


LOG_LEVELS = ("debug", "info", "warning", "error")
# A worker gets this time for its last work, after the time that running answers get.
_MARGIN_S = 10
_GC_ALLOCATIONS = 20_000

_log = logging.getLogger("stratiform")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="LiteLLM's config.yaml, with a stratiform section")
    parser.add_argument(
        "--upstream", default="", metavar="URL", help="the server for all models that the configuration does not name"
    )
    parser.add_argument(
        "--cache-profile", choices=sorted(PROFILES), metavar="NAME", default="",
        help="the cache rules of --upstream (default: by its host and the model's name): " + ", ".join(PROFILES),
    )  # fmt: skip
    parser.add_argument(IGNORE_FLAG, action="store_true", help=IGNORE_HELP)
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=number_within(int, 0, 65535),
        help="the port to listen on; 0 means any free port (default: 4000)",
    )
    parser.add_argument(
        "--workers",
        type=number_within(int, 1, MOST_WORKERS),
        help="the number of serving processes; more than one need a Redis (default: 1)",
    )
    parser.add_argument(
        "--mode",
        choices=[mode.name.lower() for mode in Mode],
        help="the highest mode that any request gets (default: tier)",
    )
    parser.add_argument(
        "--hud", action="store_true",
        help="show on the terminal what each request used, tier by tier (only where the standard error is a terminal)",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, help="what is logged; info logs one line for every exchange (default: info)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. SIGHUP reloads the configuration. Raises ConfigError."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the code that reloads is ready
    source = ConfigSource(settings_of(arguments), partial(settings_of, arguments))
    settings, has_hud = source.settings, arguments.hud and sys.stderr.isatty()
    log_to_stderr(settings.stratiform.log_level, settings.stratiform.log_format)
    expired = expired_keys(settings, SystemClock().now())
    for warning in (*not_honoured(settings), *expired, *dear_prices(settings), *shadowing(settings.folder)):
        _log.warning("%s", warning)
    export(settings.exported)
    with listen(settings.stratiform.host, settings.stratiform.port) as listener:
        source.read = partial(_settings_at, arguments, listener.getsockname()[0])
        if settings.stratiform.workers > 1:
            return _serve_with_workers(source, listener, has_hud=has_hud)
        run_on_loop(serve(source, listener, has_hud=has_hud))
    return 0


def _serve_with_workers(source: ConfigSource, listener: socket.socket, *, has_hud: bool) -> int:
    """Serve in several processes, each with its own app, until a signal ends all of them."""
    ours = source.settings.stratiform
    _log.info("stratiform %s: %d workers", __version__, ours.workers)
    with TemporaryDirectory(prefix="stratiform-metrics-") as folder:
        export({FOLDER_VARIABLE: folder})
        shared = SharedMetrics(Path(folder))

        def work(slot: int, lifeline: socket.socket) -> int:
            shared.begin(slot)
            try:
                run_on_loop(serve(source, listener, shared, lifeline, has_hud=has_hud))
            except ConfigError as error:
                _log.error("worker %d cannot start: %s", slot, "; ".join(error.problems))
                return 1
            except KeyboardInterrupt:
                return 130
            return 0

        # As long as one process holds the socket, the kernel accepts clients that nobody will serve.
        return Workers(
            work,
            ours.workers,
            ours.limits.drain_s + _MARGIN_S,
            on_death=shared.died,
            on_reload=source.reread,
            on_stop=listener.close,
        ).run()


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of the file. Settings of the command line take precedence. Raises ConfigError."""
    settings = load(arguments.config, arguments.upstream)
    if not arguments.ignore_unsupported and (problems := list(unsupported(settings))):
        raise ConfigError(problems)
    given = {name: getattr(arguments, name) for name in ("host", "port", "workers", "mode", "log_level")}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes.get("workers", 1) > 1 and settings.store_url is None:
        raise ConfigError([f"--workers: {NO_SHARED_STORE}"])
    if arguments.cache_profile and not settings.upstream:
        raise ConfigError(["--cache-profile: goes with --upstream; in a file it is model_info.cache_profile"])
    ours = settings.stratiform.model_copy(update=changes)
    return replace(settings, stratiform=ours, upstream_profile=arguments.cache_profile)


def _settings_at(arguments: argparse.Namespace, address: str) -> Settings:
    """The settings, when they are read again while the proxy listens at this address. Raises ConfigError."""
    settings = settings_of(arguments)
    refuse_exposed(settings, address, is_open=foundation.declared(settings).is_empty)
    return settings


async def serve(
    source: ConfigSource,
    listener: socket.socket,
    shared: SharedMetrics | None = None,
    lifeline: socket.socket | None = None,
    *,
    has_hud: bool = False,
) -> None:
    """Build the app and serve it on a bound socket, until a signal ends it. A worker also ends as soon as its
    ``lifeline`` can be read. ``has_hud``: the standard error shows what each request used. Raises ConfigError."""
    settings, background = source.settings, Tasks()
    assembly = await composition.build(settings, shared=shared)
    if has_hud:
        # The module that draws on a terminal is imported only if it is used.
        from proxy.cli.costs import Hud

        assembly.watch(Hud(sys.stderr).show)
    directory = assembly.reload.directory
    is_open = directory.declared.is_empty and not directory.snapshot.keys
    refuse_exposed(settings, listener.getsockname()[0], is_open=is_open)
    built = server(assembly, settings.stratiform.limits)
    spawn(_warm(assembly), background)

    async def reload() -> None:
        if await assembly.reload.run(source):
            await _warm(assembly)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: spawn(reload(), background))
    settle_heap()
    facts = (__version__, address(listener), settings.stratiform.mode, assembly.store)
    _log.info("stratiform %s: %s/v1, mode %s, store %s", *facts)
    if settings.upstream:
        _log.info("%s: cache profile %s", without_keys(settings.upstream), factories.upstream_profile(settings))

    def end_in_order(lifeline: socket.socket) -> None:
        # The parent process is gone: nothing else would restart this worker or end it.
        loop.remove_reader(lifeline)
        built.should_exit = True

    if lifeline is not None:
        loop.add_reader(lifeline, end_in_order, lifeline)
    await built.serve(sockets=[listener])


async def _warm(assembly: composition.BuiltApp) -> None:
    """Import litellm if a model needs it, which takes seconds. Meanwhile the proxy serves, but does not call itself
    ready."""
    if Transport.LITELLM in assembly.reload.models.transports() and await assembly.litellm.warm():
        settle_heap()


def settle_heap() -> None:
    """Exclude all objects that exist so far from garbage collection: they stay until the process ends.

    Objects of requests are freed by their reference counts. The collector is needed only for rare cycles, so it runs
    less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS, 20, 50)

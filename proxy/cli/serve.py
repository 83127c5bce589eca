"""``stratiform serve``: the proxy on a socket, until it is told to stop."""

import argparse
import asyncio
import gc
import logging
import signal
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from proxy import __version__
from proxy.app import composition, declared, factories
from proxy.app.foundation import Worker
from proxy.app.reload import ConfigSource
from proxy.app.shadowed import shadowing
from proxy.cli.checks import IGNORE_HELP, dear_prices, expired_keys, not_honoured, refuse_exposed, unsupported
from proxy.cli.logs import log_to_stderr
from proxy.cli.server import address, listen, run_on_loop, server
from proxy.cli.workers import Workers
from proxy.clock import SystemClock
from proxy.core.modes import Mode
from proxy.core.providers import PROFILES
from proxy.ports import Transport
from proxy.settings import IGNORE_FLAG, MOST_WORKERS, NO_SHARED_STORE, ConfigError, Settings, export, load
from proxy.tasks import Tasks, spawn
from proxy.telemetry.multiprocess import FOLDER_VARIABLE, SharedMetrics
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.web.app import create_app

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
    parser.add_argument("--port", type=int, help="the port to listen on; 0 means any free port (default: 4000)")
    parser.add_argument(
        "--workers", type=int, help="the number of serving processes; more than one need a Redis (default: 1)"
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
                run_on_loop(serve(source, listener, Worker(slot, shared), lifeline, has_hud=has_hud))
            except ConfigError as error:
                _log.error("worker %d cannot start: %s", slot, "; ".join(error.problems))
                return 1
            except KeyboardInterrupt:
                return 130
            return 0

        grace_s = ours.limits.drain_s + _MARGIN_S
        # As long as one process holds the socket, the kernel accepts clients that nobody will serve.
        return Workers(
            work, ours.workers, grace_s, on_death=shared.died, on_reload=source.reread, on_stop=listener.close
        ).run()


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of the file. Settings of the command line take precedence. Raises ConfigError."""
    settings = load(arguments.config, arguments.upstream)
    if not arguments.ignore_unsupported and (problems := list(unsupported(settings))):
        raise ConfigError(problems)
    given = {name: getattr(arguments, name) for name in ("host", "port", "workers", "mode", "log_level")}
    changes = {name: value for name, value in given.items() if value is not None}
    if not 0 <= changes.get("port", 0) <= 65535:
        raise ConfigError(["--port: must be between 0 and 65535"])
    if not 1 <= changes.get("workers", 1) <= MOST_WORKERS:
        raise ConfigError([f"--workers: must be between 1 and {MOST_WORKERS}"])
    if changes.get("workers", 1) > 1 and settings.store_url is None:
        raise ConfigError([f"--workers: {NO_SHARED_STORE}"])
    if arguments.cache_profile and not settings.upstream:
        raise ConfigError(["--cache-profile: goes with --upstream; in a file it is model_info.cache_profile"])
    ours = settings.stratiform.model_copy(update=changes)
    return replace(settings, stratiform=ours, upstream_profile=arguments.cache_profile)


def _settings_at(arguments: argparse.Namespace, address: str) -> Settings:
    """The settings, when they are read again while the proxy listens at this address. Raises ConfigError."""
    settings = settings_of(arguments)
    refuse_exposed(settings, address, is_open=declared.declared(settings).is_empty)
    return settings


async def serve(
    source: ConfigSource,
    listener: socket.socket,
    worker: Worker | None = None,
    lifeline: socket.socket | None = None,
    *,
    has_hud: bool = False,
) -> None:
    """Build the app and serve it on a bound socket, until a signal ends it. A worker also ends as soon as its
    ``lifeline`` can be read. ``has_hud``: the standard error shows what each request used. Raises ConfigError."""
    settings, warming, background = source.settings, _Warming(), Tasks()
    assembly = await composition.build(
        settings,
        obstacle=lambda: warming.obstacle,
        worker=worker,
    )
    if has_hud:
        # The module that draws on a terminal is imported only if it is used.
        from proxy.cli.hud import Hud

        assembly.watch(Hud(sys.stderr).show)
    directory = assembly.reload.directory
    is_open = directory.declared.is_empty and not directory.snapshot.keys
    refuse_exposed(settings, listener.getsockname()[0], is_open=is_open)
    built = server(create_app(assembly.parts), settings.stratiform.limits)
    if assembly.live is not None:
        assembly.live.is_stopping = lambda: built.should_exit
    warming.begin(assembly, background)

    async def reload() -> None:
        if await assembly.reload.run(source):
            warming.begin(assembly, background)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: spawn(reload(), background))
    settle_heap()
    where, mode, store = address(listener), settings.stratiform.mode, settings.store_name
    _log.info("stratiform %s: %s/v1, mode %s, store %s", __version__, where, mode, store)
    if settings.upstream:
        _log.info("%s: cache profile %s", settings.upstream, factories.upstream_profile(settings))
    if lifeline is not None:
        asyncio.get_running_loop().add_reader(lifeline, _end_in_order, built, lifeline)
    await built.serve(sockets=[listener])


def _end_in_order(running: uvicorn.Server, lifeline: socket.socket) -> None:
    """End this worker, because the parent process is gone: nothing else would restart the worker or end it."""
    asyncio.get_running_loop().remove_reader(lifeline)
    running.should_exit = True


def settle_heap() -> None:
    """Exclude all objects that exist so far from garbage collection: they stay until the process ends.

    Objects of requests are freed by their reference counts. The collector is needed only for rare cycles, so it runs
    less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS, 20, 50)


class _Warming:
    """Imports litellm in the background, which takes seconds. Meanwhile the proxy serves, but does not report itself as
    ready."""

    def __init__(self) -> None:
        self.obstacle = ""
        self._has_begun = False

    def begin(self, assembly: composition.Assembly, background: Tasks) -> None:
        """Import litellm if a model needs it and the import has not begun."""
        litellm = assembly.upstreams[Transport.LITELLM]
        needs_it = Transport.LITELLM in assembly.reload.models.transports()
        if needs_it and not self._has_begun and isinstance(litellm, LitellmUpstream):
            self._has_begun = True
            spawn(self._warm(litellm), background)

    async def _warm(self, upstream: LitellmUpstream) -> None:
        """Import litellm. The task logs a failure, and the proxy then stays unready."""
        self.obstacle = "litellm is not loaded yet"
        await upstream.warm()
        settle_heap()
        self.obstacle = ""

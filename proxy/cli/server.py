"""Runs an app on a socket: the socket itself, the event loop, and uvicorn with the limits of the configuration."""

import asyncio
import errno
import math
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp

from proxy.settings import ConfigError, Limits
from proxy.web.guard import WireLimits, guarded_http

# This is longer than the time for which clients' pools keep an idle connection (node 5 s, httpx 5 s, aiohttp 15 s; load
# balancers 60 s). The client must be the first to close an idle connection, or a request that it just sends is lost.
_KEEPALIVE_S = 75
_BACKLOG = 2048
_NEARBY = 100
# Python's own interval is 5 ms. With half a millisecond threads are switched more often; the cost is not measurable.
_SWITCH_S = 0.0005


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to that address. Raises ConfigError."""
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = next((near for near in range(port + 1, port + _NEARBY) if _is_free(host, near)), 0)
            raise ConfigError([f"stratiform.port: {host}:{port} is in use; `--port {free}` is free"]) from error
        raise ConfigError([f"stratiform.port: cannot listen on {host}:{port}: {error.strerror}"]) from error


def _is_free(host: str, port: int) -> bool:
    with suppress(OSError, OverflowError):
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(where[:2], family=family):
            return True
    return False


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


def server(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    """A server for the app. It is not running yet."""
    wire = WireLimits(int(limits.max_header_kib * 1024), limits.max_headers, limits.receive_s, limits.send_s)
    config = uvicorn.Config(
        app,
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
    return uvicorn.Server(config)

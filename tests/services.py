"""Services that tests start for themselves (.ci/install-services.sh installs them)."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import NoReturn

import pytest

STRATIFORM = (sys.executable, "-c", "import sys; from proxy.cli import main; sys.exit(main())")
"""The command, where it may not be installed."""

# The kernel gives higher ports (32768 and more) to connections, and to servers that ask for any port.
_FIRST_PORT = 11_000
_PORTS_EACH = 1_000
_WORKERS = 9
# Several runs of the tests at once begin at different places.
_PLACES = count(os.getpid())


def absent(reason: str) -> NoReturn:
    """Skip a test whose requirement is missing; in CI the test fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A loopback port on which no process listens. No other worker of the tests takes it, and the kernel gives it to no
    process that asks for any port. So a killed server can be started on it again."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    for place in _PLACES:
        port = _FIRST_PORT + worker * _PORTS_EACH + place % _PORTS_EACH
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the places never end")


@contextmanager
def closed_port() -> Iterator[int]:
    """A loopback port on which connections are refused until the end of the block: it is taken, but no process listens
    on it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])

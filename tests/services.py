"""Services that tests start for themselves (.ci/install-services.sh installs them)."""

import os
import socket
from typing import NoReturn

import pytest


def absent(reason: str) -> NoReturn:
    """What the test needs is not there: it is skipped, and fails in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port

"""The app in a thread: it serves, it stops, and what keeps it from starting is raised where it was started."""

import socket
import threading
import urllib.request
from pathlib import Path

import pytest

from proxy.app.settings import ConfigError, Settings
from proxy.lab.demo.command import demo_settings, running
from proxy.protocol.request.tokens import bytes_over_four


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "stratiform"]


def test_the_app_serves_until_the_block_ends() -> None:
    with running(demo_settings(0), bytes_over_four) as proxy:
        with urllib.request.urlopen(f"{proxy.url}/healthz", timeout=60) as answer:
            assert answer.status == 200
        assert threads()
    assert threads() == []
    host, port = proxy.url.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=60)


def test_the_app_bounds_headers_as_serve_does() -> None:
    with running(demo_settings(0), bytes_over_four) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * (65 << 10))
            assert connection.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_the_app_stops_when_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), running(demo_settings(0), bytes_over_four):
        raise ZeroDivisionError
    assert threads() == []


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="is in use"), running(demo_settings(port), bytes_over_four):
            pytest.fail("it must not start")


def test_an_app_that_cannot_be_put_together(tmp_path: Path) -> None:
    a_folder = {"store": f"sqlite:{tmp_path}"}
    broken = Settings(stratiform=demo_settings(0).stratiform.model_copy(update=a_folder))
    with pytest.raises(ConfigError, match="cannot be used"), running(broken, bytes_over_four):
        pytest.fail("it must not start")
    assert threads() == []

"""A Redis for tests: one server or a cluster, on free loopback ports, ended by its process id.

If redis-server is not installed, the test is skipped, and fails in CI (.ci/install-services.sh installs it).
"""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.services import absent, free_port
from tests.waiting import MOST_S, until

_SLOTS = 16384
BRISK = ("--appendfsync", "no")
"""Options of a server that never waits for the disk. They are for tests that measure the waiting of requests, not the
kept data."""
# A cluster node also listens on a second port, this much above its own, on which nodes talk to each other.
_BUS = 10000


class RedisServer:
    """One redis-server. It can be killed and started anew on the same port, and it can be paused."""

    def __init__(self, binary: str, folder: Path, port: int, *options: str, password: str = "") -> None:
        self.port = port
        self._password = password
        self.url = f"redis://127.0.0.1:{port}/0"
        self._folder = folder
        self._words = [
            binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no", *options,
            *(["--requirepass", password] if password else []),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server. Returns when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        until(lambda: self._try("PING") == "+PONG", self._goes_on)

    def call(self, *words: str) -> str:
        """Send one command. Returns the first line of its answer."""
        return self.ask(*words).partition("\r\n")[0]

    def ask(self, *words: str, errors: str = "strict") -> str:
        """One command; all of its answer as it is on the wire."""
        return ask(self.port, *words, password=self._password, errors=errors)

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(MOST_S)

    def pause(self) -> None:
        """Pause the server: it keeps its connections and accepts data, but answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after a pause."""
        self._signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the server until the end of the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def stop(self) -> None:
        """End the server, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _goes_on(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()

    def _try(self, *words: str) -> str:
        try:
            return self.call(*words)
        except OSError:
            return ""


def ask(port: int, *words: str, password: str = "", errors: str = "strict") -> str:
    """One command; all of its answer as it is on the wire."""
    commands = [("AUTH", password)] if password else []
    with socket.create_connection(("127.0.0.1", port), timeout=MOST_S) as line:
        line.sendall(b"".join(_packed(command) for command in (*commands, words, ("QUIT",))))
        with line.makefile("rb") as answer:
            text = answer.read().decode(errors=errors)
    return text.removeprefix("+OK\r\n" * len(commands)).removesuffix("+OK\r\n")


def redis_binary() -> str:
    """The path of redis-server. Without it the test ends."""
    return shutil.which("redis-server") or absent("redis-server is not installed: .ci/install-services.sh does that")


@contextmanager
def redis_server(folder: Path, *options: str, password: str = "") -> Iterator[RedisServer]:
    """A server that answers, until the end of the block."""
    server = RedisServer(redis_binary(), folder, free_port(), *options, password=password)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def redis_cluster(folder: Path, nodes: int = 3) -> Iterator[list[RedisServer]]:
    """A cluster of primaries, each with its share of the slots."""
    binary = redis_binary()
    with ExitStack() as stack:
        servers = []
        for index in range(nodes):
            server = RedisServer(
                binary, folder / str(index), _port_with_bus(), "--cluster-enabled", "yes",
                # A node that a test pauses stays a member, and the other nodes work without it.
                "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no",
            )  # fmt: skip
            stack.callback(server.stop)
            server.start()
            first, last = _SLOTS * index // nodes, _SLOTS * (index + 1) // nodes - 1
            assert server.call("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)) == "+OK"
            assert server.call("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1)) == "+OK"
            servers.append(server)
        for server in servers[1:]:
            assert server.call("CLUSTER", "MEET", "127.0.0.1", str(servers[0].port)) == "+OK"
        until(lambda: all(_sees_all(server, nodes) for server in servers))
        yield servers


def _packed(words: tuple[str, ...]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)


def _sees_all(server: RedisServer, nodes: int) -> bool:
    text = server.ask("CLUSTER", "INFO")
    # A node that knows another one may not know yet which slots the other one serves.
    expected = ("cluster_state:ok\r", f"cluster_known_nodes:{nodes}\r", f"cluster_slots_assigned:{_SLOTS}\r")
    return all(line in text for line in expected)


def _port_with_bus() -> int:
    while True:
        port = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + _BUS)):
            return port

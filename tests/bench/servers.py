"""The processes under measurement: started on free ports, watched until ready, their CPU time read from outside."""

import contextlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.bench.provider import MODEL
from tests.services import free_port

ROOT = Path(__file__).resolve().parents[2]
# It ends a run that hangs.
START_LIMIT_S = 120.0
IS_SUPPORTED = sys.platform.startswith("linux")


@dataclass(frozen=True, slots=True)
class Server:
    """One process that listens."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    start_s: float

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """CPU seconds of all threads so far, of the process and its children."""
        return cpu_of(self.process.pid)

    def rss_mb(self) -> float:
        """Resident memory."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _tree(self.process.pid))
        return pages * 4096 / 1e6


def cpu_of(pid: int) -> float:
    """CPU seconds of all threads so far, of a process and its children."""
    return sum(_cpu_s(one) for one in _tree(pid))


def _cpu_s(pid: int) -> float:
    # What clock_getcpuclockid(3) returns on Linux: nanoseconds, exited threads included.
    # (/proc/PID/stat counts in ticks of 10 ms, too coarse for a block of 20 requests.)
    return time.clock_gettime((~pid << 3) | 2)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _tree(int(child))
    return found


@contextlib.contextmanager
def running(name: str, command: Sequence[str], port: int, folder: Path, root: Path = ROOT) -> Iterator[Server]:
    """Start a server with the working folder ``root``, wait until it answers, end it afterwards."""
    log = folder / f"{name}.log"
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        _wait(name, process, port, log)
        yield Server(name, port, process, time.perf_counter() - began)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.perf_counter() + START_LIMIT_S
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return
        time.sleep(0.01)
    tail = "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
    raise RuntimeError(f"{name} did not start:\n{tail}")


def config(upstream: str) -> str:
    """The proxy's configuration: one model behind the provider, as Anthropic's cache would be. JSON is YAML."""
    model = {
        "model_name": MODEL,
        "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{upstream}/v1", "api_key": "sk-bench"},
        "model_info": {"transport": "http", "cache_profile": "anthropic"},
    }
    return orjson.dumps({"model_list": [model]}, option=orjson.OPT_INDENT_2).decode()


class _Starter:
    """Starts servers inside one exit stack and one temporary folder."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratiform-bench-")))
        self.provider = self.start("provider", sys.executable, "-m", "tests.bench.provider")

    def start(self, name: str, *command: str, root: Path = ROOT) -> Server:
        port = free_port()
        return self._stack.enter_context(running(name, [*command, "--port", str(port)], port, self.folder, root))

    def bare(self, name: str = "bare") -> Server:
        return self.start(name, sys.executable, "-m", "tests.bench.bare", "--upstream", self.provider.url)


@contextlib.contextmanager
def proxies(modes: Sequence[str]) -> Iterator[tuple[Server, dict[str, Server]]]:
    """The provider, and by name the bare forwarder and the proxy in each mode."""
    with contextlib.ExitStack() as stack:
        starter = _Starter(stack)
        servers = {"bare": starter.bare()}
        file = starter.folder / "config.yaml"
        file.write_text(config(starter.provider.url))
        script = str(Path(sys.executable).with_name("stratiform"))
        for mode in modes:
            servers[mode] = starter.start(mode, script, "serve", "--config", str(file), "--mode", mode)
        yield starter.provider, servers


def revision(name: str) -> str | None:
    """The commit of that name, where this is a git clone that holds it."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    return None


@contextlib.contextmanager
def versions(revision: str) -> Iterator[tuple[Server, dict[str, Server]]]:
    """The provider, the bare forwarder, and the proxy in mode ``tier``: ``then``, from a git worktree of the revision,
    and ``now``. Both run with the libraries of today."""
    with contextlib.ExitStack() as stack:
        starter = _Starter(stack)
        servers, then = {"bare": starter.bare()}, starter.folder / "then"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(then), revision], check=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(then)], check=True)
        file = starter.folder / "config.yaml"
        file.write_text(config(starter.provider.url))
        program = "import sys; from proxy.cli import main; sys.exit(main())"  # of the working folder
        for name, root in (("then", then), ("now", ROOT)):
            command = (sys.executable, "-c", program, "serve", "--config", str(file), "--mode", "tier")
            servers[name] = starter.start(name, *command, root=root)
        yield starter.provider, servers


@contextlib.contextmanager
def control() -> Iterator[tuple[Server, dict[str, Server]]]:
    """The provider and two bare forwarders: what differs between them is noise."""
    with contextlib.ExitStack() as stack:
        starter = _Starter(stack)
        yield starter.provider, {"bare": starter.bare(), "bare again": starter.bare("bare-again")}

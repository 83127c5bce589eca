"""Pods as processes, and the service in front of them: what a cluster does with ``deploy/kubernetes.yaml``.

A pod is a ``stratiform serve`` of its own. The service gives each new connection to one of the pods that are ready, as
kube-proxy does: it never looks at what passes. Whether a pod is ready is asked as the file's readiness probe says.
"""

import asyncio
import signal
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.fleet import Fleet, fleet

ROOT = Path(__file__).parents[2]
PIECES = [one for one in yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()) if one]
PERIOD_S = 0.1
"""How often a pod is asked whether it is ready. The file says seconds, which would only make the test longer."""


def piece(kind: str, name: str = "stratiform") -> Any:
    """An object of the file."""
    (found,) = [one for one in PIECES if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def container() -> Any:
    """The proxy's container."""
    (found,) = piece("Deployment")["spec"]["template"]["spec"]["containers"]
    return found


class Service:
    """Carries bytes between clients and pods, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self.pods: list[Fleet] = []
        self.ready: list[Fleet] = []
        self.connections: Counter[str] = Counter()
        """How many connections each pod has, by its address."""
        self.opened: Counter[str] = Counter()
        """How many each pod has ever had."""
        self.url = ""
        self._next = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._has_begun = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def start(self) -> None:
        """Returns when it listens."""
        self._thread.start()
        self._has_begun.wait()

    def stop(self) -> None:
        """Break all connections off."""
        self._stop()
        self._thread.join()

    async def _run(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(ended.set)
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        probing = asyncio.create_task(self._probe())
        self._has_begun.set()
        await ended.wait()
        server.close()
        probing.cancel()

    async def _probe(self) -> None:
        path = container()["readinessProbe"]["httpGet"]["path"]
        while True:
            asked = list(self.pods)
            states = await asyncio.gather(*(asyncio.to_thread(_is_ready, pod.url + path) for pod in asked))
            self.ready = [pod for pod, state in zip(asked, states, strict=True) if state and pod in self.pods]
            await asyncio.sleep(PERIOD_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # The event loop itself would let it be collected.
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with closing(writer):
            for pod in self._in_turn():
                host, port = pod.url.removeprefix("http://").split(":")
                try:
                    theirs, to_pod = await asyncio.open_connection(host, int(port))
                except OSError:
                    continue  # the next pod, as kube-proxy does where nobody listens
                self.connections[pod.url] += 1
                self.opened[pod.url] += 1
                with closing(to_pod), suppress(asyncio.CancelledError):
                    await asyncio.gather(_pump(reader, to_pod), _pump(theirs, writer))
                self.connections[pod.url] -= 1
                return

    def _in_turn(self) -> list[Fleet]:
        self._next += 1
        first = self._next % max(len(self.ready), 1)
        return [*self.ready[first:], *self.ready[:first]]


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry bytes until the source ends, and end the sink then."""
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    if source.exception() is not None:
        sink.close()


def _is_ready(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
        return bool(answer.status == 200)
    return False


class Cluster:
    """Pods behind a service. A pod that is made or ended does so as the deployment of the file says."""

    def __init__(self, folder: Path, config: dict[str, object], stack: ExitStack) -> None:
        self.service = Service()
        self._folder, self._config, self._stack, self._made = folder, config, stack, 0

    def add(self) -> Fleet:
        """A new pod, once its process listens."""
        self._made += 1
        pod = self._stack.enter_context(fleet(self._folder / f"pod-{self._made}", self._config))
        self.service.pods.append(pod)
        return pod

    def kill(self, pod: Fleet) -> None:
        """As a node that dies does: the service learns of it by its probes only."""
        pod.process.send_signal(signal.SIGKILL)
        pod.process.wait()

    def end(self, pod: Fleet) -> None:
        """As an update does: no new connections, and then SIGTERM."""
        self.service.pods.remove(pod)
        self.service.ready = [one for one in self.service.ready if one in self.service.pods]
        pod.process.send_signal(signal.SIGTERM)


@contextmanager
def cluster(folder: Path, config: dict[str, object]) -> Iterator[Cluster]:
    """As many pods as the file has."""
    with ExitStack() as stack:
        made = Cluster(folder, config, stack)
        made.service.start()
        stack.callback(made.service.stop)
        for _ in range(piece("Deployment")["spec"]["replicas"]):
            made.add()
        yield made

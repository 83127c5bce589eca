"""The app in a thread of this process, with the embedded provider behind it."""

import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from proxy.app import composition
from proxy.cli.server import address, listen, run_on_loop, server
from proxy.clock import Readings, boot_time
from proxy.core.request.tokens import Encode
from proxy.demo.recorder import RequestRecorder
from proxy.ports import Transport
from proxy.settings import Settings
from proxy.upstream.embedded import EmbeddedUpstream
from proxy.web.app import create_app

_STOP_S = 10


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that serves. ``url`` is where, without ``/v1``; ``recorder`` sees what reaches the provider."""

    url: str
    provider: EmbeddedUpstream
    recorder: RequestRecorder


@contextmanager
def running(settings: Settings, encode: Encode, now: float | None = None, *, tells: bool = False) -> Iterator[Running]:
    """Serve until the block ends, however it ends. ``now``: the proxy's clock begins there, in unix seconds; it is the
    machine's otherwise. ``tells``: answers say what the cache did. Raises ConfigError, and whatever keeps the app from
    starting."""
    provider = EmbeddedUpstream(encode, tells=tells)
    built: Future[uvicorn.Server] = Future()
    with listen(settings.stratiform.host, settings.stratiform.port) as listener:
        proxy = Running(address(listener), provider, RequestRecorder(provider))

        async def serve() -> None:
            assembly = await composition.build(
                settings,
                upstreams={Transport.EMBEDDED: proxy.recorder},
                encode=encode,
                readings=None if now is None else _beginning_at(now),
            )
            limits = settings.stratiform.limits.model_copy(update={"drain_s": _STOP_S})
            app = server(create_app(assembly.parts), limits)
            if assembly.live is not None:
                assembly.live.is_stopping = lambda: app.should_exit
            built.set_result(app)
            await app.serve(sockets=[listener])

        thread = threading.Thread(target=_run, args=(serve(), built), name="stratiform", daemon=True)
        thread.start()
        # From the moment that the app is built, connections to the listening socket are served.
        serving = built.result()
        try:
            yield proxy
        finally:
            serving.should_exit = True
            thread.join(_STOP_S)


def _beginning_at(now: float) -> Readings:
    began = boot_time()
    return Readings(wall=lambda: now + boot_time() - began)


def _run(work: Coroutine[object, object, None], built: Future[uvicorn.Server]) -> None:
    """Do the work. What keeps the app from starting is raised in the thread that waits for it."""
    try:
        run_on_loop(work)
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that started this one
        if not built.done():
            built.set_exception(error)

"""The app in a thread of this process, with the embedded provider behind it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from proxy.app import composition
from proxy.cli.server import address, listen, run_on_loop, server
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
def running(settings: Settings, encode: Encode) -> Iterator[Running]:
    """Serve until the block ends, however it ends. Raises ConfigError, and whatever keeps the app from starting."""
    provider = EmbeddedUpstream(encode)
    with listen(settings.stratiform.host, settings.stratiform.port) as listener:
        proxy = Running(address(listener), provider, RequestRecorder(provider))
        server = _Server(settings, encode, proxy, listener)
        server.start()
        try:
            yield proxy
        finally:
            server.stop()


class _Server:
    def __init__(self, settings: Settings, encode: Encode, proxy: Running, listener: socket.socket) -> None:
        self._settings = settings
        self._encode = encode
        self._proxy = proxy
        self._listener = listener
        self._is_built = threading.Event()
        self._uvicorn: uvicorn.Server | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stratiform", daemon=True)

    def start(self) -> None:
        """Start the thread, and return when the app is built: from then on connections to the listening socket are
        served."""
        self._thread.start()
        self._is_built.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            run_on_loop(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that started this one
            self._failure = error
        finally:
            self._is_built.set()

    async def _serve(self) -> None:
        assembly = await composition.build(
            self._settings, upstreams={Transport.EMBEDDED: self._proxy.recorder}, encode=self._encode
        )
        limits = self._settings.stratiform.limits.model_copy(update={"drain_s": _STOP_S})
        self._uvicorn = server(create_app(assembly.parts), limits)
        self._is_built.set()
        await self._uvicorn.serve(sockets=[self._listener])

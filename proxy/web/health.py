"""``/healthz`` (the process lives), ``/readyz`` (it may be sent traffic) and ``/metrics``."""

from collections.abc import Callable
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy.errors import NotReady
from proxy.metrics import CONTENT_TYPE
from proxy.web.errors import error_response


class Registry(Protocol):
    """What can be scraped (``proxy.metrics.Metrics``)."""

    def render(self) -> bytes:
        """The metrics as text."""
        ...


class Health:
    """Answers probes. ``obstacle`` says what keeps the proxy from serving; empty: nothing."""

    def __init__(self, registry: Registry, obstacle: Callable[[], str]) -> None:
        self._registry = registry
        self._obstacle = obstacle

    async def live(self, request: Request) -> Response:
        """The event loop answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Requests can be served."""
        obstacle = self._obstacle()
        return error_response(NotReady(obstacle)) if obstacle else JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """What Prometheus scrapes."""
        return Response(self._registry.render(), media_type=CONTENT_TYPE)

"""``/healthz`` (the process is alive), ``/readyz`` (it can take traffic) and ``/metrics``.

A failed readiness probe takes a proxy out of service, and all replicas share their store. So a fault is reported in the
answer's body, and the status is 503 only if requests are refused because of the fault.
"""

import hmac
import json
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy.access.virtual_keys import digest_of
from proxy.core.secrets.credentials import sent_keys
from proxy.core.value import dataclass
from proxy.errors import NotReady, Unauthorized, error_body
from proxy.ports import Fault
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics
from proxy.web.errors import error_response


@dataclass(frozen=True, slots=True)
class Health:
    """Answers probes. ``obstacle`` returns what keeps the proxy from serving at all (empty: nothing). ``faults``
    returns the parts that do not work as they should. ``metrics_key`` is the key that ``/metrics`` requires (empty:
    none)."""

    registry: Metrics
    obstacle: Callable[[], str]
    faults: Callable[[], Sequence[Fault]] = tuple
    metrics_key: str = ""

    async def live(self, request: Request) -> Response:
        """Answer that the process is alive. The answer shows that the event loop runs."""
        return JSONResponse({"status": "ok"})

    async def lives(self, request: Request) -> Response:
        """The same in LiteLLM's words."""
        return JSONResponse("I'm alive!")

    async def ready(self, request: Request) -> Response:
        """Whether requests can be served, and the faults that do not prevent that."""
        obstacle = self.obstacle()
        faults = [*([Fault("start", obstacle, refuses=True)] if obstacle else ()), *self.faults()]
        told = {"faults": [{"part": fault.part, "message": fault.message} for fault in faults]} if faults else {}
        refusing = next((fault for fault in faults if fault.refuses), None)
        if refusing is None:
            if request.scope.get("path") != "/health/readiness":
                return JSONResponse({"status": "ready", **told})
            # These are LiteLLM's words, which its tools look for.
            is_away = any(fault.part == "store" for fault in faults)
            return JSONResponse({"status": "healthy", "db": "disconnected" if is_away else "connected", **told})
        error = NotReady(refusing.message)
        return JSONResponse({"status": "unavailable", **told, **json.loads(error_body(error))}, error.status)

    async def metrics(self, request: Request) -> Response:
        """The metrics for Prometheus."""
        right, keys = digest_of(self.metrics_key), sent_keys(request.headers.items())
        if self.metrics_key and not any([hmac.compare_digest(digest_of(key), right) for key in keys]):
            return error_response(Unauthorized("/metrics asks for the key of stratiform.metrics.key"))
        return Response(await self.registry.rendered(), media_type=CONTENT_TYPE)

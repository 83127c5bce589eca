"""The application: the routes and the lifespan. Nothing here makes decisions."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp

from proxy.core.value import dataclass
from proxy.deployments import ModelTable
from proxy.engine import Engine
from proxy.ports import Deployment, Fault
from proxy.telemetry.metrics import Metrics
from proxy.web.admin import AdminEndpoint
from proxy.web.allowed_addresses import AllowedAddresses, Networks
from proxy.web.azure import AzureEndpoint
from proxy.web.chat import ChatEndpoint
from proxy.web.errors import on_http_exception, on_surprise
from proxy.web.health import Health
from proxy.web.litellm import LitellmAdmin, LitellmModels, front
from proxy.web.models import ModelsEndpoint
from proxy.web.passthrough import PassthroughEndpoint


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an app, built by the caller. The functions of ``on_close`` are called in reverse order after the
    engine has ended."""

    engine: Engine
    models: ModelTable
    metrics: Metrics
    obstacle: Callable[[], str] = str
    faults: Callable[[], Sequence[Fault]] = tuple
    on_close: Sequence[Callable[[], Awaitable[None]]] = ()
    admin: AdminEndpoint | None = None
    is_failing: Callable[[Deployment], bool] = lambda deployment: False
    allowed_ips: Networks = ()
    ui: ASGIApp | None = None
    metrics_key: str = ""


def create_app(parts: Parts) -> Starlette:
    """The ASGI application that serves these parts."""
    chat = ChatEndpoint(parts.engine)
    models = ModelsEndpoint(parts.engine, parts.models)
    passthrough = PassthroughEndpoint(parts.engine)
    health = Health(parts.metrics, parts.obstacle, parts.faults, parts.metrics_key)
    known = LitellmModels(parts.engine, models, parts.is_failing)
    app = Starlette(
        routes=[
            Route("/", front, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/chat/completions/", chat, methods=["POST"]),
            Route("/v1/stratiform/breakdown", ChatEndpoint(parts.engine, is_breakdown=True), methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{name:path}", models, methods=["GET"]),
            Route("/v1/model/info", known, methods=["GET"]),
            Route("/v1/{path:path}", passthrough),
            Route("/openai/{path:path}", AzureEndpoint(parts.engine, chat, models, passthrough)),
            Route("/chat/completions", chat, methods=["POST"]),
            Route("/chat/completions/", chat, methods=["POST"]),
            Route("/models", models, methods=["GET"]),
            Route("/models/{name:path}", models, methods=["GET"]),
            Route("/healthz", health.live, methods=["GET"]),
            Route("/readyz", health.ready, methods=["GET"]),
            Route("/health/liveliness", health.lives, methods=["GET"]),
            Route("/health/liveness", health.lives, methods=["GET"]),
            Route("/health/readiness", health.ready, methods=["GET"]),
            Route("/health", known, methods=["GET"]),
            Route("/model/info", known, methods=["GET"]),
            Route("/metrics", health.metrics, methods=["GET"]),
            *_administration(parts),
            *([Route("/ui", parts.ui), Route("/ui/{path:path}", parts.ui)] if parts.ui is not None else []),
        ],
        exception_handlers={HTTPException: on_http_exception, Exception: on_surprise},
        lifespan=_lifespan(parts),
        middleware=[Middleware(AllowedAddresses, parts.allowed_ips)] if parts.allowed_ips else [],
    )
    # The provider decides what a path means, including its last slash. Only the chat path is the proxy's own.
    app.router.redirect_slashes = False
    return app


def _administration(parts: Parts) -> list[Route]:
    """The routes of the admin API, and those that LiteLLM's tools use."""
    if parts.admin is None:
        return []
    paths, forms = parts.admin.forms.paths, LitellmAdmin(parts.admin, parts.engine)
    return [Route("/admin/{path:path}", parts.admin), *(Route(f"/{path}", forms) for path in paths)]


def _lifespan(parts: Parts) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for close in parts.on_close:
                stack.push_async_callback(close)
            stack.push_async_callback(parts.engine.aclose)
            yield

    return lifespan

"""A proxy on a real socket, between the real SDK and a provider on a real socket."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import ASGIApp

from proxy.app.factories import load_context_texts
from proxy.app.web import Parts, create_app
from proxy.context import SymbolIndexer
from proxy.context.session import AssemblyOptions
from proxy.engine import BodyLimits, Engine, Ports, RequestRules
from proxy.engine.ports import Admission, Planner
from proxy.engine.telemetry.metrics import Metrics
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.clock import SystemClock
from proxy.kit.tasks import Aside
from proxy.models import Transport
from proxy.planner import TierPlanner
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import ContextAssembler
from proxy.services.planner_port import Planning, StructuredChats
from proxy.upstream.http import HttpUpstream
from tests.doubles import Ledger, ModelList, NoMetrics, OpenDoor, make_deployment, serving
from tests.redis_server import BRISK, RedisServer, redis_server


@dataclass
class Proxy:
    """A running proxy: where it is, what it settled, and a client for it."""

    url: str
    ledger: Ledger
    client: openai.OpenAI

    def other_client(self, **options: Any) -> openai.OpenAI:
        """A further client; the caller closes it."""
        return openai.OpenAI(**{"base_url": f"{self.url}/v1", "api_key": "sk-client", "max_retries": 0, **options})


Start = Callable[..., Proxy]


def real_planner() -> Planner:
    """The planner as ``stratiform serve`` builds it, but for the token count."""
    return planner_of("economic")


def planner_of(policy: str, indexer: SymbolIndexer | None = None) -> Planner:
    """The same with this policy, and with this index of symbols."""
    aside = Aside()
    assembler = ContextAssembler(load_context_texts(), bytes_over_four, indexer, AssemblyOptions(policy))
    pure = TierPlanner(bytes_over_four, recognisers(build_plugin_manager()), policy)
    return Planning(pure, None, aside, StructuredChats(assembler, aside, Metrics()))


@pytest.fixture(scope="session", autouse=True)
def _the_sdk_retries_at_once() -> Iterator[None]:
    """The SDK pauses for half a second in front of a retry, and then for longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
        yield


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a proxy in front of a provider: ``start(app)``. All of it ends with the test."""
    with ExitStack() as stack:

        def begin(
            provider: ASGIApp,
            *,
            planner: Planner | None = None,
            admission: Admission | None = None,
            limits: BodyLimits | None = None,
            **fields: Any,
        ) -> Proxy:
            upstream = stack.enter_context(serving(provider))
            deployment = make_deployment(**{"base_url": f"{upstream}/v1", "profile": ANTHROPIC, **fields})
            models, ledger = ModelList({deployment.name: deployment}), Ledger()
            engine = Engine(
                Ports(
                    models=models,
                    upstreams={Transport.HTTP: HttpUpstream()},
                    planner=planner or real_planner(),
                    admission=admission or OpenDoor(),
                    meter=ledger,
                    clock=SystemClock(),
                ),
                RequestRules(limits=limits or BodyLimits()),
            )
            url = stack.enter_context(serving(create_app(Parts(engine, models, NoMetrics()))))
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-client", max_retries=0)
            stack.callback(client.close)
            return Proxy(url, ledger, client)

        yield begin


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of this test."""
    with redis_server(tmp_path / "redis", *BRISK) as server:
        yield server

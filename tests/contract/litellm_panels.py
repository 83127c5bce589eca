"""Requests with live panels as the proxy sends them, and what litellm makes of them for a provider."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from proxy.app.factories import load_context_texts
from proxy.app.inside import Callback, Host, Work
from proxy.context.history.compaction import Compaction, digest_of_known
from proxy.context.session import AssembledChat, AssemblyOptions
from proxy.engine.exchange import Principal
from proxy.engine.ports import PlanRequest
from proxy.engine.telemetry.metrics import Metrics
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.modes import Mode
from proxy.kit.tasks import Aside
from proxy.models import Deployment, Transport
from proxy.planner import TierPlanner
from proxy.protocol.providers import NONE, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import ContextAssembler
from proxy.services.planner_port import Planning, StructuredChats
from proxy.upstream.litellm_library import Library, call_arguments
from tests.doubles import make_deployment

Body = dict[str, Any]
START_S = 1_771_509_600.0
"""2026-02-19T14:00:00Z."""
STEP_S = 30.0
_SCOPE = "scope"
_CREDENTIALS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region_name": "us-east-1"}


@dataclass
class Sender:
    """A proxy's planner in front of an upstream with these cache rules. Each request comes half a minute after the one
    before."""

    profile: CacheProfile
    policy: str = "economic"
    options: Body = field(default_factory=dict)
    now_s: float = START_S - STEP_S

    def __post_init__(self) -> None:
        aside = Aside()
        options = AssemblyOptions(self.policy, **self.options)
        self._assembler = ContextAssembler(load_context_texts(), bytes_over_four, None, options)
        pure = TierPlanner(bytes_over_four, recognisers(build_plugin_manager()), self.policy)
        self._planning = Planning(pure, None, aside, StructuredChats(self._assembler, aside, Metrics()))
        self._last: AssembledChat | None = None

    def compact(self, covered: int, summary: str) -> None:
        """A summary takes the place of so many messages of the last request's conversation."""
        assert self._last is not None
        assert self._last.dialogue.uncompacted is not None
        session = self._assembler.sessions.session(_SCOPE, "s")
        digest = digest_of_known(self._last.dialogue.uncompacted, covered)
        session.state = replace(session.state, compaction=Compaction(covered, covered, digest, summary))

    def send(self, section: Body, messages: Sequence[Body], mode: Mode = Mode.TIER, **more: Any) -> tuple[Body, Body]:
        """What is sent, and what is sent where that is refused."""
        self.now_s += STEP_S
        raw = {"model": "m", "messages": list(messages), "stratiform": {"session": "s", **section}, **more}
        return asyncio.run(self._sent(json.dumps(raw).encode(), mode))

    async def _sent(self, raw: bytes, mode: Mode) -> tuple[Body, Body]:
        planning, principal = self._planning, Principal(_SCOPE)
        chat = await planning.assemble(planning.parse(raw), principal, self.now_s)
        chat.kept()
        self._last = chat
        deployment = make_deployment(profile=self.profile)
        request = PlanRequest(planning.parse(chat.body), deployment, principal, mode, self.now_s, chat)
        plan = await planning.plan(request)
        planning.on_accepted(plan, self.now_s + 1)
        planning.on_completed(plan, None, self.now_s + 2)
        return json.loads(plan.body), json.loads(plan.original)


def wire(model: str, body: Body) -> Body:
    """The request as litellm writes it for the model's provider. Nothing is sent."""
    library = Library()
    litellm = asyncio.run(library.module())
    return _written(litellm, _arguments(library, model, body))


def wires_inside(model: str, bodies: Iterable[Body], profile: str = "") -> list[Body]:
    """The requests of a conversation as a LiteLLM writes them in which the callback has laid them out. The provider
    answers each, and says nothing of its cache."""
    library = Library()
    litellm = asyncio.run(library.module())
    callback, going = Callback(Host(litellm)), []
    info = {"id": model, **({"cache_profile": profile} if profile else {})}

    async def attempt(number: int, body: Body) -> None:
        arguments = {**_arguments(library, model, body), "litellm_call_id": f"{number}", "model_info": info}
        changed = await callback.before_attempt(arguments, "acompletion") or arguments
        going.append({name: value for name, value in changed.items() if name not in ("litellm_call_id", "model_info")})
        await callback.after(Work.succeeded, changed, SimpleNamespace(usage=None))

    async def converse() -> None:
        for number, body in enumerate(bodies):
            await asyncio.create_task(attempt(number, body))

    asyncio.run(converse())
    return [_written(litellm, one) for one in going]


def _arguments(library: Library, model: str, body: Body) -> Body:
    params = _CREDENTIALS if model.startswith("bedrock/") else {}
    deployment = Deployment(model, model, Transport.LITELLM, NONE, params=params)
    return call_arguments(deployment, json.loads(json.dumps(body)), library.route(deployment))


def _written(litellm: Any, arguments: Body) -> Body:
    found = litellm.utils.return_raw_request(litellm.utils.CallTypes.completion, arguments)
    assert not found.get("error"), found["error"]
    made = found["raw_request_body"]
    assert isinstance(made, dict)
    return made

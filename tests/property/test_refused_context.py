"""A request with structured context that is refused leaves no trace in its session, and a breakdown leaves none
either: what the model gets next is what it would have got without them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.app.factories import load_context_texts
from proxy.context import ContextFile, SymbolMap
from proxy.context.session import AssemblyOptions
from proxy.engine.exchange import Principal
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import InvalidRequest, MissingContent, PayloadTooLarge
from proxy.kit.modes import Mode
from proxy.kit.tasks import Aside
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import ContextAssembler
from proxy.services.planner_port import StructuredChats
from tests.doubles import make_deployment
from tests.examples import examples

Body = dict[str, Any]
FOLDERS = ("src/a/package/of/long/name", "src/another/package/of/long/name")
TOOL = {"type": "function", "function": {"name": "dynamic_panel"}}
MOST_CHARS = 10_000
SPOILT: tuple[Body, ...] = (
    {"messages_meta": [{"index": 99, "status": "deleted"}]},
    {"panels": [{"id": "footer", "content": "x"}]},
    {"review": {"digest": "0" * 64}},
    {"files": [{"path": "large", "content": "x" * MOST_CHARS + "y", "selected": True}]},
    {"unknown": 1},
)


class Index:
    """An index whose blocks have short names, like those of the real one."""

    name, priority = "index", 1

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        return SymbolMap({file.path: f"{file.path}: symbols" for file in files}, f"legend {dict(aliases)}")


@dataclass(frozen=True)
class Step:
    """A request of the client: ``refused``, ``barred`` (refused for its price or its model, after its context was
    assembled), a ``breakdown``, or none of these."""

    section: Body
    is_refused: bool = False
    is_breakdown: bool = False
    is_barred: bool = False
    tools: tuple[Body, ...] = ()


@st.composite
def sections(draw: st.DrawFn) -> Body:
    """A valid section of the one session."""
    files = [
        {"path": f"{folder}/{number}.py", "content": f"{number} = 1\n", "selected": draw(st.booleans())}
        for folder in draw(st.lists(st.sampled_from(FOLDERS), unique=True))
        for number in range(8)
    ]
    panels = [{"id": each, "content": draw(st.sampled_from("xy"))} for each in draw(st.sets(st.sampled_from("pq")))]
    return {
        "session": "s",
        "files": files,
        **draw(st.sampled_from([{}, {"review": None}, {"review": {"log": "one"}}, {"review": {"log": "two"}}])),
        **draw(st.sampled_from([{}, {"panels": panels}])),
        **draw(st.sampled_from([{}, {"broken": ["L1", "L3"]}])),
    }


@st.composite
def steps(draw: st.DrawFn) -> Step:
    section = draw(sections())
    match draw(st.sampled_from(["answered", "answered", "barred", "breakdown", "refused", "refused", "tool"])):
        case "refused":
            return Step({**section, **draw(st.sampled_from(SPOILT))}, is_refused=True)
        case "tool":
            return Step({**section, "panels": [{"id": "p", "content": "x"}]}, is_refused=True, tools=(TOOL,))
        case kind:
            return Step(section, is_breakdown=kind == "breakdown", is_barred=kind == "barred")


class Worker:
    """A process that assembles the requests of a growing conversation."""

    def __init__(self, policy: str) -> None:
        options = AssemblyOptions(policy, most_chars=MOST_CHARS)
        assembler = ContextAssembler(load_context_texts(), bytes_over_four, Index(), options)
        self.chats = StructuredChats(assembler, Aside(), Metrics())

    async def ask(self, step: Step, turn: int) -> bytes:
        """What the model would get. It answers, and its answer counts, unless only the breakdown is asked for."""
        talk = [{"role": role, "content": f"{at}"} for at in range(turn) for role in ("user", "assistant")]
        body = {"model": "m", "messages": [*talk, {"role": "user", "content": "now"}], "stratiform": step.section}
        raw = orjson.dumps(body | ({"tools": step.tools} if step.tools else {}))
        chat = await self.chats.assemble(parse_body(raw), Principal(scope="key"), 1e9 + turn)
        if step.is_breakdown:
            await self.chats.breakdown(chat, make_deployment(), Mode.TIER)
            return b""
        if not step.is_barred:
            chat.kept()
        arranged = await self.chats.arrange(chat, make_deployment(), Mode.TIER)
        if not step.is_barred:
            arranged.counted(None)
        return arranged.body


async def _both(policy: str, session: Sequence[Step]) -> None:
    plain, other = Worker(policy), Worker(policy)
    for turn, step in enumerate(session):
        try:
            sent = await other.ask(step, turn)
        except (InvalidRequest, MissingContent, PayloadTooLarge):
            assert step.is_refused
            continue
        assert not step.is_refused
        if not (step.is_breakdown or step.is_barred):
            assert sent == await plain.ask(step, turn)


@given(st.sampled_from(["economic", "classic"]), st.lists(steps(), min_size=6, max_size=8))
@settings(max_examples=examples(200), deadline=None)
def test_a_refused_request_and_a_breakdown_leave_no_trace(policy: str, session: list[Step]) -> None:
    asyncio.run(_both(policy, session))

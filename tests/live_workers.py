"""Workers that assemble requests with live panels, and a store between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.app.factories import load_context_texts
from proxy.context.panels.board import Board
from proxy.engine.exchange import Principal
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.modes import Mode
from proxy.kit.tasks import Aside
from proxy.models import Deployment, Transport
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services.context_assembler import Arrangement, ContextAssembler
from proxy.services.context_sessions import SessionStore
from proxy.services.planner_port import StructuredChats
from proxy.storage import Store
from tests.waiting import until_async

NOW = 1_700_000_000.0
DEPLOYMENT = Deployment(name="m", model="m", transport=Transport.HTTP, profile=PROFILES["anthropic"])
Panels = Mapping[str, str]


@dataclass
class Worker:
    """One process. Without a store it uses its own memory. ``now`` is its clock. How long a request waits for the store
    depends on the number of words of the system message."""

    store: Store | None = None
    is_shared: bool = True
    keeps_texts: bool = True
    now: float = NOW
    words: int = 2
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.assembler = ContextAssembler(load_context_texts(), bytes_over_four)
        self.sessions: SessionStore | None = None
        if self.store is not None:
            self.sessions = SessionStore(
                self.assembler.sessions,
                self.store,
                lambda: self.now,
                self.failures.append,
                is_shared=self.is_shared,
                keeps_texts=self.keeps_texts,
            )
        self.chats = StructuredChats(self.assembler, Aside(), Metrics(), sessions=self.sessions)

    async def ask(self, turn: int, panels: Panels | None, scope: str = "key", **section: Any) -> bytes:
        """The body that is sent upstream for this turn of a conversation. The request is answered and counted."""
        arranged = await self.sent(turn, panels, scope, **section)
        arranged.counted(Usage(1_000, 10))
        return arranged.body

    async def sent(self, turn: int, panels: Panels | None, scope: str = "key", **section: Any) -> Arrangement:
        """The request that is sent upstream, before it is answered."""
        messages = [{"role": "system", "content": "brief " * self.words}]
        for number in range(turn):
            messages += [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
        messages.append({"role": "user", "content": f"q{turn}"})
        form = {"session": "main", **section}
        if panels is not None:
            form["panels"] = [{"id": name, "kind": "own", "header": name, "content": panels[name]} for name in panels]
        sent = {"model": "m", "messages": messages, "stratiform": form}
        chat = await self.chats.assemble(parse_body(orjson.dumps(sent)), Principal(scope=scope), self.now)
        chat.kept()
        return await self.chats.arrange(chat, DEPLOYMENT, Mode.TIER)

    def board(self, scope: str = "key") -> Board:
        """The remembered state of the conversation's panels."""
        return self.assembler.sessions.session(scope, "main").state.board

    async def aclose(self) -> None:
        """End, and write everything that is not written yet."""
        await self.chats.aclose()


SCENE: list[Panels] = [
    {"todo": "1", "tree": "a", "notes": "n"},
    {"todo": "1", "tree": "b", "notes": "n"},
    {"todo": "2", "tree": "b", "notes": "n"},
    {"todo": "2", "tree": "b"},
    {"todo": "2", "tree": "c", "log": "x"},
    {"todo": "2", "tree": "c", "log": "y", "notes": "n"},
    {"todo": "2", "tree": "d", "log": "y", "notes": "n"},
]
"""The panels of a conversation's turns: some change, one disappears and comes back."""


async def told(worker: Worker, turns: range = range(len(SCENE))) -> list[bytes]:
    """The bodies that are sent upstream for these turns, with twenty seconds between them."""
    found = []
    for turn in turns:
        worker.now = NOW + 20.0 * turn
        found.append(await worker.ask(turn, SCENE[turn]))
    return found


async def alone(words: int = 2) -> list[bytes]:
    """The bodies that a single process sends if it serves the whole conversation."""
    return await told(Worker(words=words))


async def board_alone() -> Board:
    """The state that this single process then remembers."""
    worker = Worker()
    await told(worker)
    return worker.board()


async def settled(worker: Worker) -> None:
    """Wait until everything that the worker keeps is written."""
    assert worker.sessions is not None
    blobs = worker.sessions._blobs
    await until_async(lambda: not blobs._writing)

"""What a worker leaves in the store for other workers, while its exchanges still run."""

import asyncio
import json
from typing import Any

from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.request.tokens import bytes_over_four
from proxy.planning.layout_state import SharedLayoutStore
from proxy.planning.planner_port import Planning
from proxy.ports import PlanRequest, Principal
from proxy.storage.sqlite import MemoryStore
from tests.doubles import make_deployment
from tests.fidelity.chats import File
from tests.talk import RECOGNISERS, TINY, assistant, chat, lines, sent, shown, system, user

FILES = [File("a.py", lines(60, "a")), File("b.py", lines(60, "b"))]


def bare(messages: list[Any]) -> list[tuple[str, str]]:
    """The texts of messages without markers."""
    texts = [
        m["content"] if isinstance(m["content"], str) else "".join(part["text"] for part in m["content"])
        for m in messages
    ]
    return [(m["role"], text) for m, text in zip(messages, texts, strict=True)]


def worker(store: MemoryStore) -> Planning:
    """One of several workers that share a store."""
    return Planning(
        TierPlanner(bytes_over_four, RECOGNISERS), SharedLayoutStore(store, lambda what: None, is_shared=True)
    )


async def planned(planning: Planning, body: dict[str, Any], now: float) -> Plan:
    parsed = planning.parse(json.dumps(body).encode())
    deployment = make_deployment(name="m", profile=TINY)
    return await planning.plan(PlanRequest(parsed, deployment, Principal(scope="red"), Mode.TIER, now))


def test_another_worker_knows_a_layout_before_its_answer_has_ended() -> None:
    """A client may leave an answer when the thinking in it is signed, and a worker may die. The next request binds what
    was sent nevertheless."""
    head = system(lines(40, "rule"))
    first = [head, *shown(*FILES), user("q")]
    answer = assistant("Hm.", thinking_blocks=[{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}])

    async def main() -> None:
        store = MemoryStore()
        one, two = worker(store), worker(store)
        edited = File("b.py", lines(60, "b") + "edit\n")
        plan = await planned(one, chat(head, *shown(edited, FILES[0]), user("before")), 100.0)
        one.on_accepted(plan, 101.0)
        one.on_completed(plan, None, 102.0)
        running = await planned(one, chat(*first), 110.0)
        front = bare(sent(running)["messages"])
        assert front != bare(first)
        one.on_accepted(running, 111.0)
        await asyncio.sleep(0.01)
        later = await planned(two, chat(*first, answer, user("go on")), 112.0)
        assert bare(sent(later)["messages"])[: len(front)] == front
        await one.aclose()
        await two.aclose()

    asyncio.run(main())

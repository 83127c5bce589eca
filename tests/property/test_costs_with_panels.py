"""A conversation with live panels and files costs no more in mode ``tier`` than in mode ``mark``, and the learning."""

import asyncio
from random import Random
from typing import Any

import orjson
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from proxy.engine.exchange import Principal
from proxy.engine.ports import PlanRequest
from proxy.kit.modes import Mode
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request import parse_body
from tests.doubles import make_deployment
from tests.e2e.conftest import planner_of
from tests.economics.measure import encode
from tests.examples import examples
from tests.session_costs import ALLOWANCE, TOLERANCE, Provider

Body = dict[str, Any]


def _code(chance: Random, lines: int) -> str:
    each = (f"def f{chance.randrange(10**6)}(x):\n    return x + {chance.randrange(999)}\n" for _ in range(lines))
    return "".join(each)


def session(seed: int) -> list[tuple[Body, float]]:
    """The requests, each with its time. Panels change all the time, and files seldom or never."""
    chance = Random(seed)
    files = {f"src/m{number}.py": _code(chance, chance.choice([10, 40, 150])) for number in range(chance.randint(1, 6))}
    panels = {f"p{number}": _code(chance, chance.choice([2, 20, 100])) for number in range(chance.randint(1, 4))}
    edits, now = chance.choice([0.0, 0.0, 0.2]), 1.7e9
    talk: list[Body] = [{"role": "system", "content": "You help. " * 300}]
    found = []
    for turn in range(chance.choice([8, 14])):
        now += chance.choice([5, 20, 60, 60, 200])
        for _ in range(chance.choice([0, 1, 1, 2])):
            panels[chance.choice(sorted(panels))] = _code(chance, chance.choice([2, 20]))
        if chance.random() < edits:
            files[chance.choice(sorted(files))] += _code(chance, 3)
        section = {
            "session": "s",
            "files": [{"path": path, "content": text, "selected": True} for path, text in files.items()],
            "panels": [{"id": name, "content": text} for name, text in panels.items()],
        }
        talk = [*talk, {"role": "user", "content": f"question {turn} " * chance.choice([3, 100])}]
        found.append(({"model": "m", "messages": talk, "stratiform": section}, now))
        talk = [*talk, {"role": "assistant", "content": f"answer {turn} " * chance.choice([10, 300])}]
    return found


async def cost(requests: list[tuple[Body, float]], mode: Mode) -> tuple[float, int]:
    """The cost of the session, in input tokens, and the tokens of its largest request."""
    planner, provider, most = planner_of("economic"), Provider(ANTHROPIC, hoists=False), 0
    deployment, principal = make_deployment(profile=ANTHROPIC), Principal("key", session_hint="s")
    for body, now in requests:
        chat = await planner.assemble(parse_body(orjson.dumps(body)), principal, now)
        chat.kept()
        plan = await planner.plan(PlanRequest(parse_body(chat.body), deployment, principal, mode, now, chat))
        usage = provider.send(plan.body, now)
        planner.on_accepted(plan, now)
        planner.on_completed(plan, usage, now)
        most = max(most, encode()(plan.body.decode()))
    return provider.cost, most


@settings(max_examples=examples(30, least=3), phases=[Phase.explicit, Phase.generate], deadline=None)
@given(st.integers(0, 10**9))
@example(11)
def test_files_beside_panels_that_move_cost_no_more_than_in_their_own_order(seed: int) -> None:
    requests = session(seed)
    (ours, most), (marked, _) = (asyncio.run(cost(requests, mode)) for mode in (Mode.TIER, Mode.MARK))
    assert ours <= TOLERANCE * marked + 2 * ALLOWANCE * most

"""What composing costs: ``python -m tests.bench.composing``.

All prompts are composed, each of them is rendered, and all conditions hold. Times are those of the processor, the
least and the median of many repetitions: "assemble" without rendering, "compose" with it, as for a context that is
new, and "known" for one that was there before.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.tasks import Aside
from proxy.prompts import Condition, Json, Position, Prompt, PromptContext, PromptTerms, Variable, merged
from proxy.prompts.assembler import assemble
from proxy.services.prompting import PromptComposer, PromptingRules
from proxy.services.prompting.sources import Snapshot

_REPEATS, _PROMPTS, _COUNT = 200, 200, 50
_CONTEXT = merged(
    {
        "agent": {"debug": True, "level": 4, "tags": ["a", "b"], "name": "ann"},
        "custom": {"env": "prod-1"},
        "mission": {"goal": "the release"},
    }
)
_CONDITIONS: tuple[tuple[str, str, Json], ...] = (
    ("agent.debug", "eq", True), ("agent.level", "gte", 3), ("agent.tags", "contains", "b"),
    ("custom.env", "in", ["dev", "prod-1"]), ("custom.env", "matches", "^(prod|staging)-?[0-9]*$"),
    ("custom.none", "not_exists", None), ("mission.goal", "exists", None),
)  # fmt: skip
_TEXT = (
    "# Rule\n\nYou work on {{ mission.goal }} as {{ who }}.{% if agent.debug %} Say what you do.{% endif %}\n"
    + "Plain words of a rule that does not change. " * 20
)


def registry() -> list[Prompt]:
    """So many prompts over all positions, and the conditions shared out among them."""
    positions = tuple(Position)
    return [
        Prompt(
            f"rules.{number}",
            positions[number % len(positions)],
            f"{number}: {_TEXT}",
            number % 5,
            tuple(Condition(*_CONDITIONS[each % 7]) for each in range(number, _COUNT, _PROMPTS)),
            (Variable("who", source="agent.name", default="you"),),
        )
        for number in range(_PROMPTS)
    ]


def _times_ms(work: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(_REPEATS):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1e3)
    return times


def _unrendered(prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
    return prompt.text


def main() -> int:
    """Measure and print."""
    prompts = registry()
    terms = PromptTerms(use=("rules.*",), tools=True, plugins=True, agents=True, context=_CONTEXT)
    snapshot = Snapshot.of(prompts, {})
    found = assemble(prompts, terms, _CONTEXT, snapshot.templates.render)
    print(f"{len(found.parts)} prompts, {_COUNT} conditions, {len(found.system)} characters of system text")
    for name, render in (("assemble", _unrendered), ("compose", snapshot.templates.render)):
        _show(name, _times_ms(lambda render=render: assemble(prompts, terms, _CONTEXT, render)))  # type: ignore[misc]
    composer = PromptComposer(PromptingRules(), lambda: snapshot, Metrics(), Aside())
    _show("known", asyncio.run(_known_ms(composer, terms, snapshot)))
    return 0


async def _known_ms(composer: PromptComposer, terms: PromptTerms, snapshot: Snapshot) -> list[float]:
    await composer.composition(terms, snapshot)
    times = []
    for _ in range(_REPEATS):
        began = time.process_time()
        await composer.composition(terms, snapshot)
        times.append((time.process_time() - began) * 1e3)
    return times


def _show(name: str, times_ms: list[float]) -> None:
    print(f"{name:8}  least {min(times_ms):6.3f} ms   median {statistics.median(times_ms):6.3f} ms")


if __name__ == "__main__":
    sys.exit(main())

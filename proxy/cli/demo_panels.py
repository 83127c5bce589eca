"""``stratiform demo panels``: coding sessions with live panels, as context messages and as structured context.

All forms of a session go through the real proxy over HTTP to the embedded provider, each as a client of its own.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter

import aiohttp
import openai
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proxy.cli.demo_scene import Scene
from proxy.cli.in_thread import Running, running
from proxy.cli.output import Output, fail, print_json
from proxy.demo.client import SampleClient
from proxy.demo.panels.figures import SCENARIOS, Comparison, FormTally, Goal, comparison
from proxy.demo.sample import MODEL

NAME = "panels"
WORDS = "panels: coding sessions with live panels, as context messages and as structured context"
_REFRESH_HZ = 4


def run(scene: Scene, *, as_json: bool) -> int:
    """Send every session in every form, and show what it came to: 0, or 1 where content was lost or a goal missed."""
    began = perf_counter()
    compared = [comparison(scenario, scene.setting, scene.price) for scenario in SCENARIOS]
    try:
        with running(scene.settings, scene.encode) as proxy:
            asyncio.run(_watched(proxy, compared, quiet=as_json))
    except (openai.OpenAIError, aiohttp.ClientError, ValueError) as error:
        fail(f"the demo failed: {type(error).__name__}: {error}")
    seconds = perf_counter() - began
    if as_json:
        print_json(_report(compared, seconds))
    else:
        Output().print(Group(*(Text(line) for line in _summary(compared, seconds))))
    wrong = [*(text for one in compared for text in one.losses), *_missed(compared)]
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    return 1 if wrong else 0


async def _watched(proxy: Running, compared: Sequence[Comparison], *, quiet: bool) -> None:
    if quiet:
        await send_all(proxy, compared)
        return
    output = Output()
    output.print(f"The proxy is at {proxy.url}/v1; every form of a session is a client of its own.", style="dim")
    with Live(console=output, refresh_per_second=_REFRESH_HZ, get_renderable=lambda: _tables(compared)):
        await send_all(proxy, compared)


async def send_all(proxy: Running, compared: Sequence[Comparison]) -> None:
    """Send every form of every session at the same time, each in its own order."""
    await asyncio.gather(*(_send(proxy, tally) for one in compared for tally in one.tallies.values()))


async def _send(proxy: Running, tally: FormTally) -> None:
    client = SampleClient(f"{proxy.url}/v1", tally.key, tally.form.headers)
    try:
        for sending in tally.sendings:
            usage = await client.send(sending.request)
            tally.add(sending, usage, proxy.recorder.bodies[tally.key].pop())
    finally:
        await client.aclose()


def _tables(compared: Sequence[Comparison]) -> Group:
    return Group(*(_table(one) for one in compared))


def _table(one: Comparison) -> Table:
    title = f"{one.scenario.name}: {one.scenario.words}"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    table.add_column(" ")
    for name in ("sent", "tokens", "cached", "USD", "of no caching"):
        table.add_column(name, justify="right", no_wrap=True)
    for tally in one.tallies.values():
        table.add_row(*_row(tally))
    return table


def _row(tally: FormTally) -> Iterator[str]:
    yield tally.form.value
    yield f"{tally.requests}/{len(tally.sendings)}"
    yield f"{tally.total.prompt:,}"
    yield f"{tally.total.hit_rate:.0%}"
    yield f"{tally.usd:.4f}"
    yield "" if tally.share is None else f"{tally.share:.3f}"


def _summary(compared: Sequence[Comparison], seconds: float) -> Iterator[str]:
    requests = sum(tally.requests for one in compared for tally in one.tallies.values())
    lost = sum(len(one.losses) for one in compared)
    checked = "each checked against what its client said" if not lost else f"{lost} faults"
    yield ""
    yield f"{requests} requests over HTTP, {checked}; {seconds:.1f} s. Input cost at {MODEL}'s prices."
    for one in compared:
        for goal in one.goals():
            yield f"{one.scenario.name}: {_told(goal)}: {'reached' if goal.is_reached else 'MISSED'}"


def _told(goal: Goal) -> str:
    shown = [f"{number:.0f}" if number >= 1 else f"{number:.3f}" for number in (goal.found, goal.wanted)]
    return f"{goal.words} {shown[0]}, asked for {goal.bound} {shown[1]}"


def _missed(compared: Sequence[Comparison]) -> Iterator[str]:
    for one in compared:
        yield from (f"{one.scenario.name}: {_told(goal)}" for goal in one.goals() if not goal.is_reached)


def _report(compared: Sequence[Comparison], seconds: float) -> dict[str, object]:
    return {
        "model": MODEL,
        "sessions": [
            {
                "name": one.scenario.name,
                "turns": one.scenario.pace.turns,
                "forms": [_form_report(tally) for tally in one.tallies.values()],
                "goals": [_goal_report(goal) for goal in one.goals()],
                "losses": one.losses,
            }
            for one in compared
        ],
        "seconds": seconds,
    }


def _form_report(tally: FormTally) -> dict[str, object]:
    return {
        "form": tally.form.value,
        "requests": tally.requests,
        "prompt_tokens": tally.total.prompt,
        "hit_rate": tally.total.hit_rate,
        "hit_rate_after_ten_turns": tally.late.hit_rate,
        "usd": {"sent": tally.usd, "no caching": tally.uncached_usd},
        "share": tally.share,
    }


def _goal_report(goal: Goal) -> dict[str, object]:
    wanted = {goal.bound.replace(" ", "_"): goal.wanted}
    return {"what": goal.words, "found": goal.found, **wanted, "is_reached": goal.is_reached}

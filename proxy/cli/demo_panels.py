"""``stratiform demo panels``: coding sessions with live panels, as context messages and as structured context."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from proxy.cli.demo_sessions import Scene, run_sessions, shown_table
from proxy.demo.panels import SCENARIOS, Comparison, Goal, comparison
from proxy.demo.tally import losses_of

NAME = "panels"
WORDS = "panels: coding sessions with live panels, as context messages and as structured context"


def run(scene: Scene) -> int:
    """Send every session in every form, and show the results. Returns 0, or 1 if content was lost or a goal missed."""
    compared = [comparison(scenario, scene.setting, scene.price) for scenario in SCENARIOS]
    return run_sessions(scene, compared, _table, _summary, _report, _missed)


def _table(one: Comparison) -> Table:
    title = f"{one.scenario.name}: {one.scenario.words}"
    table = shown_table(title, ("sent", "tokens", "cached", "USD", "of no caching"))
    for tally in one.tallies.values():
        table.add_row(
            tally.form.value,
            f"{tally.requests}/{len(tally.sendings)}",
            f"{tally.total.prompt:,}",
            f"{tally.total.hit_rate:.0%}",
            f"{tally.usd:.4f}",
            "" if tally.share is None else f"{tally.share:.3f}",
        )
    return table


def _summary(compared: Sequence[Comparison]) -> Iterator[str]:
    for one in compared:
        for goal in one.goals():
            yield f"{one.scenario.name}: {_told(goal)}: {'reached' if goal.is_reached else 'MISSED'}"


def _told(goal: Goal) -> str:
    shown = [f"{number:.0f}" if number >= 1 else f"{number:.3f}" for number in (goal.found, goal.wanted)]
    return f"{goal.words} {shown[0]}, asked for {goal.bound} {shown[1]}"


def _missed(compared: Sequence[Comparison]) -> Iterator[str]:
    for one in compared:
        yield from (f"{one.scenario.name}: {_told(goal)}" for goal in one.goals() if not goal.is_reached)


def _report(one: Comparison) -> dict[str, object]:
    return {
        "name": one.scenario.name,
        "turns": one.scenario.pace.turns,
        "forms": [
            {
                "form": tally.form.value,
                "requests": tally.requests,
                "prompt_tokens": tally.total.prompt,
                "hit_rate": tally.total.hit_rate,
                "hit_rate_after_ten_turns": tally.late.hit_rate,
                "usd": {"sent": tally.usd, "no caching": tally.uncached_usd},
                "share": tally.share,
            }
            for tally in one.tallies.values()
        ],
        "goals": [
            {
                "what": goal.words,
                "found": goal.found,
                goal.bound.replace(" ", "_"): goal.wanted,
                "is_reached": goal.is_reached,
            }
            for goal in one.goals()
        ],
        "losses": losses_of(one.tallies),
    }

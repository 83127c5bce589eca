"""Switch each feature of the planner off and print what it earns: ``python -m tests.economics.ablate``.

An effect is the change of the input cost without the feature, in per cent: above 0 the feature earns its keep.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from proxy.cli import Output
from proxy.lab.replay import geometric_mean
from tests.economics.features import FEATURES, Feature
from tests.economics.measure import Job, Measured, measured
from tests.economics.sessions import sessions

RULES = ("anthropic", "deepseek")


@dataclass(frozen=True)
class Effect:
    """What a feature earns under the rules of one provider: in each class of sessions, and where it is best and worst.
    ``changed`` counts the sessions in which other bytes were sent without it."""

    feature: str
    rules: str
    changed: int
    classes: Mapping[str, float]
    best: tuple[str, float]
    worst: tuple[str, float]


def effect(feature: str, rules: str, found: Sequence[Measured]) -> Effect:
    """The sessions without the feature beside the same sessions with it (``Job.without`` is empty)."""
    base = {one.job.session: one for one in found if one.job.rules == rules and not one.job.without}
    pairs = [(base[one.job.session], one) for one in found if one.job.rules == rules and one.job.without == feature]
    ratios: dict[str, list[float]] = {}
    single: dict[str, float] = {}
    for old, new in pairs:
        ratio = new.cost.share / old.cost.share
        ratios.setdefault(old.cost.kind, []).append(ratio)
        single[old.cost.session] = ratio - 1
    return Effect(
        feature=feature,
        rules=rules,
        changed=sum(old.sent != new.sent for old, new in pairs),
        classes={kind: geometric_mean(some) - 1 for kind, some in sorted(ratios.items())},
        best=max(single.items(), key=lambda pair: pair[1]),
        worst=min(single.items(), key=lambda pair: pair[1]),
    )


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where a feature changes nothing that is sent."""
    parser = argparse.ArgumentParser(prog="make ablate", description="What each feature of the planner earns.")
    parser.add_argument("features", nargs="*", metavar="FEATURE", help="features whose name contains this (all)")
    arguments = parser.parse_args(given)
    chosen = [one for one in FEATURES if not arguments.features or any(part in one.name for part in arguments.features)]
    if not chosen:
        parser.error("no such feature")
    effects = _effects(chosen)
    show(effects)
    moving = {one.feature for one in effects if one.changed}
    return 1 if any(feature.name not in moving for feature in chosen) else 0


def _effects(chosen: Sequence[Feature]) -> list[Effect]:
    # A feature that needs other rules is measured under these, too.
    switched = [(one.name, rules) for one in chosen for rules in dict.fromkeys((*RULES, one.shown_by[1]))]
    base = [("", rules) for rules in dict.fromkeys(rules for _, rules in switched)]
    found = measured([Job(name, rules, off) for name in sessions() for off, rules in (*base, *switched)])
    return [effect(name, rules, found) for name, rules in switched]


def show(effects: Sequence[Effect]) -> None:
    """One line for each feature and provider."""
    kinds = list(dict.fromkeys(kind for one in effects for kind in one.classes))
    table = Table(box=None, pad_edge=False)
    for name in ("feature", "rules"):
        table.add_column(name, overflow="fold")
    for name in ("changed", *kinds):
        table.add_column(name, justify="right")
    for name in ("best session", "worst session"):
        table.add_column(name, overflow="fold")
    for one in effects:
        cells = [f"{one.classes[kind]:+.2%}" if kind in one.classes else "" for kind in kinds]
        ends = [f"{name} {ratio:+.1%}" if ratio else "" for name, ratio in (one.best, one.worst)]
        is_first = one.rules == RULES[0]
        table.add_row(one.feature if is_first else "", one.rules, str(one.changed), *cells, *ends)
    output = Output()
    output.print(table)
    output.print("change of the input cost without the feature; changed: sessions in which other bytes were sent")


if __name__ == "__main__":
    raise SystemExit(main())

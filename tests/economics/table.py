"""The committed costs, and what is dearer or cheaper than they are."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.lab.replay import geometric_mean
from tests.economics.measure import RULES, Cost

TABLE = Path(__file__).with_name("table.csv")
CLASS_TOLERANCE = 0.005
SESSION_TOLERANCE = 0.03


@dataclass(frozen=True)
class Finding:
    """A cost beside the committed one. ``ratio`` is above 1 where the planner has become dearer. A class is a geometric
    mean over its sessions."""

    name: str
    is_class: bool
    rules: str
    share: float
    committed: float

    @property
    def ratio(self) -> float:
        return self.share / self.committed

    @property
    def tolerance(self) -> float:
        return CLASS_TOLERANCE if self.is_class else SESSION_TOLERANCE

    @property
    def is_dearer(self) -> bool:
        return self.ratio > 1 + self.tolerance

    @property
    def is_cheaper(self) -> bool:
        return self.ratio < 1 - self.tolerance

    def __str__(self) -> str:
        kind = "class" if self.is_class else "session"
        change = f"{self.committed:.5f} -> {self.share:.5f}, {self.ratio - 1:+.2%}"
        return f"{kind} {self.name}, {self.rules}: {change} (tolerance {self.tolerance:.1%})"


def compared(costs: Sequence[Cost], committed: Mapping[tuple[str, str], Cost]) -> list[Finding]:
    """Every class and every session, beside the committed table; sessions that it does not hold are left out."""
    pairs = [(cost, committed[cost.session, cost.rules]) for cost in costs if (cost.session, cost.rules) in committed]
    return [*_classes(pairs), *(Finding(new.session, False, new.rules, new.share, old.share) for new, old in pairs)]


def _classes(pairs: Sequence[tuple[Cost, Cost]]) -> list[Finding]:
    members: dict[tuple[str, str], list[tuple[Cost, Cost]]] = {}
    for new, old in pairs:
        members.setdefault((old.kind, old.rules), []).append((new, old))
    return [
        Finding(
            name=kind,
            is_class=True,
            rules=rules,
            share=geometric_mean(new.share for new, _ in some),
            committed=geometric_mean(old.share for _, old in some),
        )
        for (kind, rules), some in members.items()
    ]


def missing(costs: Iterable[Cost], committed: Mapping[tuple[str, str], Cost]) -> list[str]:
    """Sessions that were measured and are not in the table."""
    return sorted({cost.session for cost in costs if (cost.session, cost.rules) not in committed})


def read(path: Path = TABLE) -> dict[tuple[str, str], Cost]:
    """The committed costs, by session and rules."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    costs = [
        Cost(row["session"], rules, float(row[rules]), row["class"])
        for row in rows
        for rules in RULES
        if row.get(rules)
    ]
    return {(cost.session, cost.rules): cost for cost in costs}


def write(costs: Iterable[Cost], path: Path = TABLE) -> None:
    """Put these costs into the table. Lines of other sessions stay as they are: not everyone has every recording."""
    known = read(path) | {(cost.session, cost.rules): cost for cost in costs}
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for (session, rules), cost in known.items():
        lines.setdefault((cost.kind, session), {})[rules] = f"{cost.share:.5f}"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", "session", *RULES])
        for (kind, session), shares in sorted(lines.items()):
            writer.writerow([kind, session, *(shares.get(rules, "") for rules in RULES)])

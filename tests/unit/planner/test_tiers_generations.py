"""Vectors of the trackers that policy ``classic`` merges: what each generation of the tiered assembly did with a state.

``generations.vectors`` says how to read them. The windows of turns stand here: how many leave active.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.planner.tiers import HISTORY, Change, Classic, ClassicPolicy, Item, Tier, Tracked
from tests.examples import for_every

TIERS = {"active": Tier.ACTIVE, "L3": Tier.L3, "L2": Tier.L2, "L1": Tier.L1, "L0": Tier.L0}
SAID = {"is_capped=False": False}


@dataclass(frozen=True, slots=True)
class Vector:
    says: str
    before: str
    sent: str
    after: str
    moves: str
    broken: str
    flags: tuple[tuple[str, Any], ...]


def flag(word: str) -> tuple[str, Any]:
    name, _, value = word.partition("=")
    return name, SAID.get(word, int(value) if value.isdigit() else value)


def read(paragraph: str) -> Vector:
    says, *lines = paragraph.splitlines()
    parts = {name: rest.strip() for name, _, rest in (line.partition(" ") for line in lines)}
    flags = {"target_tokens": 0} | dict(flag(word) for word in parts.pop("policy", "").split())
    given = {name: parts.pop(name, "") for name in ("before", "sent", "after", "moves", "broken")}
    assert not parts, paragraph
    return Vector(says, flags=tuple(flags.items()), **given)


PARAGRAPHS = Path(__file__).with_name("generations.vectors").read_text().strip().split("\n\n")
VECTORS = [read(paragraph) for paragraph in PARAGRAPHS if not paragraph.startswith("#")]


def key_of(word: str) -> str:
    name = word.strip("&()!*")
    return HISTORY + name[1:] if name[0] == "h" and name[1:].isdigit() else name


def word_of(key: str) -> str:
    return "h" + key.removeprefix(HISTORY) if key.startswith(HISTORY) else key


def name_of(tier: Tier | None) -> str:
    return "gone" if tier is None else tier.name.replace("ACTIVE", "active")


class Session:
    """A tracker in the vector's state, and what its responses do."""

    def __init__(self, vector: Vector) -> None:
        self.tracker = Classic(ClassicPolicy(**dict(vector.flags)))
        self.tokens: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.changes: list[Change] = []
        for number, line in enumerate(filter(None, vector.before.split("; ")), 1):
            word, tier, n, *more = line.split(" ")
            key, digest = key_of(word), b"" if more[1:] == ["unmeasured"] else b"0"
            self.tokens[key] = int(more[0]) if more else 100
            self.tracker.items[key] = Item(digest, self.tokens[key], TIERS[tier], int(n), number, number)
            self.tracker.sequence = number
        if vector.broken:
            self.tracker.mark_broken(TIERS[vector.broken])

    def respond(self, words: list[str]) -> None:
        listed, modified = [], set()
        for word in words:
            key = key_of(word)
            if word.endswith("!"):
                self.versions[key] = self.versions.get(key, 0) + 1
            if word.endswith("*"):
                modified.add(key)
            if not word.startswith("("):
                digest = b"%d" % self.versions.get(key, 0)
                listed.append(Tracked(key, digest, self.tokens.get(key, 100), word.startswith("&")))
        self.changes += self.tracker.update(listed, {key_of(word) for word in words}, modified)


def play(vector: Vector) -> Session:
    session = Session(vector)
    for response in vector.sent.split(" / "):
        first, *others = response.split(" ")
        times = int(first[:-1]) if first[:-1].isdigit() and first.endswith("x") else 0
        for _ in range(times or 1):
            session.respond(others if times else [first, *others])
    return session


@for_every(VECTORS)
def test_vector(vector: Vector) -> None:
    session = play(vector)
    tracker = session.tracker
    found = {f"{word_of(key)} {name_of(tracker.tier(key))} {tracker.n(key)}" for key in tracker.items}
    assert found == set(vector.after.split("; "))
    moves = [f"{word_of(c.key)} {name_of(c.source)}>{name_of(c.target)}" for c in session.changes]
    assert moves == list(filter(None, vector.moves.split("; ")))


# What leaves active of turns with these tokens (old to new): by themselves, or carried along by a file that graduates.
FIRST = {"history": "threshold", "history_window": "none", "oversize_turn": "move"}
SECOND = {"history": "threshold", "history_window": "remainder"}
FOURTH = {"history": "piggyback", "oversize_turn": "move"}
PROFILE = {"history": "piggyback"}
ALONE, CARRIED = False, True
WINDOWS: list[tuple[str, dict[str, str], str, int, bool, int]] = [
    ("first: six turns of a fifth leave the newest five", FIRST, "100 100 100 100 100 100", 500, ALONE, 1),
    ("first: turns that just reach the target all stay", FIRST, "100 100 100 100 100", 500, ALONE, 0),
    ("first: a single turn above the target leaves", FIRST, "600", 500, ALONE, 1),
    ("first: the turn that would overflow leaves with the older ones", FIRST, "300 300 300", 500, ALONE, 2),
    ("first: an older small turn leaves behind a large one", FIRST, "100 800 100 200", 500, ALONE, 2),
    ("first: what stays may be less than the target", FIRST, "100 100 100 100 100 100", 550, ALONE, 1),
    ("first: all turns leave along with a file", FIRST, "100 100 100", 500, CARRIED, 3),
    ("first: without a target none leaves", FIRST, "600 600", 0, CARRIED, 0),
    ("second: six turns of a fifth leave the target behind", SECOND, "100 100 100 100 100 100", 500, ALONE, 1),
    ("second: turns that just reach the target all stay", SECOND, "100 100 100 100 100", 500, ALONE, 0),
    ("second: a single turn above the target stays", SECOND, "600", 500, ALONE, 0),
    ("second: what stays is the target or more", SECOND, "300 300 300", 500, ALONE, 1),
    ("second: a large turn stays where too little would be left", SECOND, "100 800 100 200", 500, ALONE, 1),
    ("second: none leaves where too little would be left", SECOND, "100 100 100 100 100 100", 550, ALONE, 0),
    ("second: all turns leave along with a file", SECOND, "100 100 100", 500, CARRIED, 3),
    ("second: without a target none leaves", SECOND, "600 600", 0, CARRIED, 0),
    ("fourth: six turns of a fifth leave the newest five", FOURTH, "100 100 100 100 100 100", 500, CARRIED, 1),
    ("fourth: turns that just reach the target all stay", FOURTH, "100 100 100 100 100", 500, CARRIED, 0),
    ("fourth: a single turn above the target leaves", FOURTH, "600", 500, CARRIED, 1),
    ("fourth: the turn that would overflow leaves with the older ones", FOURTH, "300 300 300", 500, CARRIED, 2),
    ("fourth: an older small turn leaves behind a large one", FOURTH, "100 800 100 200", 500, CARRIED, 2),
    ("fourth: turns that nothing carries stay", FOURTH, "300 300 300", 500, ALONE, 0),
    ("profile: six turns of a fifth leave the newest five", PROFILE, "100 100 100 100 100 100", 500, CARRIED, 1),
    ("profile: turns that just reach the target all stay", PROFILE, "100 100 100 100 100", 500, CARRIED, 0),
    ("profile: a single turn above the target stays", PROFILE, "600", 500, CARRIED, 0),
    ("profile: a newest turn above the target stays and older ones leave", PROFILE, "100 100 600", 500, CARRIED, 2),
    ("profile: the turn that would overflow leaves with the older ones", PROFILE, "300 300 300", 500, CARRIED, 2),
    ("profile: an older small turn leaves behind a large one", PROFILE, "100 800 100 200", 500, CARRIED, 2),
    ("profile: turns that nothing carries stay", PROFILE, "300 300 300", 500, ALONE, 0),
    ("profile: without a target none leaves", PROFILE, "600 600", 0, CARRIED, 0),
]


@for_every(WINDOWS)
def test_window(says: str, flags: dict[str, Any], sizes: str, target: int, carried: bool, leaving: int) -> None:
    tracker = Classic(ClassicPolicy(target_tokens=target, **flags))
    if carried:
        tracker.mark_broken(Tier.L3)
    turns = [Tracked(f"{HISTORY}{n}", b"1", int(tokens)) for n, tokens in enumerate(sizes.split(" "))]
    changes = tracker.update(turns)
    assert changes == [Change(turn.key, Tier.ACTIVE, Tier.L3, "unchanged") for turn in turns[:leaving]], says


def test_there_are_enough_and_none_twice() -> None:
    cases = {(v.before, v.sent, v.broken, v.flags) for v in VECTORS}
    assert len(cases) == len(VECTORS) >= 140
    names = [v.says for v in VECTORS] + [window[0] for window in WINDOWS]
    assert len(set(names)) == len(names) >= 170
    assert {name.partition(":")[0] for name in names} == {"all", "first", "second", "fourth", "profile"}

"""One response to a tracker in a given state, and the state behind it: vectors of the merged rules.

A state lists pieces as ``key tier N tokens`` (100 tokens where none are given, first seen in this order); a response
lists the pieces that were sent: ``a`` as before or new, ``a!`` with other bytes, ``(a)`` not sent but existing. What
is in no list no longer exists.
"""

from dataclasses import dataclass
from typing import Any

from proxy.planner.tiers import Classic, ClassicPolicy, Item, Tier, Tracked
from tests.examples import for_every

FREE = 0
TIERS = {"active": Tier.ACTIVE, "L3": Tier.L3, "L2": Tier.L2, "L1": Tier.L1, "L0": Tier.L0}


@dataclass(frozen=True, slots=True)
class Vector:
    """``flags`` are those of the policy; ``broken`` a tier that the caller says has changed."""

    says: str
    before: str
    sent: str
    after: str
    target: int = FREE
    broken: str = ""
    flags: tuple[tuple[str, Any], ...] = ()


CASCADE = (("count", "cascade"),)
DEMOTE = (("underfill", "demote"),)
PIGGYBACK = (("history", "piggyback"),)

VECTORS = [
    # Counting: one more for each response in which a piece stands with the same bytes.
    Vector("first sight", "", "a", "a active 0"),
    Vector("once unchanged", "a active 0", "a", "a active 1"),
    Vector("twice unchanged", "a active 1", "a", "a active 2"),
    Vector("three times unchanged", "a active 2", "a", "a L3 3"),
    Vector("changed in active", "a active 2", "a!", "a active 0"),
    Vector("changed at nought", "a active 0", "a!", "a active 0"),
    Vector("not sent does not age", "a active 2", "(a)", "a active 2"),
    Vector("no longer there", "a active 2 100; b active 0", "b", "b active 1"),
    Vector("a new one beside an old one", "a active 1", "a b", "a active 2; b active 0"),
    Vector("seen before and back again", "a active 1", "(a) b", "a active 1; b active 0"),
    Vector("turns never leave by themselves", "history:0 active 5", "history:0", "history:0 active 6"),
    Vector("nor along with files", "history:0 active 5; a active 2", "history:0 a", "history:0 active 6; a L3 3"),
    # In a cached tier N grows to what would take the piece on, and no further while the way is closed.
    *(
        Vector(f"{tier} counts on from {n}", f"a {tier} {n}", "a", f"a {tier} {n + 1}")
        for tier, first in (("L3", 3), ("L2", 6), ("L1", 9))
        for n in (first, first + 1, first + 2)
    ),
    *(
        Vector(f"{tier} is capped", f"a {tier} {n}", "a", f"a {tier} {n}")
        for tier, n in (("L3", 6), ("L2", 9), ("L1", 12))
    ),
    *(
        Vector(
            f"{tier} is capped behind a closed tier",
            f"a {tier} {n}; b {above} {m}", "a b", f"a {tier} {n}; b {above} {m + 1}",
        )
        for tier, n, above, m in (("L3", 6, "L2", 6), ("L2", 9, "L1", 9), ("L1", 12, "L0", 12))
    ),
    Vector("the uppermost tier has no cap", "a L0 12", "a", "a L0 13"),
    Vector("however long", "a L0 40", "a", "a L0 41"),
    *(
        Vector(f"changed in {tier}", f"a {tier} {n}", "a!", "a active 0")
        for tier, n in (("L3", 4), ("L2", 7), ("L1", 10), ("L0", 20))
    ),
    *(
        Vector(f"not sent in {tier}", f"a {tier} {n}", "(a)", f"a {tier} {n}")
        for tier, n in (("L3", 4), ("L2", 7), ("L1", 10), ("L0", 20))
    ),
    *(
        Vector(f"removed from {tier}", f"a {tier} {n}; b active 0", "b", "b active 1")
        for tier, n in (("L3", 4), ("L2", 7), ("L1", 10), ("L0", 20))
    ),
    # Ripples: into a tier above only while that is broken or was empty, and only out of one that was touched.
    Vector("a quiet response moves nothing, also into an empty tier", "a L3 6; b L1 12", "a b", "a L3 6; b L1 12"),
    Vector("an arrival lets the tier's veterans on", "x active 2; a L3 5", "x a", "x L3 3; a L2 6"),
    Vector("but none too young", "x active 2; a L3 4", "x a", "x L3 3; a L3 5"),
    Vector("nor into a tier that is whole", "x active 2; a L3 6; b L2 6", "x a b", "x L3 3; a L3 6; b L2 7"),
    Vector("a change above opens the way", "a L3 6; b L2 6", "a b!", "a L2 6; b active 0"),
    Vector("a removal above opens the way", "a L3 6; b L2 6", "a", "a L2 6"),
    Vector("a tier that was not sent is closed", "a L3 6; b L2 6; x active 2", "a (b) x", "a L3 6; b L2 6; x L3 3"),
    Vector("from L2", "a L2 9; b L1 9", "a b!", "a L1 9; b active 0"),
    Vector("from L1", "a L1 12; b L0 12", "a b!", "a L0 12; b active 0"),
    Vector("through two tiers", "a L3 6; b L2 9; c L1 9", "a b c!", "a L2 6; b L1 9; c active 0"),
    Vector(
        "through all of them", "a L3 6; b L2 9; c L1 12; d L0 15", "a b c d!", "a L2 6; b L1 9; c L0 12; d active 0"
    ),
    Vector("each piece goes one tier on", "a L3 6; x active 2", "a x", "a L2 6; x L3 3"),
    Vector("too young ones stay behind", "a L3 6; b L3 4; c L2 8", "a b c!", "a L2 6; b L3 5; c active 0"),
    Vector("a change in its own tier wakes a tier", "a L3 6; b L3 4", "a b!", "a L2 6; b active 0"),
    Vector("a removal in its own tier too", "a L2 9; b L2 6", "a", "a L1 9"),
    Vector("an empty tier far above wakes nobody", "x active 2; a L3 6; b L2 9", "x a b", "x L3 3; a L3 6; b L2 9"),
    Vector(
        "veterans are asked once: what opens later is too late",
        "x active 2; a L3 6; b L2 9; c L1 10", "x a b c!", "x L3 3; a L3 6; b L1 9; c active 0",
    ),
    Vector("two arrivals", "x active 2; y active 2; a L3 6", "x y a", "x L3 3; y L3 3; a L2 6"),
    Vector("two go on", "a L3 6; b L3 5; x active 2", "a b x", "a L2 6; b L2 6; x L3 3"),
    Vector("a change in active opens nothing", "a L3 6; b active 2", "a b!", "a L3 6; b active 0"),
    Vector("a caller's word opens a tier above", "a L3 6; b L2 7", "a b", "a L2 6; b L2 8", broken="L2"),
    Vector("and wakes the tier itself", "a L2 9", "a", "a L1 9", broken="L2"),
    Vector("what left comes back from nought", "a L0 30; b L1 12", "a! b", "a active 0; b L0 12"),
    # Anchoring: where a tier holds more than the target, the youngest pieces up to it stay.
    Vector("not in a tier that is below it", "x active 2; a L3 6", "x a", "x L3 3; a L2 6", target=1000),
    Vector("nor in one that just reaches it", "x active 2; a L3 6", "x a", "x L3 3; a L2 6", target=200),
    Vector("the piece that reaches it stays", "x active 2; a L3 6", "x a", "x L3 3; a L3 6", target=150),
    Vector("the one behind goes on", "x active 2; a L3 6", "x a", "x L3 3; a L2 6", target=100),
    Vector(
        "younger ones are the anchor",
        "x active 2; a L3 6; b L3 4 200", "x a b", "x L3 3; a L2 6; b L3 5", target=250,
    ),
    Vector("one large piece anchors alone", "x active 2 900; a L3 6", "x a", "x L3 3; a L2 6", target=800),
    Vector("of equals the one seen first", "a L3 6; b L3 6; x active 2", "a b x", "a L3 6; b L2 6; x L3 3", target=150),
    Vector("what is anchored counts all the same", "x active 2; a L3 3", "x a", "x L3 3; a L3 4", target=150),
    Vector(
        "the worked example",
        "a L2 5 500; b L2 6 400; c L2 7 300; d L2 8 200; z L2 7; e L3 5 400", "a b c d z! e",
        "a L2 6; b L2 7; c L2 8; d L1 9; z active 0; e L2 6", target=1536,
    ),
    # A tier that is too small keeps its pieces, and loses its marker; under another flag they go one tier down.
    Vector("below the target", "a L2 7", "a", "a L2 8", target=1000),
    Vector("below the target, demoted", "a L2 7", "a", "a L3 8", target=1000, flags=DEMOTE),
    Vector("at the target", "a L2 7 1000", "a", "a L2 8", target=1000, flags=DEMOTE),
    Vector("no target", "a L2 7", "a", "a L2 8", flags=DEMOTE),
    # N only grows where the tier is processed.
    Vector("a quiet tier", "a L3 3", "a", "a L3 3", flags=CASCADE),
    Vector("an active piece", "a active 1", "a", "a active 2", flags=CASCADE),
    Vector("a tier with an arrival", "a L3 3; x active 2", "a x", "a L3 4; x L3 3", flags=CASCADE),
    Vector("a capped one", "a L3 6; x active 2; b L2 6", "a x b", "a L3 6; x L3 3; b L2 6", flags=CASCADE),
    Vector("an anchored one", "a L3 3; x active 2", "a x", "a L3 3; x L3 3", target=150, flags=CASCADE),
    # Turns that may move do so along with other pieces, the newest up to the target excepted.
    Vector("alone", "history:0 active 3; history:1 active 2", "history:0 history:1",
           "history:0 active 4; history:1 active 3", target=50, flags=PIGGYBACK),
    Vector("with a file", "history:0 active 1; history:1 active 0; a active 2", "history:0 history:1 a",
           "history:0 L3 3; history:1 active 1; a L3 3", target=100, flags=PIGGYBACK),
    Vector("a newest turn that is too large stays", "history:0 active 1; history:1 active 0 900; a active 2",
           "history:0 history:1 a", "history:0 L3 3; history:1 active 1; a L3 3", target=100, flags=PIGGYBACK),
    Vector("with a change in L3", "history:0 active 1; history:1 active 0; a L3 4", "history:0 history:1 a!",
           "history:0 L3 3; history:1 active 1; a active 0", target=100, flags=PIGGYBACK),
]  # fmt: skip


def tracker_of(vector: Vector) -> tuple[Classic, dict[str, int]]:
    tracker = Classic(ClassicPolicy(target_tokens=vector.target, **dict(vector.flags)))
    tokens: dict[str, int] = {}
    for number, line in enumerate(filter(None, vector.before.split("; ")), 1):
        key, tier, n, *more = line.split(" ")
        tokens[key] = int(more[0]) if more else 100
        tracker.items[key] = Item(b"1", tokens[key], TIERS[tier], int(n), number, number)
        tracker.sequence = number
    return tracker, tokens


def respond(tracker: Classic, vector: Vector, tokens: dict[str, int]) -> set[str]:
    """The response; which pieces exist behind it."""
    listed, existing = [], set()
    for word in vector.sent.split(" "):
        key = word.strip("()!")
        existing.add(key)
        if not word.startswith("("):
            listed.append(Tracked(key, b"2" if word.endswith("!") else b"1", tokens.get(key, 100)))
    if vector.broken:
        tracker.mark_broken(TIERS[vector.broken])
    tracker.update(listed, existing)
    return existing


@for_every(VECTORS)
def test_vector(vector: Vector) -> None:
    tracker, tokens = tracker_of(vector)
    existing = respond(tracker, vector, tokens)
    found = [f"{key} {tracker.tier(key).name.replace('ACTIVE', 'active')} {tracker.n(key)}" for key in existing]
    assert sorted(found) == sorted(vector.after.split("; "))


def test_there_are_enough_and_none_twice() -> None:
    assert len({(v.before, v.sent, v.target, v.broken, v.flags) for v in VECTORS}) >= 75
    assert len({v.says for v in VECTORS}) == len(VECTORS)


def test_what_was_placed_before_it_was_measured_stays_at_its_first_measurement() -> None:
    tracker = Classic(ClassicPolicy(target_tokens=0))
    tracker.seed(Tracked("a", b"", 100), Tier.L2)
    assert tracker.update([Tracked("a", b"1", 100)]) == []
    assert tracker.tier("a") is Tier.L2
    assert [change.reason for change in tracker.update([Tracked("a", b"2", 100)])] == ["changed"]

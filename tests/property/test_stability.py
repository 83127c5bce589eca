"""Policy classic: whatever happens to the pieces, the rules of the state machine hold."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.planner.tiers import ENTRY_N, HISTORY, Change, Classic, ClassicPolicy, Tier, Tracked
from tests.examples import examples

CACHED = (Tier.L3, Tier.L2, Tier.L1, Tier.L0)
KEYS = st.sampled_from("abcdefgh")
POLICIES = st.builds(
    ClassicPolicy,
    target_tokens=st.sampled_from([0, 150, 400]),
    underfill=st.sampled_from(["unmark", "unmark", "demote", "demote_whole"]),
    history=st.sampled_from(["stay", "piggyback", "threshold"]),
    count=st.sampled_from(["response", "response", "cascade"]),
    promotion=st.sampled_from(["ripple", "ripple", "count"]),
    anchoring=st.sampled_from(["excess", "excess", "within", "always", "never"]),
    is_capped=st.booleans(),
    history_window=st.sampled_from(["newest", "newest", "remainder", "none"]),
    oversize_turn=st.sampled_from(["stay", "move"]),
)


@dataclass(frozen=True)
class Response:
    """What was sent: pieces with their versions, turns, and the tier that something else broke before."""

    pieces: tuple[tuple[str, int], ...]
    turns: int
    broken: Tier | None

    def items(self) -> list[Tracked]:
        history = [Tracked(f"{HISTORY}{n}", b"h", 60) for n in range(self.turns)]
        return [*history, *(Tracked(k, b"%d" % v, 100 + 20 * (ord(k) - 97)) for k, v in self.pieces)]


@st.composite
def responses(draw: st.DrawFn) -> list[Response]:
    """A session: most pieces stay, now and then one changes, comes or goes."""
    present = {key: 0 for key in draw(st.lists(KEYS, min_size=1, max_size=5, unique=True))}
    found = []
    for number in range(draw(st.integers(1, 45))):
        event = draw(st.sampled_from(["quiet"] * 8 + ["change", "come", "go"]))
        if event == "change" and present:
            key = draw(st.sampled_from(sorted(present)))
            present[key] += 1
        elif event == "come":
            present.setdefault(draw(KEYS), 0)
        elif event == "go" and present:
            del present[draw(st.sampled_from(sorted(present)))]
        broken = draw(st.sampled_from([None] * 12 + list(CACHED)))
        found.append(Response(tuple(present.items()), number // 2, broken))
    return found


def states(tracker: Classic, keys: list[str]) -> dict[str, tuple[Tier, int]]:
    return {key: (tracker.tier(key), tracker.n(key)) for key in keys}


@given(POLICIES, responses())
@settings(max_examples=examples(150), deadline=None)
def test_rules(policy: ClassicPolicy, session: list[Response]) -> None:
    tracker = Classic(policy)
    before: dict[str, tuple[Tier, int]] = {}
    digests: dict[str, bytes] = {}
    for response in session:
        items = response.items()
        keys = [item.key for item in items]
        members = {tier: tracker.members(tier) for tier in CACHED}
        if response.broken is not None:
            tracker.mark_broken(response.broken)
        changes = tracker.update(items)
        now = states(tracker, keys)
        for item in items:
            tier, n = now[item.key]
            if item.key not in before:
                assert (tier, n) == (Tier.ACTIVE, 0) or (policy.history != "stay" and item.key.startswith(HISTORY))
            elif digests[item.key] != item.digest:
                assert (tier, n) == (Tier.ACTIVE, 0)
            elif policy.underfill == "unmark":
                assert tier <= before[item.key][0], "an unchanged piece never falls"
                assert n >= min(before[item.key][1], ENTRY_N[before[item.key][0]] + 3)
        _check_members(tracker, keys, now)
        _check_moves(policy, changes, before, members, response)
        assert set(states(tracker, list(before))) >= set(before)
        assert all(tracker.tier(key) is Tier.ACTIVE and tracker.n(key) == 0 for key in before if key not in keys)
        tiers = [now[key][0] for key in keys if key.startswith(HISTORY)]
        assert tiers == sorted(tiers), "no turn is more stable than an older one"
        before, digests = now, {item.key: item.digest for item in items}


def _check_members(tracker: Classic, keys: list[str], now: dict[str, tuple[Tier, int]]) -> None:
    placed = [key for tier in Tier for key in tracker.members(tier)]
    assert sorted(placed) == sorted(keys)
    for tier in Tier:
        members = tracker.members(tier)
        assert [tracker.entered(key) for key in members] == sorted(tracker.entered(key) for key in members)
        assert all(now[key][0] is tier for key in members)


def _check_moves(
    policy: ClassicPolicy,
    changes: list[Change],
    before: dict[str, tuple[Tier, int]],
    members: dict[Tier, list[str]],
    response: Response,
) -> None:
    """A piece climbs one tier at a time, into one that was empty or is broken by now."""
    broken = {response.broken} - {None}
    for change in changes:
        if change.reason in ("removed", "changed"):
            broken.add(change.source)
        elif change.reason == "unchanged":
            assert (change.source, change.target) == (Tier.ACTIVE, Tier.L3)
            broken.add(Tier.L3)
        elif change.reason == "promoted":
            assert change.target is not None
            assert change.target == change.source - 1
            assert change.target in broken or not members[change.target] or policy.promotion == "count"
            assert before[change.key][1] + 1 >= ENTRY_N[change.target]
            broken |= {change.source, change.target}
        else:
            assert change.reason == "underfilled"
            assert change.target == change.source + 1


@given(POLICIES, responses())
@settings(max_examples=examples(50), deadline=None)
def test_the_same_past_gives_the_same_tiers(policy: ClassicPolicy, session: list[Response]) -> None:
    one, other = Classic(policy), Classic(policy)
    for response in session:
        assert one.update(response.items()) == other.update(response.items())


@given(responses())
@settings(max_examples=examples(50), deadline=None)
def test_what_nothing_happens_to_does_not_move(session: list[Response]) -> None:
    tracker = Classic()
    for response in session:
        tracker.update(response.items())
    items = session[-1].items()
    for _ in range(60):
        tracker.update(items)
    tiers = states(tracker, [item.key for item in items])
    for _ in range(20):
        assert tracker.update(items) == []
    assert {k: t for k, (t, _) in states(tracker, list(tiers)).items()} == {k: t for k, (t, _) in tiers.items()}

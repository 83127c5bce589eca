"""The tracker of structured context: whatever a client sends, each item stands in one place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.context import ContextFile, StructuredContext
from proxy.context.placement import FILE, SYMBOL, ContextTracker, TierPlacement
from proxy.planner.tiers import CACHED, Change, ClassicPolicy, Tier, Tracked
from proxy.protocol.request.tokens import TokenCounter
from tests.examples import examples

PATHS = "abcdefgh"
POLICIES = st.builds(
    ClassicPolicy,
    target_tokens=st.sampled_from([0, 20, 60]),
    underfill=st.sampled_from(["unmark", "unmark", "demote", "demote_whole"]),
    history=st.sampled_from(["stay", "piggyback", "threshold"]),
    count=st.sampled_from(["response", "response", "cascade"]),
    graduation=st.sampled_from(["count", "count", "leave"]),
    anchoring=st.sampled_from(["excess", "within", "always", "never"]),
    is_capped=st.booleans(),
    history_window=st.sampled_from(["newest", "remainder", "none"]),
    oversize_turn=st.sampled_from(["stay", "move"]),
    first_l0=st.sampled_from(["empty", "referenced"]),
)
Shown = tuple[StructuredContext, tuple[Tracked, ...]]


@dataclass
class Client:
    """What a client would show of its files: ``absent``, by ``symbols``, ``selected``, or ``unreadable``."""

    states: dict[str, str]
    versions: dict[str, int]
    turns: list[Tracked]

    def context(self) -> StructuredContext:
        listed = [path for path, state in self.states.items() if state != "absent"]
        return StructuredContext(
            files=tuple(self._file(path) for path in listed),
            symbols={path: f"{path} {self.versions[path]}" + "s" * 40 for path in listed},
        )

    def _file(self, path: str) -> ContextFile:
        text, state = f"{self.versions[path]}" + "x" * 80, self.states[path]
        selected = state in ("selected", "unreadable")
        return ContextFile(path, None if state == "unreadable" else text, text, selected)


@st.composite
def sessions(draw: st.DrawFn) -> list[Shown]:
    """Requests of one conversation: mostly as the one before, now and then with a change of any kind."""
    client = Client(
        {path: draw(st.sampled_from(["symbols", "symbols", "absent", "selected"])) for path in PATHS}, {}, []
    )
    client.versions = dict.fromkeys(PATHS, 0)
    edges = draw(st.dictionaries(st.sampled_from(PATHS), st.frozensets(st.sampled_from(PATHS), max_size=3), max_size=6))
    found: list[Shown] = []
    for number in range(draw(st.integers(1, 40))):
        event = draw(
            st.sampled_from(["quiet"] * 9 + ["edit", "state", "state", "rewind", "rewrite", "words", "no map"])
        )
        path = draw(st.sampled_from(PATHS))
        if event == "edit":
            client.versions[path] += 1
        elif event == "state":
            client.states[path] = draw(st.sampled_from(["absent", "symbols", "selected", "selected", "unreadable"]))
        elif event == "rewind":
            del client.turns[draw(st.integers(0, 8)) :]
        elif event == "rewrite" and client.turns:
            index = draw(st.integers(0, len(client.turns) - 1))
            client.turns[index] = replace(client.turns[index], digest=b"again %d" % number)
        is_joined = draw(st.sampled_from([False, False, True]))
        client.turns.append(Tracked(f"history:{len(client.turns)}", b"%d" % number, 12, is_joined))
        context = replace(client.context(), references=edges)
        if event == "words":
            words = st.frozensets(st.sampled_from(PATHS), max_size=2)
            broken = draw(st.frozensets(st.sampled_from(CACHED), max_size=1))
            context = replace(context, removed=draw(words), modified=draw(words), broken=broken)
        found.append((replace(context, symbols={}) if event == "no map" else context, tuple(client.turns)))
    return found


@given(POLICIES, sessions())
@settings(max_examples=examples(100), deadline=None)
def test_each_item_stands_in_one_place(policy: ClassicPolicy, session: list[Shown]) -> None:
    tracker = ContextTracker(TokenCounter(), policy)
    for context, history in session:
        placement = tracker.placement(context, history)
        assert set(placement.tiers) == set(Tier)
        files = [path for items in placement.tiers.values() for path in items.files]
        symbols = [path for items in placement.tiers.values() for path in items.symbols]
        assert sorted(files) == sorted(file.path for file in context.selected())
        assert sorted(symbols) == sorted(context.mapped())
        assert not set(files) & set(symbols)
        _check_turns(placement, history)
        assert placement == tracker.placement(context, history)
        tracker.settle(context, history)
        kinds = {kind: {key[len(kind) :] for key in tracker.items if key.startswith(kind)} for kind in (FILE, SYMBOL)}
        assert not kinds[FILE] & kinds[SYMBOL], "a file is tracked by its text or by its symbols"
        selected = {file.path for file in context.files if file.is_selected}
        assert set(files) <= kinds[FILE] <= selected
        assert set(symbols) <= kinds[SYMBOL]


def _check_turns(placement: TierPlacement, history: Sequence[Tracked]) -> None:
    """In the order of the tiers stand all turns in their own order, and no group is parted."""
    assert [index for tier in Tier for index in placement.tiers[tier].history] == list(range(len(history)))
    tier_of = {index: tier for tier in Tier for index in placement.tiers[tier].history}
    for index, turn in enumerate(history):
        assert index == 0 or not turn.is_joined or tier_of[index] is tier_of[index - 1]


@given(POLICIES.map(lambda policy: replace(policy, underfill="unmark")), sessions())
@settings(max_examples=examples(100), deadline=None)
def test_what_stays_in_a_tier_keeps_its_place_and_what_comes_stands_behind_it(
    policy: ClassicPolicy, session: list[Shown]
) -> None:
    """What stays in one of the tiers L0 to L3 is a beginning of it, so that the provider's cache holds for the
    beginning. Where small tiers fall, a piece may graduate and fall back within one response, and stands last then."""
    tracker = ContextTracker(TokenCounter(), policy)
    before = tracker.placement(StructuredContext(), ())
    for context, history in session:
        now = tracker.placement(context, history)
        # What the request before did not show, for it could not be read or no map was sent, comes back to its place.
        hidden = {key.partition(":")[2] for key in tracker.items} - _paths(before)
        for tier in CACHED:
            old, new = before.tiers[tier], now.tiers[tier]
            for was, now_is in ((old.symbols, new.symbols), (old.files, new.files)):
                rest = [path for path in now_is if path not in hidden | context.removed]
                stayed = [path for path in was if path in rest]
                assert rest[: len(stayed)] == stayed
        tracker.settle(context, history)
        before = now


def _paths(placement: TierPlacement) -> set[str]:
    return {path for items in placement.tiers.values() for path in (*items.files, *items.symbols)}


@given(POLICIES, sessions())
@settings(max_examples=examples(100), deadline=None)
def test_placement_shows_what_settling_makes_of_it_but_for_promotions(
    policy: ClassicPolicy, session: list[Shown]
) -> None:
    """The tiers of a placement are those behind the answer, but for what the answer itself lets climb or fall."""
    tracker = ContextTracker(TokenCounter(), policy)
    for context, history in session:
        placement = tracker.placement(context, history)
        changes = tracker.settle(context, history)
        moved = {change.key for change in changes if change.reason in ("unchanged", "promoted", "underfilled")}
        for tier, items in placement.tiers.items():
            keys = [FILE + p for p in items.files] + [SYMBOL + p for p in items.symbols]
            keys += [f"history:{index}" for index in items.history]
            assert all(key in moved or tracker.tier(key) is tier for key in keys)


@given(POLICIES, sessions())
@settings(max_examples=examples(100), deadline=None)
def test_nothing_climbs_into_a_closed_tier(policy: ClassicPolicy, session: list[Shown]) -> None:
    tracker = ContextTracker(TokenCounter(), policy)
    for context, history in session:
        filled = {tracker.tier(key) for key in tracker.items}
        is_first = not any(key.startswith(SYMBOL) for key in tracker.items)
        changes = tracker.settle(context, history)
        if not is_first:
            _check_open(changes, filled, set(context.broken))


def _check_open(changes: Sequence[Change], filled: set[Tier], broken: set[Tier]) -> None:
    for change in changes:
        if change.reason == "promoted":
            assert change.target is not None
            assert change.target == change.source - 1
            assert change.target in broken or change.target not in filled
        if change.reason != "underfilled":
            broken |= {change.source, change.source if change.target is None else change.target}


@given(POLICIES, sessions())
@settings(max_examples=examples(50), deadline=None)
def test_the_same_requests_give_the_same_tiers(policy: ClassicPolicy, session: list[Shown]) -> None:
    one, other = ContextTracker(TokenCounter(), policy), ContextTracker(TokenCounter(), policy)
    for context, history in session:
        other.placement(context, history)
        assert one.settle(context, history) == other.settle(context, history)
        assert one.placement(context, history) == other.placement(context, history)
    assert one.size_bytes == other.size_bytes

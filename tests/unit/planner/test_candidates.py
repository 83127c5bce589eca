import math
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from proxy.kit.modes import Reason
from proxy.planner.candidates import CandidateInputs, Choice, OwnRequest, Pricing, choose
from proxy.planner.change_rates import FileWords
from proxy.planner.forecast import Candidate, forecast_of, piece_forecast
from proxy.planner.layout import Layout, PrefixSettings
from proxy.planner.observation import read_request
from proxy.planner.orders import moved_elements, request_elements
from proxy.planner.session import SessionTable
from proxy.planner.shadow import cost_of
from proxy.planner.tiers import Classic, ClassicPolicy, Tier, Tracked
from proxy.protocol.caches import Cache, Life, make_cache
from proxy.protocol.providers import DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT, CacheProfile, Family
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import Part, PartKind
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.request.transcript import Transcript
from tests.fidelity.chats import File
from tests.talk import MARK, TINY, Body, assistant, lines, read, shown, system, text_part, user, view_of

SEED = PrefixSettings(b"scope", b"")
SYSTEM = system(lines(40))
A, B = File("a.py", lines(60, "a")), File("b.py", lines(60, "b"))
LAID_OUT = [SYSTEM, *shown(A, B), user("one"), assistant("1"), user("fix b.py")]
PLAIN = [SYSTEM, user(lines(20)), assistant("1"), user("two")]


def given(
    messages: list[Body], profile: CacheProfile = TINY, cache: Cache | None = None, slots: int = 4
) -> tuple[CandidateInputs, Pricing]:
    """What is chosen from, for a request of an unknown client."""
    recognised, counter = view_of(*messages), TokenCounter(bytes_over_four)
    elements = request_elements(recognised, (), counter)
    table = SessionTable(capacity_bytes=1 << 20, prefix="s")
    session = table.find(table.place("team", "m", "", Transcript(read(messages)), b""))
    seen, is_stored = read_request(session, recognised, b"", 0.0), profile.stores_prefixes
    pieces = piece_forecast(session, seen, recognised, elements, FileWords(1 << 20), is_stored=is_stored)
    expected = forecast_of(session, seen, recognised, pieces, profile)
    natural = Layout(SEED, elements.natural)
    marks: dict[int, Life] = natural.own_marks() if profile.family is Family.MARKER else {}
    prompt = natural.prompt(marks)
    bill = (cache or make_cache(profile)).bill(prompt, 1.0)
    own = OwnRequest(natural, natural, marks, len(marks), False, prompt, bill, bill)
    inputs = CandidateInputs(own, elements, moved_elements(recognised, elements, counter), session, None, False)
    now = cost_of(profile, bill)
    pricing = Pricing(profile, cache or make_cache(profile), expected, 1.0, slots, 0, now, math.inf, None)
    return inputs, pricing


def best_of(inputs: CandidateInputs, pricing: Pricing, *, may_order: bool, policy: str) -> Choice:
    natural = pricing.read(inputs.own.natural, is_natural=True)
    return choose(inputs, natural, pricing, may_order=may_order, policy=policy)


def chosen(messages: list[Body], profile: CacheProfile = TINY, *, may_order: bool = True) -> Choice:
    inputs, pricing = given(messages, profile)
    return best_of(inputs, pricing, may_order=may_order, policy="economic")


@pytest.mark.parametrize(("target", "is_marked"), [(0, True), (100_000, False)])
def test_a_tier_that_is_too_small_has_no_marker_of_its_own(target: int, is_marked: bool) -> None:
    inputs, pricing = given(LAID_OUT)
    tracker = inputs.session.tracker = Classic(ClassicPolicy(target_tokens=target))
    items = inputs.elements.items.values()
    item = next(item for item in items if item.key.endswith("a.py"))
    tracker.seed(Tracked(item.key, item.digest, 500), Tier.L1)
    choice = best_of(inputs, pricing, may_order=True, policy="classic")
    elements = [e for e in choice.layout.elements if e.key.endswith("a.py")]
    assert [part.markable for part in elements[0].parts[:-1]] == [is_marked]


def test_the_clients_own_order_is_judged_by_where_its_context_will_stand() -> None:
    # The files are the last thing in front of the question: next time this exchange stands in front of them.
    inputs, pricing = given([SYSTEM, user(lines(30)), assistant("1"), *shown(A, B), user("two")], DEEPSEEK)
    own, as_if_files_stayed = (
        pricing.given_marks(pricing.read(inputs.own.natural, is_natural=known), {}, Reason.CLIENT_OPTIMAL).score
        for known in (True, False)
    )
    assert best_of(inputs, pricing, may_order=False, policy="economic").score == own
    assert own > as_if_files_stayed + 100


@pytest.mark.parametrize("profile", [OPENAI, DEEPSEEK, NONE])
def test_ties_go_to_the_client(profile: CacheProfile) -> None:
    choice = chosen(PLAIN, profile)
    assert (choice.reason, choice.marks) == (Reason.CLIENT_OPTIMAL, {})


def test_the_clients_markers_stay_and_take_their_slots_where_the_order_must_stay() -> None:
    messages = [system([text_part(lines(40), **MARK)]), user(lines(20)), assistant("1"), user("two")]
    inputs, pricing = given(messages)
    choice = best_of(inputs, pricing, may_order=False, policy="economic")
    assert inputs.own.marks.items() <= choice.marks.items()
    full = best_of(replace(inputs, own=replace(inputs.own, mark_count=4)), pricing, may_order=False, policy="economic")
    assert full.marks == inputs.own.marks


def test_what_would_cost_too_much_now_is_held_back() -> None:
    inputs, pricing = given(LAID_OUT)
    tight = replace(pricing, regret_budget=-1e9)
    choice = best_of(inputs, tight, may_order=True, policy="economic")
    assert (choice.reason, choice.layout, choice.marks) == (Reason.REGRET_BOUND, inputs.own.natural, {})


def test_the_chosen_one_is_never_scored_worse_than_the_clients_own() -> None:
    for messages in (PLAIN, LAID_OUT, [system("Time now: 2026-01-01 10:00\n" + lines(40)), user("go")]):
        inputs, pricing = given(messages)
        own = pricing.given_marks(pricing.read(inputs.own.natural), inputs.own.marks, Reason.CLIENT_OPTIMAL)
        assert best_of(inputs, pricing, may_order=True, policy="economic").score <= own.score


def test_the_layout_that_was_sent_before_goes_on_where_it_is_held() -> None:
    inputs, pricing = given(LAID_OUT)
    first = best_of(inputs, pricing, may_order=True, policy="economic")
    pricing.cache.store(first.layout.prompt(first.marks), 0.5, 0.5)
    inputs.session.layouts.append(tuple(e.digest for e in first.layout.elements))
    again = best_of(inputs, pricing, may_order=True, policy="economic")
    assert again.reason is Reason.KEPT
    assert again.bill.read > 0.5 * again.bill.total


def test_the_layout_goes_on_where_going_back_to_the_clients_order_would_cost_more() -> None:
    # Nothing of the client's own order is held by now.
    inputs, pricing = given(LAID_OUT)
    first = best_of(inputs, pricing, may_order=True, policy="economic")
    pricing.cache.store(first.layout.prompt(first.marks), 0.5, 0.5)
    inputs.session.layouts.append(tuple(e.digest for e in first.layout.elements))
    for used_up, reason in ((-100.0, Reason.KEPT), (-10.0 * inputs.own.natural.total, Reason.REGRET_BOUND)):
        again = best_of(inputs, replace(pricing, regret_budget=used_up), may_order=True, policy="economic")
        assert again.reason is reason


def test_what_it_costs_to_go_back_is_allowed_on_top_and_nothing_else_is() -> None:
    inputs, pricing = given(LAID_OUT)
    choice = pricing.given_marks(pricing.read(inputs.own.natural), {}, Reason.CLIENT_OPTIMAL)
    cost = cost_of(pricing.profile, choice.bill)
    tight = replace(pricing, own_now=cost - 10, regret_budget=4)
    assert not tight.is_allowed(choice)
    for dearer, is_allowed in ((0, False), (5, False), (7, True)):
        instead = replace(choice, bill=replace(choice.bill, plain=choice.bill.plain + dearer))
        assert tight.is_allowed(choice, instead) is is_allowed


def test_one_hour_for_as_much_as_the_client_asked_it_for() -> None:
    inputs, pricing = given(PLAIN)
    long = replace(pricing, long_until=inputs.own.natural.ends[0])
    choice = best_of(inputs, long, may_order=True, policy="economic")
    assert choice.marks == {0: "1h", **dict.fromkeys([p for p in choice.marks if p], "5m")}
    assert len(choice.marks) > 1


def test_one_hour_that_ends_in_front_of_every_marker_that_pays_still_has_one() -> None:
    inputs, pricing = given([system("short"), user(lines(60)), assistant("1"), user("two")])
    assert 0 not in best_of(inputs, replace(pricing, slots=1), may_order=True, policy="economic").marks
    for slots in (2, 4):
        long = replace(pricing, long_until=inputs.own.natural.ends[0], slots=slots)
        marks = best_of(inputs, long, may_order=True, policy="economic").marks
        assert marks == {0: "1h", **dict.fromkeys([p for p in marks if p], "5m")}
        assert 1 < len(marks) <= slots


@given_by(
    st.lists(st.tuples(st.integers(0, 400), st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=24),
    st.sampled_from([TINY, replace(TINY, min_tokens=500), OPENAI_EXPLICIT]),
    st.integers(0, 4),
)
def test_no_markers_score_less_than_the_bound(
    rows: list[tuple[int, float, bool]], profile: CacheProfile, slots: int
) -> None:
    _, pricing = given(PLAIN, profile, slots=slots)
    parts = [Part(PartKind.TEXT, b"%d" % i, tokens, -1, True) for i, (tokens, _, _) in enumerate(rows)]
    layout = Layout(
        SEED, [Element("turn", ElementKind.MESSAGE, p.digest, (p,), p.tokens, "user", i) for i, p in enumerate(parts)]
    )
    stored: dict[int, Life] = {p: "5m" for p, (_, _, is_held) in enumerate(rows) if is_held}
    pricing.cache.store(layout.prompt(stored), 0.5, 0.5)
    survival = [chance * pricing.forecast.body for chance in accumulate((chance for _, chance, _ in rows), min)]
    candidate = replace(pricing.read(layout), survival=survival)
    behind = candidate.held[-1] + 1 if candidate.held else 0
    least = pricing.least_score(layout.ends, survival, behind)
    assert least <= pricing.best_marks(candidate, Reason.ORDERED).score
    assert all(pricing.least_score(layout.ends, survival, more) <= least for more in range(behind, len(rows) + 1))


def test_what_is_left_out_would_not_have_won(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, pricing = given(LAID_OUT)
    first = best_of(inputs, pricing, may_order=True, policy="economic")
    pricing.cache.store(first.layout.prompt(first.marks), 0.5, 0.5)
    inputs.session.layouts.append(tuple(e.digest for e in first.layout.elements))
    searched: list[Choice] = []
    best_marks = Pricing.best_marks

    def counted(self: Pricing, candidate: Candidate, reason: Reason, kept: dict[int, Life], taken: int) -> Choice:
        searched.append(best_marks(self, candidate, reason, kept, taken))
        return searched[-1]

    monkeypatch.setattr(Pricing, "best_marks", counted)
    choice = best_of(inputs, pricing, may_order=True, policy="economic")
    few = len(searched)
    monkeypatch.setattr(Pricing, "least_score", lambda self, *_: float("-inf"))
    every = best_of(inputs, pricing, may_order=True, policy="economic")
    assert (choice.reason, choice.marks, choice.score) == (every.reason, every.marks, every.score)
    assert few < len(searched) - few

"""The last requests of a session: small rows, which two workers bring together without losing or doubling one."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from proxy.planner.record import KINDS
from proxy.planner.session_record import (
    DETAILS,
    MOST_REQUESTS,
    SessionDetails,
    SessionFacts,
    SessionRecord,
    SessionRequest,
    SessionSums,
)
from proxy.planner.sharing import unpacked
from proxy.services.session_book import packed

COUNTS = st.integers(0, 2**32 - 1)
USD = st.floats(-1e6, 1e6, width=32)
REQUEST = st.builds(
    SessionRequest,
    at=st.floats(0, 2e9),
    number=st.integers(0, 2**16 - 1),
    prompt=COUNTS, read=COUNTS, written=COUNTS, other_read=COUNTS, other_written=COUNTS,
    cost_usd=st.floats(0, 1e6, width=32), saved_usd=USD,
    kind=st.sampled_from(["", *KINDS]), culprit=st.sampled_from(["", "a", "b", "ü"]),
    line=st.integers(0, 2**16 - 1), before=COUNTS, tokens=COUNTS, lost=COUNTS, lost_usd=USD,
    is_waste=st.booleans(), is_refresh=st.booleans(), is_observed=st.booleans(),
)  # fmt: skip
# A worker counts its requests: no two rows have one time and one number.
REQUESTS_OF = st.lists(REQUEST, max_size=8, unique_by=lambda one: (one.at, one.number))


def of(requests: list[SessionRequest]) -> SessionDetails:
    found = SessionDetails()
    for one in requests:
        found = found.added(one)
    return found


@given(REQUESTS_OF)
def test_what_was_added_is_what_is_read(requests: list[SessionRequest]) -> None:
    kept = unpacked(DETAILS, packed(of(requests)))
    assert set(kept.requests()) == set(requests)


@given(REQUESTS_OF, REQUESTS_OF)
def test_two_versions_are_brought_together_in_any_order_and_as_often_as_one_likes(
    one: list[SessionRequest], other: list[SessionRequest]
) -> None:
    mine, theirs = of(one), of(other)
    both = mine.merged(theirs)
    assert set(both.requests()) == {*one, *other}
    assert list(both.requests()) == list(theirs.merged(mine).requests())
    assert both.merged(mine).rows == both.rows == both.merged(both).rows
    assert set(mine.merged(SessionDetails()).requests()) == set(one)
    later = mine.added(SessionRequest(at=3e9, culprit="later"))
    assert set(later.merged(mine).requests()) == set(mine.merged(later).requests()) == set(later.requests())
    assert [found.at for found in both.requests()] == sorted(found.at for found in both.requests())


def test_the_list_is_bounded_and_forgets_the_oldest() -> None:
    found = of([SessionRequest(at=float(number)) for number in range(MOST_REQUESTS + 50)])
    kept = list(found.requests())
    assert (len(kept), kept[0].at) == (MOST_REQUESTS, 50.0)
    later = found.merged(of([SessionRequest(at=1e6)]))
    assert [one.at for one in later.requests()][-2:] == [MOST_REQUESTS + 49, 1e6]
    assert len(later.rows) == MOST_REQUESTS


def test_a_part_of_a_row_is_passed_over() -> None:
    found = of([SessionRequest(at=1.0), SessionRequest(at=2.0)])
    first, last = found.rows
    assert [one.at for one in SessionDetails((first, last[:-1])).requests()] == [1.0]


def test_the_dearest_culprits_come_first() -> None:
    broke = {"a": 1.0, "b": 5.0, "c": 2.0, "": 9.0}
    found = of(
        [SessionRequest(at=1.0, number=n, culprit=name, lost_usd=usd) for n, (name, usd) in enumerate(broke.items())]
    )
    assert found.merged(found.added(SessionRequest(at=2.0, culprit="a", lost_usd=1.5))).dearest(2) == (
        ("b", 1, 5.0),
        ("a", 2, 2.5),
    )


def test_of_the_same_request_the_facts_of_who_has_served_it_count() -> None:
    early = SessionRecord("s", 1.0, SessionFacts(mode="tier"), {"b": SessionSums(at=5.0, requests=1)})
    late = structs.replace(early, facts=structs.replace(early.facts, tiers={"L0": 9}))
    assert early.merged(late, "a").facts.tiers == {"L0": 9}
    assert late.merged(early, "b").facts.tiers == {"L0": 9}


NAMES = st.text("ab? A", max_size=4)


@given(st.lists(NAMES, min_size=7, max_size=7), st.text("ab? A", max_size=6))
def test_a_session_is_found_by_words_each_of_which_is_part_of_a_name(names: list[str], words: str) -> None:
    session, team, key, user, model, client, mode = names
    facts = SessionFacts(team=team, key_id=key, user=user, model=model, client=client, mode=mode, reason="kept")
    record = SessionRecord(session, 1.0, facts)
    expected = all(any(word in name.lower() for name in names) for word in words.lower().split())
    assert record.is_found_by(words) is expected


@given(
    st.integers(1, 80), st.integers(), st.sampled_from([1.0, 60.0, 2000.0]), st.floats(0.0, 300.0), st.floats(0.1, 1.0)
)
def test_any_number_of_workers_count_each_request_once(
    workers: int, seed: int, pause_s: float, clocks_differ_s: float, written: float
) -> None:
    """A conversation may hop between more workers than have parts of their own. A worker may be replaced when it has
    written. One for which the store is away writes later: if there are others, within twenty minutes."""
    chance = Random(seed)
    stored = SessionRecord("s", 0.0)
    known: dict[int, tuple[SessionRecord, str]] = {}
    waiting: dict[int, list[float]] = {}
    now = 1000.0
    for number in range(200):
        now += chance.random() * pause_s
        worker = chance.randrange(workers)
        at = now + clocks_differ_s * worker / workers
        if chance.random() < 0.05 and worker not in waiting:
            known.pop(worker, None)
        record, part = known.get(worker, (SessionRecord("s", at), f"{worker}-{number}"))
        part = part if record.goes_on(part, at) else f"{worker}-{number}"
        counted = record.counted(part, SessionSums(at, 1), SessionFacts())
        # Its page of sessions is read, and nothing is written.
        known[worker] = counted.merged(stored, part) if chance.random() < 0.2 else counted, part
        waiting.setdefault(worker, []).append(at)
        is_late = {one for one, since in waiting.items() if workers > 1 and now - since[0] > 1200.0}
        for one in is_late | ({worker} if chance.random() < written else set()):
            record, part = known[one]
            stored = record.merged(stored, part)
            known[one] = stored, part
            del waiting[one]
        assert stored.total().requests == number + 1 - sum(map(len, waiting.values()))

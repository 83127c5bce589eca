"""What the facts of a store say to those who knew an epoch."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.storage import (
    StoreEpoch,
    epochs_not_accepted,
    facts_to_accept,
    facts_to_add,
    facts_to_replace,
    facts_to_restore,
    read_epoch,
)


def met(facts: dict[str, str], known: str, fresh: str) -> StoreEpoch:
    """Somebody who knew an epoch meets the store, and leaves facts."""
    for name, value in facts_to_add(facts, known, fresh).items():
        facts.setdefault(name, value)
    return read_epoch(facts, known)


def test_an_empty_store_is_trusted_by_who_knew_none() -> None:
    facts: dict[str, str] = {}
    assert met(facts, "", "e1") == StoreEpoch("e1")
    assert met(facts, "e1", "other") == StoreEpoch("e1")
    assert met(facts, "", "other") == StoreEpoch("e1")


def test_an_emptied_store_is_trusted_by_nobody_until_it_is_accepted() -> None:
    facts: dict[str, str] = {}
    assert met(facts, "e1", "e2") == StoreEpoch("e2", "e1")
    assert met(facts, "e1", "x") == StoreEpoch("e2", "e1")
    assert met(facts, "", "x") == StoreEpoch("e2", "e1"), "a worker that has just begun goes by the others"
    assert epochs_not_accepted(facts) == ["e1"]
    facts |= facts_to_accept(facts)
    assert met(facts, "e1", "x") == met(facts, "", "x") == met(facts, "e2", "x") == StoreEpoch("e2")
    assert epochs_not_accepted(facts) == []


def test_an_exchanged_store_is_distrusted_by_who_knew_another_and_by_nobody_else() -> None:
    facts: dict[str, str] = {}
    met(facts, "", "e9")
    assert met(facts, "e1", "x") == StoreEpoch("e9", "e1")
    assert met(facts, "e9", "x") == met(facts, "", "x") == StoreEpoch("e9")
    facts |= facts_to_accept(facts)
    assert not met(facts, "e1", "x").lost


def test_a_store_that_is_emptied_again_is_distrusted_again() -> None:
    facts: dict[str, str] = {}
    met(facts, "e1", "e2")
    facts |= facts_to_accept(facts)
    facts.clear()
    assert met(facts, "e2", "e3") == StoreEpoch("e3", "e2")
    assert met(facts, "e1", "x") == StoreEpoch("e3", "e1")
    facts |= facts_to_accept(facts)
    assert not met(facts, "e2", "x").lost
    assert not met(facts, "e1", "x").lost


def test_a_part_that_is_lost_begins_an_epoch_that_nobody_trusts() -> None:
    facts: dict[str, str] = {}
    met(facts, "", "e1")
    facts |= facts_to_replace(facts, "e2")
    assert met(facts, "e1", "x").lost
    assert met(facts, "", "x").lost


def test_a_restored_counter_counts_until_the_store_is_emptied_again() -> None:
    facts: dict[str, str] = {}
    met(facts, "", "e1")
    assert facts_to_restore(facts, "red:b") == {}, "a store that is in order keeps no such facts"
    facts = {}
    met(facts, "e1", "e2")
    facts |= facts_to_restore(facts, "red:b")
    assert met(facts, "e1", "x").restored == {"red:b"}
    facts |= facts_to_replace(facts, "e3")
    assert met(facts, "e1", "x").restored == frozenset()


@given(st.lists(st.sampled_from(["", "e1", "e2"]), min_size=1), st.data())
def test_the_order_in_which_workers_meet_an_emptied_store_matters_to_none_who_knew_it(
    who: list[str], data: st.DataObject
) -> None:
    """Whoever knew an epoch distrusts the new one, whoever came first; and all trust it once it is accepted."""
    facts: dict[str, str] = {}
    for number, known in enumerate(who):
        met(facts, known, f"new{number}")
    for known in ("e1", "e2"):
        if known in who:
            assert met(facts, known, "x").lost
    facts |= facts_to_accept(facts)
    assert not any(met(facts, known, "x").lost for known in who)

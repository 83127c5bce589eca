"""What does not fit goes, least recently used first."""

from proxy.kit.lru import Bounded, LastUsed


def filled(most: int, *sizes: int) -> Bounded[str, list[int]]:
    table: Bounded[str, list[int]] = Bounded(most, len)
    for number, size in enumerate(sizes):
        key = f"k{number}"
        table[key] = [0] * size
        table.used(key)
    return table


def test_the_oldest_go_when_there_is_no_more_room() -> None:
    table = filled(10, 4, 4, 4)
    assert (list(table), table.bytes) == (["k1", "k2"], 8)


def test_use_keeps_and_growth_is_weighed() -> None:
    table = filled(10, 3, 3, 3)
    table["k0"].append(1)
    table.used("k0")
    assert (list(table), table.bytes) == (["k1", "k2", "k0"], 10)
    table["k0"].append(1)
    table.used("k0")
    assert (list(table), table.bytes) == (["k2", "k0"], 8)


def test_what_is_in_use_stays_however_large() -> None:
    table = filled(10, 3, 99)
    assert list(table) == ["k1"]
    table["k2"] = [0]
    table.used("k2")
    assert (list(table), table.bytes) == (["k2"], 1)


def test_the_oldest_can_be_dropped() -> None:
    table = filled(10, 3, 3)
    table.drop_oldest()
    assert (list(table), table.bytes) == (["k1"], 3)


def test_there_are_never_more_entries_than_allowed() -> None:
    table: Bounded[str, str] = Bounded(100, len, most_entries=2)
    for key in ("a", "b", "a", "c"):
        table.put(key, key)
    assert (list(table), table.bytes) == (["a", "c"], 2)


def test_the_last_used_are_kept() -> None:
    table: LastUsed[str, int] = LastUsed(2)
    table.put("a", 1)
    table.put("b", 2)
    assert (table.find("a"), table.find("x")) == (1, None)
    table.put("c", 3)
    assert list(table) == ["a", "c"]
    table.put("a", 4)
    assert dict(table) == {"c": 3, "a": 4}


def test_the_weight_of_an_entry_is_that_of_its_last_use() -> None:
    table: Bounded[str, list[int]] = Bounded(100, len)
    table.put("a", [1, 2])
    table["a"].append(3)

    assert (table.weight_of("a"), table.weight_of("b")) == (2, 0)


def test_an_entry_that_is_dropped_weighs_nothing() -> None:
    table = filled(10, 4, 5)
    table.drop("k0")
    assert (list(table), table.bytes, table.weight_of("k0")) == (["k1"], 5, 0)


def test_a_table_is_half_empty_while_as_much_again_fits() -> None:
    assert filled(10, 4).is_half_empty
    assert not filled(10, 5).is_half_empty
    few: Bounded[str, str] = Bounded(10, len, most_entries=2)
    few.put("a", "b")
    assert not few.is_half_empty


def test_entries_that_were_set_directly_are_trimmed() -> None:
    table: LastUsed[int, int] = LastUsed(2)
    table.update({number: number for number in range(5)})
    table.trim()
    assert list(table) == [3, 4]

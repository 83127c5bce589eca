"""A history and its states."""

from proxy.demo.structured.package import Commit, History

HISTORY = History(
    "h", "made here", {"a": "1", "b": "1"},
    (Commit("one", {"b": "2", "c": "1"}), Commit("two", {"a": None}), Commit("three", {"a": "3", "b": "3"})),
)  # fmt: skip


def test_each_state_is_the_one_before_with_the_commit() -> None:
    assert HISTORY.states() == [
        {"a": "1", "b": "1"}, {"a": "1", "b": "2", "c": "1"}, {"b": "2", "c": "1"}, {"b": "3", "c": "1", "a": "3"},
    ]  # fmt: skip
    assert HISTORY.files == {"a": "1", "b": "1"}


def test_what_changes_is_listed_once_in_the_order_of_the_first_change() -> None:
    assert HISTORY.changed() == ["b", "c", "a"]

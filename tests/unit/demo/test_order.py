"""Whether the messages of a conversation have arrived in their order."""

import pytest

from proxy.demo.order import in_order


@pytest.mark.parametrize(
    ("wanted", "said", "number"),
    [("ab", "xaxbx", None), ("aa", "aba", None), ("", "", None), ("aa", "ab", 2), ("ab", "ba", 2), ("c", "ab", 1)],
)
def test_the_first_message_that_is_missing_or_out_of_order_is_named(wanted: str, said: str, number: int | None) -> None:
    expected = [] if number is None else [f"message {number} of the conversation is missing, or out of order"]
    assert list(in_order(wanted, said)) == expected

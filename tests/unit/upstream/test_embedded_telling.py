"""The embedded provider of ``serve`` says at the beginning of each text what its cache did."""

import pytest

from proxy.protocol.caches import Bill
from proxy.protocol.providers import ANTHROPIC, NONE, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import told, write


@pytest.mark.parametrize(
    ("bill", "profile", "said"),
    [
        (Bill(4000, 100, 50, 7), ANTHROPIC, "4,000 of 4,157 prompt tokens were read from the cache, and 150 were"),
        (Bill(0, 4000, 0, 7), ANTHROPIC, "0 of 4,007 prompt tokens were read from the cache, and 4,000 were written."),
        (Bill(0, 0, 0, 1023), ANTHROPIC, "1,023 prompt tokens are too few for this provider's cache, which begins at"),
        (Bill(0, 0, 0, 1024), ANTHROPIC, "none of the 1,024 prompt tokens were read from the cache."),
        (Bill(0, 0, 0, 9), NONE, "none of the 9 prompt tokens were read from the cache."),
    ],
)
def test_it_says_what_was_billed(bill: Bill, profile: CacheProfile, said: str) -> None:
    assert told(bill, profile).startswith(f"(This is the offline model: {said}")


@pytest.mark.parametrize("limit", [1, 3, 10, 20, 40, 1000])
def test_no_answer_is_longer_than_was_asked_for(limit: int) -> None:
    opening = told(Bill(4000, 100, 50, 7), ANTHROPIC)
    answer = write(b"seed", 60, limit, bytes_over_four, opening)
    assert answer.tokens <= max(limit, 2), "of one word at least"
    assert f"{opening} ".startswith("".join(answer.pieces)[: len(opening)])
    assert ("".join(answer.pieces).startswith(f"{opening} ")) == (limit >= 40)

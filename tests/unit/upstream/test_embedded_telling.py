"""The embedded provider of ``serve`` says at the beginning of each text what its cache did."""

import pytest

from proxy.core.caches.prompt import Bill
from proxy.core.providers import ANTHROPIC, NONE, CacheProfile
from proxy.upstream.embedded.completion import told


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

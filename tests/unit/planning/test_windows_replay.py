"""A session of 300 turns at a full window keeps the hit rate that it had below the window, through the real planner and
a provider that really caches."""

import pytest

from proxy.core.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.core.window.profile import Capability, CapabilityProfile
from tests.window_replay import BY_TOKENS, TURNS, Replay

pytestmark = pytest.mark.slow

BY_MESSAGES = CapabilityProfile("chat", Capability.CHAT, tail_messages=60)


@pytest.mark.parametrize("cache", [ANTHROPIC, OPENAI], ids=lambda cache: cache.name)
@pytest.mark.parametrize(
    ("profile", "is_loop"),
    [(BY_TOKENS, False), (BY_TOKENS, True), (BY_MESSAGES, False)],
    ids=["conversation", "tool-loop", "60-messages"],
)
def test_a_full_window_keeps_nine_tenths_of_the_hit_rate_and_the_session_is_known(
    cache: CacheProfile, profile: CapabilityProfile, is_loop: bool
) -> None:
    replay = Replay(cache, profile)
    replay.run(is_loop=is_loop)
    first = replay.first_cut
    below, full = replay.hit_rate(0, first), replay.hit_rate(first, TURNS)
    print(f"{cache.name}: {below:.4f} below the window ({first} requests), {full:.4f} at the window")
    assert full >= 0.9 * below
    # A conversation whose front is gone is found by its newest turns: no hint of the client's is needed.
    assert len(replay.sessions) == 1

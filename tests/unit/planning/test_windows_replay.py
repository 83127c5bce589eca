"""A session of 300 turns at a full window keeps the hit rate that it had below the window, through the real planner and
a provider that really caches."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from proxy.core.modes import Mode
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.core.request.route import Route
from proxy.core.request.tokens import bytes_over_four
from proxy.core.response.usage import Usage
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.planning.model_facts import ModelFacts
from proxy.planning.windows import ContextWindows
from proxy.ports import Deployment, Transport
from proxy.upstream.embedded.provider import Provider
from tests.talk import RECOGNISERS, Body, assistant, calling, result, system, tool, user
from tests.windows import TEXTS, text_of

pytestmark = pytest.mark.slow

WINDOW = 64_000
TURN = WINDOW // 100
TURNS = 300
# Some room for the answer; the rest of the window is the prompt's.
BY_TOKENS = CapabilityProfile("chat", Capability.CHAT, window_tokens=WINDOW, output_tokens=2_000)
BY_MESSAGES = CapabilityProfile("chat", Capability.CHAT, tail_messages=60)


@dataclass(slots=True)
class Replay:
    """One session. Of each request that was sent: the tokens read from the cache, all of them, and how many messages
    were left out."""

    cache: CacheProfile
    profile: CapabilityProfile
    sessions: set[str] = field(default_factory=set)
    rows: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, *, is_loop: bool) -> None:
        planner = TierPlanner(bytes_over_four, RECOGNISERS)
        windows = ContextWindows(planner.reader, ModelFacts(), TEXTS)
        provider = Provider(self.cache, bytes_over_four)
        messages = [system(text_of(2 * TURN, "rules "))]
        for number in range(TURNS):
            self._say(messages, number, is_loop=is_loop)
            self._send(messages, number * 20.0, planner, windows, provider)

    def _say(self, messages: list[Body], number: int, *, is_loop: bool) -> None:
        """A turn of a hundredth of the window: a question behind the last answer, or one more result in a tool loop."""
        if number and is_loop:
            messages += [calling(f"c{number}"), result(f"c{number}", text_of(TURN - 30, f"result {number} "))]
            return
        if number:
            messages.append(assistant(text_of(TURN - TURN // 4, f"answer {number} ")))
        messages.append(user(text_of(TURN // 4, f"question {number} ")))

    def _send(
        self, messages: list[Body], now: float, planner: TierPlanner, windows: ContextWindows, provider: Provider
    ) -> None:
        body = json.dumps({"model": "m", "messages": messages, "tools": [tool("t")]}).encode()
        deployment = Deployment("m", "m", Transport.EMBEDDED, self.cache)
        fitted = asyncio.run(windows.fitted(planner.reader.parse(body), self.profile, None, deployment))
        plan = planner.plan(fitted.body, Route("s", "m", "m", self.cache), Mode.TIER, now)
        assert plan.surprise is None
        self.sessions.add(plan.session)
        reply = provider.chat(plan.body, "account", now, 1)
        reply.store(now)
        bill = reply.bill
        planner.on_accepted(plan, now)
        usage = Usage(bill.total, 1, bill.read, bill.write_5m, bill.write_1h, writes_told=True, lives_told=True)
        planner.on_completed(plan, usage, now)
        self.rows.append((bill.read, bill.total, sum(fitted.edits.values())))

    @property
    def first_cut(self) -> int:
        return next(number for number, (_, _, trimmed) in enumerate(self.rows) if trimmed)

    def hit_rate(self, first: int, behind: int) -> float:
        return sum(row[0] for row in self.rows[first:behind]) / sum(row[1] for row in self.rows[first:behind])


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

"""A long session that outgrows its context window, through the real planner and a provider that really caches."""

import asyncio
import json
from dataclasses import dataclass, field

from proxy.engine.ports import ComposedRequest
from proxy.kit.modes import Mode
from proxy.models import Deployment, Transport
from proxy.planner import TierPlanner
from proxy.prompts.window import Capability, CapabilityProfile
from proxy.protocol.caches import Bill
from proxy.protocol.providers import CacheProfile
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services import ModelFacts
from proxy.services.windows import ContextWindows
from proxy.upstream.embedded.provider import Provider
from tests.talk import RECOGNISERS, Body, assistant, calling, result, system, tool, user
from tests.windows import TEXTS, text_of, tokens_of

WINDOW = 64_000
TURN = WINDOW // 100
TURNS = 300
# Some room for the answer; the rest of the window is for the prompt.
BY_TOKENS = CapabilityProfile("chat", Capability.CHAT, window_tokens=WINDOW, output_tokens=2_000)


@dataclass(frozen=True, slots=True)
class Row:
    """One sent request: the bill of the provider, and the number of messages that were left out."""

    bill: Bill
    trimmed: int


@dataclass(slots=True)
class Replay:
    """One session. Without a ``profile`` its client drops its oldest turn whenever the next one does not fit."""

    cache: CacheProfile
    profile: CapabilityProfile | None
    sessions: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)

    def run(self, *, is_loop: bool = False) -> None:
        planner = TierPlanner(bytes_over_four, RECOGNISERS)
        windows = ContextWindows(planner.reader, bytes_over_four, ModelFacts(), TEXTS)
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
        dropped = _drop_oldest(messages) if self.profile is None else 0
        body = json.dumps({"model": "m", "messages": messages, "tools": [tool("t")]}).encode()
        if self.profile is not None:
            deployment = Deployment("m", "m", Transport.EMBEDDED, self.cache)
            parsed, composed = planner.reader.parse(body), ComposedRequest(profile=self.profile)
            fitted = asyncio.run(windows.fitted(parsed, composed, deployment))
            body, dropped = fitted.body, sum(fitted.edits.values())
        plan = planner.plan(body, Route("s", "m", "m", self.cache), Mode.TIER, now)
        assert plan.surprise is None
        self.sessions.add(plan.session)
        reply = provider.chat(plan.body, "account", now, 1)
        reply.store(now)
        bill = reply.bill
        planner.on_accepted(plan, now)
        usage = Usage(bill.total, 1, bill.read, bill.write_5m, bill.write_1h, writes_told=True, lives_told=True)
        planner.on_completed(plan, usage, now)
        self.rows.append(Row(bill, dropped))

    @property
    def first_cut(self) -> int:
        return next(number for number, row in enumerate(self.rows) if row.trimmed)

    def hit_rate(self, first: int, behind: int) -> float:
        bills = [row.bill for row in self.rows[first:behind]]
        return sum(bill.read for bill in bills) / sum(bill.total for bill in bills)


def _drop_oldest(messages: list[Body]) -> int:
    """Drop the oldest questions with their answers until the rest fits. Returns the number of dropped messages."""
    room, before = BY_TOKENS.window_tokens, len(messages)
    assert room is not None
    while tokens_of(messages) > room - BY_TOKENS.output_tokens - BY_TOKENS.margin_tokens:
        del messages[1:3]
    return before - len(messages)

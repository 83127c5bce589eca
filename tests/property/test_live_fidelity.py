"""Random sessions with panels and a described history through the real assembler: what is assembled is what the client
asked for, by the rules of the independent checker, in each order, and also in the form that is sent where an upstream
refuses the other one.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.app.factories import load_context_texts
from proxy.context.history import cuts, ruled
from proxy.context.session import AssembledChat, AssemblyOptions
from proxy.kit.modes import Mode
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import Arrangement, ContextAssembler, Resolved
from tests.compactions import compaction_of
from tests.examples import examples
from tests.fidelity.checker import check
from tests.fidelity.live import LiveSession, LiveTerms, check_live
from tests.fidelity.live_chats import NOW_S, Body, LiveChat
from tests.fidelity.live_strategies import live_chats, live_sessions
from tests.talk import Talk

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@dataclass
class Worker:
    """One worker of the proxy and one session: what it assembles is judged at once."""

    policy: str = "economic"
    profile: CacheProfile = ANTHROPIC
    mode: Mode = Mode.TIER
    repeats: bool = False
    is_growing: bool = True
    now_s: float = NOW_S
    in_front: LiveSession = field(default_factory=LiveSession)
    as_sent: LiveSession = field(default_factory=LiveSession)

    def __post_init__(self) -> None:
        repeats_for = frozenset({self.profile.name} if self.repeats else ())
        options = AssemblyOptions(self.policy, detach=None, repeats_for=repeats_for)
        self.assembler = ContextAssembler(load_context_texts(), bytes_over_four, None, options)
        self.talk = Talk(profile=self.profile, policy=self.policy)

    def ask(self, body: Body, *, after_s: float = 10.0) -> Resolved:
        """A request that is answered and counts."""
        self.now_s += after_s
        raw = json.dumps(body, ensure_ascii=False).encode()
        resolved, chat = self._assembled(raw)
        price = Price.relative(self.profile.read, self.profile.write, self.profile.write_long)
        assembler = self.assembler
        placement = assembler.place(chat, self.profile)
        arrangement = assembler.arrange(chat, placement, self.profile, self.mode, price)
        terms = LiveTerms(self.now_s, tokens=lambda message: 1, allows_compaction=True, repeats=self.repeats)
        front = LiveTerms(self.now_s, False, tokens=lambda message: 1, allows_compaction=True, repeats=self.repeats)
        is_within = arrangement.kind == "economic" and self.mode > Mode.OBSERVE
        self._hold(body, arrangement.body, self.as_sent, terms if is_within else front)
        self._hold(body, arrangement.fallback, self.in_front, front)
        assert check_live(body, json.loads(chat.body), front) == []
        self._plan(arrangement)
        arrangement.counted(None)
        return resolved

    def _plan(self, arrangement: Arrangement) -> None:
        """What the planner makes of the assembled request, by the rules for any other client's."""
        self.talk.mode, self.talk.now = arrangement.mode, self.now_s
        plan = self.talk.send(arrangement.body, after_s=0.0)
        mode = arrangement.mode.name.lower()
        found = check(json.loads(arrangement.body), json.loads(plan.body), mode=mode, profile=self.profile.name)
        assert found == [], list(map(str, found))

    def _assembled(self, raw: bytes) -> tuple[Resolved, AssembledChat]:
        sent, subject = parse_body(raw), self.assembler
        resolved = subject.resolve(subject.read(sent), "key", "")
        context = subject.context(resolved, subject.index(resolved))
        chat, counted, blocks = subject.assembled(resolved, context, self.now_s)
        subject.know(resolved, counted, blocks)
        subject.remember(resolved, chat)
        return resolved, chat

    def _hold(self, body: Body, sent: bytes, session: LiveSession, terms: LiveTerms) -> None:
        check = session.check if self.is_growing else check_live
        found = check(body, json.loads(sent), terms)
        assert found == [], list(map(str, found))

    def compact(self, resolved: Resolved, at: int, summary: str) -> bool:
        """The session's conversation goes on without its oldest messages; at one of the places where that may be."""
        history = ruled(resolved.conversation, resolved.form.metas)
        turns = history.conversation.turns
        allowed = [cut for cut in cuts(turns)[:-1] if cut > 0 and history.origins[cut] > 0]
        if not allowed:
            return False
        covered = history.origins[allowed[at % len(allowed)]]
        resolved.session.state = replace(
            resolved.session.state, compaction=compaction_of(history, covered, covered, summary)
        )
        return True


workers = st.builds(
    Worker,
    policy=st.sampled_from(["economic", "economic", "classic"]),
    profile=st.sampled_from([ANTHROPIC, OPENAI]),
    mode=st.sampled_from([Mode.TIER, Mode.TIER, Mode.MARK, Mode.OBSERVE]),
    repeats=st.booleans(),
)


@given(workers, st.one_of(live_chats(), live_chats(is_long=True)))
@settings(max_examples=examples(120), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_one_request_is_faithful(worker: Worker, chat: LiveChat) -> None:
    worker.ask(chat.original())


@given(workers, live_sessions(), st.data())
@settings(max_examples=examples(300), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_a_session_is_faithful(worker: Worker, session: list[Body], data: Any) -> None:
    hold(worker, session, data)


@pytest.mark.slow
@given(workers, live_sessions(is_rewritten=True), st.data())
@settings(max_examples=examples(80), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_a_session_whose_client_rewrites_its_conversation_is_faithful(
    worker: Worker, session: list[Body], data: Any
) -> None:
    worker.is_growing = False
    hold(worker, session, data)


@pytest.mark.parametrize("policy", ["economic", "classic"])
def test_frozen_parts_stay_in_their_order_whatever_their_sizes_and_changes(policy: str) -> None:
    worker = Worker(policy, OPENAI, is_growing=False)
    minimums = {"chunk_messages": 2, "keep_messages": 2, "chunk_tokens": 1, "keep_tokens": 1}
    section = {"session": "s", "panels": [{"id": "p", "content": "x"}], "detach": minimums}
    for first in ("one", "two"):
        talk = [first, "a", "short", "b", "long " * 99, "c", "longer " * 999, "d", "q", "e", "now"]
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(talk)]
        worker.ask({"model": "m", "messages": messages, "stratiform": section})


def hold(worker: Worker, session: list[Body], data: Any) -> None:
    """A session under the rules; perhaps its conversation is shortened on the way."""
    for body in session:
        resolved = worker.ask(body, after_s=data.draw(st.sampled_from([0.2, 10.0, 4_000.0])))
        if body["stratiform"].get("compaction") and data.draw(st.booleans()):
            worker.compact(resolved, data.draw(st.integers(0, 3)), data.draw(st.sampled_from(["", "In short."])))

"""Which conversations are looked at, and what is remembered of the answers."""

from dataclasses import replace

import pytest

from proxy.app.factories import load_context_texts
from proxy.context import StructuredContext
from proxy.kit.modes import Mode
from proxy.planner.tiers import Tracked
from proxy.protocol.providers import NONE
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services import ModelFacts
from proxy.services.context_assembler import ContextAssembler
from proxy.services.context_sessions import Compactions, CompactionWork
from tests.compactions import TEXTS
from tests.unit.services.test_own_exchanges_compactor import GOOD, TERMS, Scene


async def planned(scene: Scene, exchanges: int = 30) -> CompactionWork | None:
    return await scene.compactions.plan(scene.chat(exchanges), scene.deployment)


async def test_what_does_not_pay_is_not_asked_again_before_the_conversation_has_grown() -> None:
    scene = Scene()
    cached = replace(NONE, name="cached", read=0.001, write=1.25)
    scene.deployment = replace(scene.deployment, profile=cached)
    await scene.ask()
    session = scene.assembler.sessions.session("key", "talk")
    assert session.attempts.declined_tokens > 1_000
    scene.deployment = replace(scene.deployment, profile=NONE)
    await scene.ask(31)
    assert scene.upstream.calls == []
    await scene.ask(34)
    assert scene.count("summarized") == 1


async def test_an_answer_for_a_session_that_was_forgotten_is_forgotten_too() -> None:
    scene = Scene()
    chat = scene.chat(30)
    work = await scene.compactions.plan(chat, scene.deployment)
    other = ContextAssembler(load_context_texts(), bytes_over_four)
    facts = ModelFacts(lambda of: (None, None), lambda of: None)
    elsewhere = Compactions(other.sessions, TERMS, TEXTS, facts)
    assert elsewhere.answered(work, GOOD) == "outdated"
    assert other.sessions.known(chat.scope, chat.session) is None
    elsewhere.failed(work.key)
    elsewhere.put_off(work)


async def test_of_two_answers_for_one_conversation_the_first_counts() -> None:
    scene = Scene()
    work = await scene.compactions.plan(scene.chat(30), scene.deployment)
    assert work is not None
    assert scene.compactions.answered(work, GOOD) == "summarized"
    assert scene.compactions.answered(work, GOOD.replace("counted", "slept")) == "outdated"


async def test_a_nearly_full_window_is_no_matter_of_price() -> None:
    scene = Scene(profile=replace(NONE, name="cached", read=0.001, write=1.25))
    assert await planned(scene) is None
    scene.is_full = True
    assert await planned(scene) is not None


async def test_after_a_success_the_conversation_has_to_grow_by_a_tenth_of_what_is_left() -> None:
    scene = Scene()
    work = await planned(scene)
    scene.compactions.answered(work, GOOD)
    left = scene.assembler.sessions.session("key", "talk").attempts.tried_tokens
    assert 0 < left < work.tokens
    assert await planned(scene) is None


async def test_the_tiers_forget_the_turns_whose_places_are_others_now() -> None:
    scene = Scene()
    work = await planned(scene)
    assert work is not None
    tracker = scene.assembler.sessions.session("key", "talk").tracker
    tracker.settle(StructuredContext(), [Tracked("history:0", b"turn", 100)])
    assert len(tracker.purge_history()) == 1
    tracker.settle(StructuredContext(), [Tracked("history:0", b"turn", 100)])
    scene.compactions.answered(work, GOOD)
    assert tracker.purge_history() == []


@pytest.mark.parametrize("exchanges", [0, 1, 2])
async def test_what_cannot_have_so_many_tokens_is_not_even_counted(exchanges: int) -> None:
    scene = Scene()
    assert await planned(scene, exchanges) is None
    assert scene.assembler.sessions.session("key", "talk").attempts.declined_tokens == 0


async def test_the_summary_counts_among_what_the_session_takes() -> None:
    scene = Scene()
    work = await planned(scene)
    assert work is not None
    before = scene.assembler.sessions.session("key", "talk").bytes
    scene.compactions.answered(work, GOOD.replace("They counted.", "x" * 3_000))
    assert scene.assembler.sessions.session("key", "talk").bytes >= before + 3_000


@pytest.mark.parametrize(
    ("prompt", "most", "expected"), [(85, 100, True), (84, 100, False), (10**9, None, False), (10**9, 0, False)]
)
def test_a_window_is_nearly_full_at_85_percent(prompt: int, most: int | None, *, expected: bool) -> None:
    assembler = ContextAssembler(load_context_texts(), bytes_over_four)
    sent = parse_body(b'{"model":"m","messages":[{"role":"user","content":"q"}],"stratiform":{"session":"s"}}')
    chat = assembler.chat_of(sent, "key")
    assembler.arrange(chat, None, NONE, Mode.TIER, None, most).counted(Usage(prompt, 1))
    terms = assembler.sessions.session("key", "s").terms
    assert terms.is_full is expected

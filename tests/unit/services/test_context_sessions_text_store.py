"""Texts of clients in the store: written behind, found by another process, and never waited for without end."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.client import review_digest
from proxy.context.form import text_digest
from proxy.context.session import MOST_TEXT_BYTES, AssemblyOptions, blob_name, packed_text
from proxy.engine.exchange import Principal
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import MissingContent
from proxy.kit.tasks import Aside
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import ContextAssembler
from proxy.services.context_sessions import RENEWED_S, TextStore
from proxy.services.planner_port import StructuredChats
from tests.unit.services.parts import Recorder
from tests.waiting import until_async

NOW = 1_700_000_000.0
A, B = "a = 1\n" * 50, "b = 'é'\n" * 50


@dataclass
class Worker:
    """One process: what assembles there, and what it has of the store."""

    store: Recorder
    now: float = NOW
    failures: list[str] = field(default_factory=list)
    memory_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        aside = Aside()
        self.texts = TextStore(self.store, lambda: self.now, self.failures.append, aside, is_shared=True)
        options = AssemblyOptions(text_bytes=self.memory_bytes)
        assembler = ContextAssembler(load_context_texts(), bytes_over_four, None, options)
        self.chats = StructuredChats(assembler, aside, Metrics(), self.texts)

    async def ask(self, *files: str | tuple[str], scope: str = "key", **section: Any) -> bytes:
        """The body that goes on; a text in brackets is named by its digest."""
        listed = [
            {"path": f"f{n}", "digest": text_digest(each[0]), "selected": True}
            if isinstance(each, tuple)
            else {"path": f"f{n}", "content": each, "selected": True}
            for n, each in enumerate(files)
        ]
        messages = [{"role": "user", "content": "q"}]
        body = orjson.dumps({"model": "m", "messages": messages, "stratiform": {"files": listed, **section}})
        return (await self.chats.assemble(parse_body(body), Principal(scope=scope), 0.0)).body

    async def missing(self, *files: str | tuple[str], scope: str = "key", **section: Any) -> tuple[str, ...]:
        with pytest.raises(MissingContent) as found:
            await self.ask(*files, scope=scope, **section)
        return found.value.missing


@pytest.fixture
def store() -> Recorder:
    return Recorder()


async def test_another_worker_knows_what_one_was_sent(store: Recorder) -> None:
    one, two = Worker(store), Worker(store)
    sent = await one.ask(A, B)
    await until_async(lambda: store.saves)
    await one.chats.aclose()
    assert await two.ask((A,), (B,)) == sent
    names = [blob_name(text_digest(text)) for text in (A, B)]
    assert store.loads == [("key:texts", names)], "one call for all of them"
    assert await two.ask((A,), (B,)) == sent
    assert len(store.loads) == 1, "what is in memory is not asked for"
    assert (one.failures, two.failures) == ([], [])


async def test_a_review_is_kept_like_a_text(store: Recorder) -> None:
    review = {"branch": "topic", "log": "the log of it", "reverse_diffs": {"./a.py": "-1"}}
    one, two = Worker(store), Worker(store)
    sent = await one.ask(A, review=review)
    await one.chats.aclose()
    assert b"the log of it" in sent
    assert await two.ask((A,), review={"digest": review_digest(review)}) == sent


async def test_another_client_gets_nothing(store: Recorder) -> None:
    one, two = Worker(store), Worker(store)
    await one.ask(A)
    await one.chats.aclose()
    for scope in ("other", "key:texts", "", "ke"):
        assert await two.missing((A,), scope=scope) == (text_digest(A),)


@pytest.mark.parametrize("blob", [packed_text(B, NOW), b"", b"\0" * 100, A.encode(), packed_text(A, NOW)[:-1]])
async def test_a_store_puts_no_other_text_into_a_prompt(store: Recorder, blob: bytes) -> None:
    await store.save("key:texts", {blob_name(text_digest(A)): blob}, 60.0, NOW)
    worker = Worker(store)
    assert await worker.missing((A,)) == (text_digest(A),)
    await worker.ask(A)
    await worker.chats.aclose()
    assert b"a = 1" in await Worker(store).ask((A,)), "the right text has taken its place"


async def test_what_is_missing_in_the_store_too_is_named_alone(store: Recorder) -> None:
    one, two = Worker(store), Worker(store)
    await one.ask(A)
    await one.chats.aclose()
    assert await two.missing((A,), (B,)) == (text_digest(B),)
    assert b"a = 1" in await two.ask((A,), B)


async def test_a_store_that_does_not_answer_is_the_ordinary_refusal(store: Recorder) -> None:
    store.answers.clear()
    worker = Worker(store)
    missing = await asyncio.wait_for(worker.missing((A,)), 60)
    assert missing == (text_digest(A),)
    assert worker.failures == ["load"]
    store.answers.set()
    await worker.chats.aclose()


async def test_a_text_is_written_once_and_again_while_it_is_used(store: Recorder) -> None:
    worker = Worker(store)
    for _ in range(3):
        await worker.ask(A)
        await worker.ask((A,))
    await until_async(lambda: store.saves)
    worker.now += RENEWED_S - 1
    await worker.ask((A,))
    worker.now += 2
    await worker.ask((A,))
    await until_async(lambda: len(store.saves) == 2)
    await worker.chats.aclose()
    assert len(store.saves) == 2


async def test_a_text_from_the_store_is_as_old_as_it_is_there(store: Recorder) -> None:
    one = Worker(store)
    await one.ask(A)
    await one.chats.aclose()
    young, old = Worker(store, now=NOW + 60), Worker(store, now=NOW + RENEWED_S + 1)
    await young.ask((A,))
    await young.chats.aclose()
    assert len(store.saves) == 1
    await old.ask((A,))
    await old.chats.aclose()
    assert len(store.saves) == 2


async def test_what_the_store_has_lost_is_written_again(store: Recorder) -> None:
    worker = Worker(store, memory_bytes=1)
    await worker.ask(A)
    await until_async(lambda: store.saves)
    await store.save("key:texts", {blob_name(text_digest(A)): b""}, 60.0, NOW)
    assert await worker.missing((A,)) == (text_digest(A),)
    await worker.ask(A)
    await worker.chats.aclose()
    assert b"a = 1" in await Worker(store).ask((A,))


async def test_a_request_works_whose_texts_have_no_room_in_memory(store: Recorder) -> None:
    worker = Worker(store, memory_bytes=1)
    sent = await worker.ask(A, B)
    await until_async(lambda: sum(len(names) for _, names in store.saves) == 2)
    assert await worker.ask((A,), (B,)) == sent


async def test_a_very_large_text_is_not_kept(store: Recorder) -> None:
    worker = Worker(store)
    await worker.ask("x" * MOST_TEXT_BYTES, A)
    await worker.chats.aclose()
    assert [(scope, list(blobs)) for scope, blobs in store.saves] == [("key:texts", [blob_name(text_digest(A))])]


async def test_hundreds_of_texts_come_back_together(store: Recorder) -> None:
    texts = [f"number = {n}\n" * 300 for n in range(400)]
    one, two = Worker(store), Worker(store)
    sent = await one.ask(*texts)
    await one.chats.aclose()
    two_sent = await two.ask(*((text,) for text in texts))
    assert two_sent == sent
    assert sum(len(names) for _, names in store.loads) == 400


async def test_a_request_that_is_given_up_costs_another_one_nothing(store: Recorder) -> None:
    await store.save("key:texts", {blob_name(text_digest(A)): packed_text(A, NOW)}, 60.0, NOW)
    store.answers.clear()
    worker = Worker(store)
    given_up = asyncio.create_task(worker.ask((A,)))
    other = asyncio.create_task(worker.ask((A,)))
    await until_async(lambda: store.loads)
    given_up.cancel()
    store.answers.set()
    assert b"a = 1" in await other


async def test_a_store_that_is_away_is_not_asked_for_each_text(
    store: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.services.layout_state._PAUSE_S", 3600.0)

    store.fails = True
    worker = Worker(store)
    for _ in range(3):
        assert await worker.missing((A,)) == (text_digest(A),)
    assert len(store.loads) == 1

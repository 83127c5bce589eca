"""What a request or an answer stands for is priced before it is unfolded, and done in turns with everybody else."""

import contextlib
import hashlib
import threading
import time
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from plugins.symbol_index import indexer as parsing
from plugins.symbol_index.indexer import TreeSitterIndexer
from proxy.app.factories import load_context_texts
from proxy.context import ContextFile
from proxy.context.form import text_digest
from proxy.context.session import MOST_UNFOLDED_CHARS, AssemblyOptions
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.errors import PayloadTooLarge
from proxy.kit.modes import Mode
from proxy.kit.tasks import LARGE_BYTES, work_in
from proxy.planner import TierPlanner
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import parse_body
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import Encode, quick
from proxy.protocol.response import StreamFold
from proxy.services import local_encode
from proxy.services.context_assembler import ContextAssembler
from tests.examples import examples
from tests.security.provider import Answer
from tests.security.unfolding import Unfolding, body, hard_text, unfolding
from tests.security.world import World

CHAT = "/v1/chat/completions"
CODE = "value = compute(a, b)\n"
# The goal is half a second for a megabyte; these leave room for a machine that does other things, too.
FREE_S, S_PER_MB = 0.5, 2.0


@cache
def counting() -> Encode:
    """The server's own; to read its table takes a second."""
    encode = quick(local_encode())
    encode("Its table is read with the first text.")
    return encode


def served_bytes(assembler: ContextAssembler, planner: TierPlanner, sent: bytes, now: float) -> int:
    """Do for a request what the proxy does in front of its call; how many bytes it sends."""
    route = Route("key", "m", "m", PROFILES["anthropic"], hint="s")
    chat = assembler.chat_of(parse_body(sent), "key", now=now)
    placement = assembler.place(chat, route.profile)
    arranged = assembler.arrange(chat, placement, route.profile, Mode.TIER, None)
    plan = arranged.concluded(planner.plan(arranged.body, route, arranged.mode, now), Mode.TIER)
    planner.on_completed(plan, None, now)
    arranged.counted(None)
    return len(plan.body)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(unfolding(300_000))
def test_a_request_takes_time_for_what_it_stands_for_and_not_more(found: Unfolding) -> None:
    # A machine that does other things may take twice as long once. Each try begins without any memory.
    tries = (_slowest(found) for _ in range(3))
    assert any(share < 1 for share in tries), found


def _slowest(found: Unfolding) -> float:
    """The processor time of the slowest of these requests, as a share of the time that it may take."""
    assembler = ContextAssembler(load_context_texts(), counting(), TreeSitterIndexer(), AssemblyOptions())
    planner, shares = TierPlanner(counting(), recognisers(build_plugin_manager())), [0.0]
    for number, sent in enumerate(found.bodies):
        began_s, size = time.process_time(), 0
        with contextlib.suppress(PayloadTooLarge):
            size = served_bytes(assembler, planner, sent, 60.0 * number)
        taken_s = time.process_time() - began_s
        assert size < len(sent) + 2 * MOST_UNFOLDED_CHARS
        shares.append(taken_s / (FREE_S + S_PER_MB * max(len(sent), size) / 1e6))
    return max(shares)


# What digests stand for


@pytest.mark.parametrize("is_selected", [True, False])
def test_a_text_that_is_named_many_times_is_refused_before_it_is_unfolded(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_selected: bool
) -> None:
    text = CODE * 45_000 if is_selected else "".join(f"def f{n}_{'x' * 60}(a):\n    pass\n" for n in range(400))
    assert world.call("POST", CHAT, body({"files": [{"path": "up.py", "content": text}]})).status == 200
    assert len(world.sent()) == 1
    monkeypatch.setattr(ContextAssembler, "assembled", None)
    count = 60 if is_selected else 3_000
    files = [{"path": f"f{n}.py", "digest": text_digest(text), "selected": is_selected} for n in range(count)]
    reply = world.call("POST", CHAT, body({"files": files}))
    assert (reply.status, reply.error_code) == (413, "request_too_large")
    told = reply.json["error"]
    assert told["param"] == "stratiform"
    assert f"at most {MOST_UNFOLDED_CHARS}" in told["message"]
    assert len(world.sent()) == 1


def test_what_a_session_keeps_counts_as_what_is_sent() -> None:
    assembler = ContextAssembler(load_context_texts(), counting(), None, AssemblyOptions(most_chars=100_000))
    review = {"reverse_diffs": {"a.py": CODE * 3_000}}
    sent = [body({"session": "s", "review": review}), body({"session": "s", "urls": [{"url": "u", "content": CODE}]})]
    for each in sent:
        assembler.chat_of(parse_body(each), "key")
    page = {"url": "u", "content": CODE * 3_000}
    with pytest.raises(PayloadTooLarge, match=f"at most {100_000}"):
        assembler.chat_of(parse_body(body({"session": "s", "urls": [page]})), "key")
    assert assembler.chat_of(parse_body(body({"session": "s", "review": None, "urls": [page]})), "key").body


# Many small things


NEST = ("a<", ">", "b")
MANY: dict[str, tuple[str, bytes]] = {
    "messages": ("read", body({"session": "s", "files": []}, [{"role": "user", "content": "a"}] * 300)),
    "frozen messages": (
        "assembled",
        body(
            {"panels": [], "detach": {"chunk_messages": 1, "chunk_tokens": 1, "keep_messages": 1, "keep_tokens": 1}},
            [{"role": ("user", "assistant")[n % 2], "content": f"{n}"} for n in range(300)],
        ),
    ),
    "files": ("index", body({"files": [{"path": f"f{n}.py", "content": f"a = {n}"} for n in range(300)]})),
    "one hard text": ("index", body({"files": [{"path": "a.cpp", "content": hard_text("cpp", NEST, 60_000)}]})),
}


@pytest.mark.parametrize("name", MANY)
def test_many_small_things_are_not_read_on_the_event_loop(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, sent = MANY[name]
    assert len(sent) < LARGE_BYTES
    threads: list[str] = []
    work = getattr(ContextAssembler, step)

    def noting(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return work(*args)

    monkeypatch.setattr(ContextAssembler, step, noting)
    assert world.call("POST", CHAT, sent).status == 200
    assert [name.startswith("stratiform-") for name in threads] == [True]


def test_the_work_about_a_body_grows_with_its_objects_and_is_no_less_than_its_bytes() -> None:
    assert work_in(b"x" * 1_000) == 1_000
    assert work_in(b'{"messages":[' + b"{}," * 200 + b"{}]}") > LARGE_BYTES
    assert work_in(b"{" * (LARGE_BYTES + 1)) == LARGE_BYTES + 1


# Texts that are dear to parse


def source(path: str, text: str) -> ContextFile:
    return ContextFile(path, text, hashlib.sha256(text.encode()).hexdigest(), False)


def test_texts_that_are_dear_to_parse_have_a_bound_together() -> None:
    texts = [source(f"f{n}.php", f"<?php\n{'a,' * 500}b{n}\n") for n in range(600)]
    began_s = time.thread_time()
    TreeSitterIndexer().index(texts, {})
    # Without the bound it is twenty seconds.
    assert time.thread_time() - began_s < 4 * (0.1 + 600 * 0.1e-3 + 0.6 * 0.7)


def test_what_had_no_time_is_read_for_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [source(f"f{n}.py", f"def f{n}(): pass") for n in range(20)]
    indexer = TreeSitterIndexer()
    with monkeypatch.context() as patched:
        patched.setattr(parsing.TimeBudget, "is_spent", True)
        assert indexer.index(files, {}).blocks == {}
    assert indexer.index(files, {}).blocks == TreeSitterIndexer().index(files, {}).blocks != {}


def test_a_text_with_too_many_nodes_has_no_symbols_and_an_honest_table_has() -> None:
    table = "TABLE = (\n" + "    1, 22, 333, 4,\n" * 500 + ")\n"
    dense = "x = [" + "a," * 5_000 + "]\n"
    blocks = TreeSitterIndexer().index([source("table.py", table), source("dense.py", dense)], {}).blocks
    assert blocks.keys() == {"table.py"}


# Answers


@pytest.mark.parametrize("unit", [b":\n\n", b":\r\r", b"data: {}\n\n", b"id: 1\n\n"])
def test_a_stream_of_many_small_events_is_looked_at_in_turns_with_others(
    world: World, unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    feed = StreamFold.feed

    def noting(fold: StreamFold, chunk: bytes) -> bytes:
        sizes.append(len(chunk))
        return feed(fold, chunk)

    monkeypatch.setattr(StreamFold, "feed", noting)
    said = unit * (200_000 // len(unit)) + b'\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
    world.providers["alpha"].script = lambda seen: Answer(200, (said,), [("content-type", "text/event-stream")])
    asked = {"model": "cheap", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16, "stream": True}
    reply = world.call("POST", CHAT, asked)
    assert (reply.status, reply.body) == (200, said)
    assert sum(sizes) == len(said)
    assert max(sizes) <= 16 << 10

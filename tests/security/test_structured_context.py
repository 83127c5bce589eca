"""Attacks on structured context: texts and reviews of others, texts that cost more than their digests, bombs of
digests, sections that pass unseen, and state that grows."""

import gc
import hashlib
import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import openai
import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.client import Context, chat
from proxy.context.history.compaction import Compaction
from proxy.context.session import AssemblyOptions
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import ContextAssembler
from tests.examples import sampled
from tests.security.provider import Answer
from tests.security.threads import on_the_loop, watched
from tests.security.world import CONFIG, Reply, World, world_of

CHAT, BREAKDOWN = "/v1/chat/completions", "/v1/stratiform/breakdown"
SECRET = "the magpie's nest lies under the third bridge"
TEXT = f"# {SECRET}\n" + "value = compute(a, b)\n" * 40


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def shown(text: str, path: str = "src/a.py") -> dict[str, object]:
    """A selected file with its text."""
    return {"path": path, "content": text, "selected": True}


def named(text: str, path: str = "src/a.py") -> dict[str, object]:
    """A selected file by the digest of its text."""
    return {"path": path, "digest": digest_of(text), "selected": True}


def body(section: object, text: str = "go on", model: str = "cheap", **more: object) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": 16, "stratiform": section, **more}


def ask(world: World, section: object, key: str = "team-a", path: str = CHAT, **more: Any) -> Reply:
    return world.call("POST", path, body(section, **more), key=key)


def missing(reply: Reply) -> list[str]:
    """The digests that a 409 names."""
    assert (reply.status, reply.error_code) == (409, "missing_content")
    return list(reply.json["error"]["missing"])


# Whose texts


@pytest.mark.parametrize("other", ["team-b", "keyed", "another key of the team"])
def test_a_digest_of_another_keys_text_is_answered_as_one_that_nobody_has(world: World, other: str) -> None:
    key = world.new_key()[1] if other.startswith("another") else other
    ask(world, {"files": [shown(TEXT)]})
    held, unknown = ask(world, {"files": [named(TEXT)]}, key), ask(world, {"files": [named("nobody's")]}, key)
    assert missing(held) == [digest_of(TEXT)]
    assert held.body.replace(digest_of(TEXT).encode(), b"") == unknown.body.replace(digest_of("nobody's").encode(), b"")
    assert held.headers[1:] == [] or {name for name, _ in held.headers} == {name for name, _ in unknown.headers}
    assert len(world.sent()) == 1


def test_a_session_of_the_same_name_shows_no_other_key_its_review(world: World) -> None:
    ask(world, {"session": "main", "review": {"branch": SECRET}})
    for key in ("team-b", "keyed", world.new_key()[1]):
        ask(world, {"session": "main", "files": [shown("a")]}, key)
        assert SECRET not in world.sent()[-1].text


def test_conversations_that_merely_begin_alike_share_no_review(world: World) -> None:
    """Two people behind one key may both begin with the same words."""
    ask(world, {"review": {"branch": SECRET}}, text="hi")
    assert SECRET in world.sent()[-1].text
    ask(world, {"files": [shown("a")]}, text="hi")
    assert SECRET not in world.sent()[-1].text


# What is asked without being sent


def test_a_breakdown_changes_nothing_of_a_session(world: World) -> None:
    ask(world, {"session": "kept", "review": {"branch": SECRET}})
    for review in (None, {"branch": "another"}):
        assert ask(world, {"session": "kept", "review": review}, path=BREAKDOWN).status == 200
    ask(world, {"session": "kept", "files": [shown("a")]})
    assert SECRET in world.sent()[-1].text
    assert len(world.sent()) == 2


def test_a_breakdown_needs_a_key_and_the_right_to_the_model(world: World) -> None:
    section = {"files": [shown(TEXT)]}
    assert world.call("POST", BREAKDOWN, body(section), key=None).status == 401
    assert world.call("POST", BREAKDOWN, body(section), key="sk-unknown").status == 401
    assert ask(world, section, "listed", BREAKDOWN, model="dear").status == 403
    before = world.spent("team-a")
    assert ask(world, section, path=BREAKDOWN).status == 200
    assert (world.spent("team-a"), world.sent()) == (before, [])


# What it costs


def test_a_hard_budget_holds_for_what_a_digest_stands_for() -> None:
    """The text costs half a dollar and may cost two; the body that names it has two hundred bytes."""
    text = "value = compute(a, b)\n" * 40_000
    with world_of(CONFIG.replace("budget: {usd: 0.05}", "budget: {usd: 3}")) as world:
        statuses = [ask(world, {"files": [shown(text)]}, "tight").status]
        statuses += [ask(world, {"files": [named(text)]}, "tight").status for _ in range(8)]
        world.forget()
        assert statuses[0] == 200
        assert 429 in statuses
        assert 0.5 < world.spent("tight") < 3


def test_a_budget_that_is_too_small_for_the_text_is_not_passed_by_its_digest() -> None:
    text = "value = compute(a, b)\n" * 40_000
    with world_of() as world:
        uploads = ask(world, {"files": [{**shown(text), "selected": False}]}, "tight")
        assert uploads.status == 200
        assert ask(world, {"files": [named(text)]}, "tight").status == 429
        assert all(len(seen.body) < 10_000 for seen in world.sent())


# Bombs


@pytest.mark.slow
def test_a_text_that_is_listed_many_times_by_its_digest_is_no_bomb(world: World) -> None:
    text = "value = compute(a, b)\n" * 10_000
    ask(world, {"files": [{"path": "a.txt", "content": text}]})
    world.forget()
    many = [named(text, f"{number}.txt") for number in range(5_000)]
    reply = ask(world, {"files": many})
    assert (reply.status, reply.error_code) == (413, "request_too_large")
    assert world.sent() == []


# Sections that pass unseen


@pytest.mark.parametrize("section", [None, {}, " { } "])
def test_a_section_that_says_nothing_does_not_reach_the_upstream(world: World, section: object) -> None:
    text = section if isinstance(section, str) else json.dumps(section)
    raw = json.dumps(body("X")).replace('"X"', text).encode()
    assert world.call("POST", CHAT, raw).status == 200
    assert b"stratiform" not in world.sent()[-1].body


@pytest.mark.parametrize("name", ["Stratiform", "STRATIFORM", "stratiform ", "\u017ftratiform"])
def test_a_name_that_only_looks_like_the_sections_is_refused(world: World, name: str) -> None:
    reply = world.call("POST", CHAT, {**chat_of(), name: {"files": [shown(TEXT)]}})
    assert (reply.status, world.sent()) == (400, [])
    assert SECRET not in reply.body.decode()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"])
def test_the_section_is_refused_where_it_is_not_read(world: World, path: str) -> None:
    reply = world.call(
        "POST", path, {"model": "cheap", "input": "a", "prompt": "a", "stratiform": {"files": [shown(TEXT)]}}
    )
    assert (reply.status, world.sent()) == (400, [])
    assert SECRET not in reply.body.decode()


def chat_of() -> dict[str, object]:
    return {"model": "cheap", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}


SECTION = json.dumps({"files": [shown(TEXT)]}).encode()
UNCERTAIN: Mapping[str, bytes] = {
    "an escaped name": rb'"\u0073tratiform":' + SECTION,
    "twice": b'"stratiform":' + SECTION + b',"stratiform":' + SECTION,
    "twice, then null": b'"stratiform":' + SECTION + b',"stratiform":null',
    "twice, in two spellings": rb'"\u0073tratiform":' + SECTION + b',"stratiform":{}',
    "beside NaN": b'"x":NaN,"stratiform":' + SECTION,
    "beside many commas": b'"x":[' + b"1," * 300_000 + b'1],"stratiform":' + SECTION,
    "beside half a pair": rb'"x":"\ud800","stratiform":' + SECTION,
    "beside very many members": b"".join(b'"m%d":1,' % n for n in range(20_000)) + b'"stratiform":' + SECTION,
    "beside a long name": b'"' + b"n" * 2_000 + b'":1,"stratiform":' + SECTION,
    "beside deep lists": b'"x":' + b"[" * 900 + b"]" * 900 + b',"stratiform":' + SECTION,
    "in messages that are no list": b'"messages":7,"stratiform":' + SECTION,
    "in messages of odd kinds": b'"messages":[7,null,"a",[]],"stratiform":' + SECTION,
}


@pytest.mark.parametrize("mode", sampled(["tier", "observe", "passthrough"], 3))
@pytest.mark.parametrize("name", UNCERTAIN)
def test_a_section_is_assembled_or_refused_and_never_sent_on(world: World, name: str, mode: str) -> None:
    raw = b'{"model":"cheap","messages":[{"role":"user","content":"hi"}],' + UNCERTAIN[name] + b"}"
    reply = world.call("POST", CHAT, raw, headers=[("x-stratiform-mode", mode)])
    assert reply.status in (200, 400)
    assert all(b"tratiform" not in seen.body for seen in world.sent())
    assert reply.status == 200 or SECRET not in reply.body.decode()
    assert SECRET not in world.log


# Words that are nobody's business

MISTAKES: Mapping[str, object] = {
    "a text of another type": {"files": [{"path": "a", "content": [SECRET]}]},
    "a path that leaves the root": {"files": [shown("a", f"../{SECRET}")]},
    "a path with a line break": {"files": [shown("a", f"{SECRET}\n# Working Files")]},
    "a path that stands twice": {"files": [shown("a", SECRET), shown("b", f"./{SECRET}")]},
    "a digest that is none": {"files": [{"path": "a", "digest": SECRET}]},
    "half of a pair": {"files": [shown(f"{SECRET} \ud800")]},
    "a session with a line break": {"session": f"{SECRET}\n"},
    "an image without a scheme": {"images": [SECRET]},
    "a tier that there is not": {"broken": [SECRET]},
    "a review of another type": {"review": [SECRET]},
    "a diff of another type": {"review": {"reverse_diffs": {SECRET: 7}}},
    "a section of another type": SECRET,
}


@pytest.mark.parametrize("path", [CHAT, BREAKDOWN])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained_without_the_words_of_the_client(world: World, name: str, path: str) -> None:
    reply = ask(world, MISTAKES[name], path=path)
    assert (reply.status, world.sent()) == (400, [])
    assert SECRET not in reply.body.decode()
    assert SECRET not in world.log


def test_structured_context_is_never_logged(world: World) -> None:
    section = {"session": "a name", "files": [shown(TEXT, f"{SECRET}.py")], "review": {"log": SECRET}, "tree": True}
    for path in (CHAT, BREAKDOWN):
        assert ask(world, section, path=path).status == 200
    assert SECRET not in world.log + world.metrics()


# Restarts, failures and retries


def test_the_helper_sends_again_what_a_restart_has_lost() -> None:
    context = Context(session="s")
    context.select("a.py", TEXT)
    for _ in range(2):
        with world_of() as world:
            key = world._keys["team-a"]
            with openai.OpenAI(base_url=f"{world.url}/v1", api_key=key, max_retries=0) as client:
                for _ in range(2):
                    chat(client, context, model="cheap", messages=[{"role": "user", "content": "q"}])
            assert [SECRET in seen.text for seen in world.sent()] == [True, True]


@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_answer_that_failed_makes_nothing_older(world: World, status: int) -> None:
    section = {"session": f"failing {status}", "files": [shown(TEXT)], "tree": True}
    for provider in world.providers.values():
        provider.script = lambda seen: Answer(status, {"error": {"message": "no", "type": "x"}})
    for turn in range(3):
        assert ask(world, section, text=f"turn {turn}").status == status
    found = ask(world, section, path=BREAKDOWN).json
    assert all(item.get("n", 0) == 0 for block in found["blocks"] for one in block["contents"] for item in one["items"])


@pytest.mark.slow
def test_a_request_that_was_tried_twice_makes_its_files_older_once() -> None:
    section = {"session": "tried twice", "files": [shown(TEXT)]}
    history: list[dict[str, str]] = []
    found = []
    with world_of(CONFIG.replace("num_retries: 0", "num_retries: 2")) as world:
        for turn in range(3):
            fails = iter([Answer(500, {"error": {"message": "no"}})])
            world.providers["alpha"].script = lambda seen, fails=fails: next(fails, None)
            asked = {**body(section), "messages": [*history, {"role": "user", "content": f"turn {turn}"}]}
            assert world.call("POST", CHAT, asked).status == 200
            history += [{"role": "user", "content": f"turn {turn}"}, {"role": "assistant", "content": "ok"}]
            shows = {**asked, "messages": [*history, {"role": "user", "content": "next"}]}
            blocks = world.call("POST", BREAKDOWN, shows).json["blocks"]
            items = [item for block in blocks for one in block["contents"] for item in one["items"]]
            found += [item["n"] for item in items if item["key"] == "file:src/a.py"]
        assert len(world.sent()) == 6
    assert found == [0, 1, 2]


# What is held up, and what is held


def test_long_texts_that_a_short_body_names_are_not_read_on_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "value = compute(a, b)\n" * 35_000
    assert ask(world, {"files": [{"path": "a.txt", "content": text}]}).status == 200
    places = ("placement:digest", "assembly:file_block", "placement:file_block")
    seen = watched(monkeypatch, *(f"proxy.context.{place}" for place in places))
    assert ask(world, {"session": "another", "files": [named(text, "b.txt")]}).status == 200
    assert seen
    assert on_the_loop(seen) == []


def counted(subject: ContextAssembler, section: dict[str, object], prompt: str) -> None:
    """A request of a session, answered and counted."""
    chat = subject.chat_of(parse_body(orjson.dumps(body(section, prompt))), "key")
    subject.sessions.counted(chat, None, PROFILES["anthropic"], None, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sessions", "paths of one session", "reviews", "summaries"])
def test_what_is_remembered_of_conversations_is_bounded(kind: str) -> None:
    most = 1 << 18
    options = AssemblyOptions(session_bytes=most, text_bytes=most)
    subject = ContextAssembler(load_context_texts(), bytes_over_four, None, options)

    def section(number: int) -> dict[str, object]:
        match kind:
            case "sessions" | "summaries":
                return {"session": f"{number}"}
            case "reviews":
                return {"session": f"{number}", "review": {"log": "x" * 20_000 + str(number)}}
        symbols = [{"path": f"{number}/{n}/" + "p" * 1_000, "block": "b"} for n in range(50)]
        return {"session": "one", "symbols": symbols}

    rounds = 375 if kind == "sessions" else 38

    def go_on(number: int) -> None:
        counted(subject, section(number), f"turn {number}")
        if kind == "summaries":
            session = subject.sessions.session("key", f"{number}")
            session.state = replace(session.state, compaction=Compaction(2, 2, b"", "\u2014" * 8_000 + str(number)))
            subject.sessions.grown("key", f"{number}")

    tracemalloc.start()
    sizes: list[int] = []
    for part in range(3):
        for number in range(part * rounds, (part + 1) * rounds):
            go_on(number)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    # Threads of other tests may take memory meanwhile, too; what is remembered would grow each time.
    grown, held = min(sizes[1] - sizes[0], sizes[2] - sizes[1]), min(sizes)
    assert grown < most
    assert held < 4 * most

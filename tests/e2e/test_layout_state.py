"""A session keeps its layout on whichever worker its requests land, and over a restart; a store that is away costs
nothing but that."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from proxy.kit.modes import Reason
from tests.doubles import serving
from tests.e2e.fleet import CLAUDE, KEY, chat, claude_configuration
from tests.e2e.provider import Scripted, completion, embedded_app, new_embedded, replies
from tests.fidelity.chats import EDITABLE_ACK, EDITABLE_OPENING
from tests.fidelity.signed import SignedThinking
from tests.redis_server import RedisServer
from tests.whole import whole_of

pytestmark = pytest.mark.slow

RULES = "\n".join(f"Rule {n}: answer question {n} in at most {n + 3} words, and name a source." for n in range(200))
TURNS = 12


def file(path: str, version: int) -> str:
    body = "\n".join(f"def {path[:-3]}_{n}():\n    return {n}" for n in range(80))
    return f"\n{path}\n```\n{body}\nVERSION = {version}\n```\n"


def session(name: str, turns: int = TURNS) -> Iterator[list[dict[str, Any]]]:
    """An editor that shows its files in front of the question, one of which changes every time; the time of day stands
    in its instructions."""
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        system = f"You are {name}'s helper.\n{RULES}\nIt is 10:{turn:02}.\nBe brief."
        shown = EDITABLE_OPENING + file("stable.py", 0) + file("library.py", 0) + file("hot.py", turn)
        question = {"role": "user", "content": f"{name} asks {turn}: what does function {turn} return, and why?"}
        yield [
            {"role": "system", "content": system},
            *history,
            {"role": "user", "content": shown},
            {"role": "assistant", "content": EDITABLE_ACK},
            question,
        ]
        history += [question, {"role": "assistant", "content": f"Number {turn}, as line {2 * turn} says. " * 8}]


def ask(url: str, messages: list[dict[str, Any]]) -> tuple[int, int]:
    """(read, prompt) as the provider reports them."""
    body = {"model": CLAUDE, "messages": messages, "max_tokens": 10}
    with chat(url, body) as answer:
        usage = json.load(answer)["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def hit_rate(urls: Sequence[str], name: str, turns: int = TURNS) -> float:
    """Of one session whose requests go to these proxies in turn."""
    read = prompt = 0
    for number, messages in enumerate(session(name, turns)):
        one, whole = ask(urls[number % len(urls)], messages)
        read, prompt = read + one, prompt + whole
    return read / prompt


def test_a_session_that_alternates_between_two_reads_what_it_reads_on_one(tmp_path: Path, redis: RedisServer) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(embedded_app(new_embedded())))
        one = stack.enter_context(whole_of(tmp_path / "one", claude_configuration(upstream, "memory")))
        alone = hit_rate([one], "Ann")
        urls = [
            stack.enter_context(whole_of(tmp_path / name, claude_configuration(upstream, redis.url)))
            for name in ("a", "b")
        ]
        together = hit_rate(urls, "Bob")
        # What another session has taught is there for the next one, too: its first request is laid out right.
        again = hit_rate(urls, "Cid")
        strangers = [
            stack.enter_context(whole_of(tmp_path / name, claude_configuration(upstream, "memory")))
            for name in ("c", "d")
        ]
        apart = hit_rate(strangers, "Dan")
    assert abs(together - alone) <= 0.01, (alone, together, apart)
    assert again >= together - 0.01
    assert apart < alone - 0.02, "without the store the workers know less: the test would notice"


def test_teams_share_nothing(tmp_path: Path, redis: RedisServer) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(embedded_app(new_embedded())))
        proxy = stack.enter_context(whole_of(tmp_path / "proxy", claude_configuration(upstream, redis.url)))
        hit_rate([proxy], "Ann", turns=3)
        keys = [key for key in redis.ask("KEYS", "stratiform:{s:*").split("\r\n") if key.startswith("stratiform")]
        assert {key.rpartition(":")[2] for key in keys} == {"blobs", "until", "sizes"}
        # What is shown of sessions may have been written already.
        shown = {f"stratiform:{{s:{name}}}" for name in ("sessions", "session-details")}
        assert len({key.rpartition(":")[0] for key in keys} - shown) == 1, "one scope for one key"
        text = "".join(redis.ask("HVALS", key, errors="replace") for key in keys if key.endswith("blobs"))
        assert "Rule 7" not in text, "no text of a prompt"
        assert "asks" not in text
        assert KEY not in text


def test_a_restart_goes_on_where_it_stopped(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(embedded_app(new_embedded())))
        one = stack.enter_context(whole_of(tmp_path / "one", claude_configuration(upstream, "memory")))
        steady = [ask(one, messages) for messages in session("Ann")]
        requests = list(session("Bob"))
        with whole_of(tmp_path / "first", claude_configuration(upstream, store)) as first:
            restarted = [ask(first, messages) for messages in requests[:6]]
        with whole_of(tmp_path / "second", claude_configuration(upstream, store)) as second:
            restarted += [ask(second, messages) for messages in requests[6:]]
    assert sum(read for read, _ in restarted) >= sum(read for read, _ in steady) * 0.99, (steady, restarted)


def test_a_store_that_is_away_is_not_waited_for(tmp_path: Path, redis: RedisServer) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(embedded_app(new_embedded())))
        proxy = stack.enter_context(whole_of(tmp_path / "proxy", claude_configuration(upstream, redis.url)))
        requests = list(session("Ann"))
        seen = [ask(proxy, messages) for messages in requests[:4]]
        redis.pause()
        try:
            ask(proxy, requests[4])  # finds out that the store is away
            seen += [ask(proxy, messages) for messages in requests[5:13]]
        finally:
            redis.resume()
    assert all(read > 0 for read, _ in seen[4:]), "its own memory serves meanwhile"


def reflecting(name: str, turns: int = 6) -> Iterator[list[dict[str, Any]]]:
    """The same editor, which answers each answer once more before it shows its files anew; the model signs its
    thoughts."""
    for number, messages in enumerate(session(name, turns)):
        yield messages
        seal = {"type": "thinking", "thinking": "Hm.", "signature": f"c2ln{number}"}
        answer = {"role": "assistant", "content": "So it is.", "thinking_blocks": [seal]}
        yield [*messages, answer, {"role": "user", "content": "Are you sure?"}]


def signed_faults(
    urls: Sequence[str], provider: Scripted, requests: Sequence[list[dict[str, Any]]], history: SignedThinking
) -> tuple[int, int]:
    """How often the rule on signed thinking is broken by requests that go to these proxies in turn, and in how many of
    them something stands in another place in front of signed thinking than the client has it."""
    faults = moved = 0
    for number, messages in enumerate(requests):
        with chat(urls[number % len(urls)], {"model": CLAUDE, "messages": messages}) as answer:
            moved += answer.headers["x-stratiform-reason"] == Reason.SIGNED_THINKING
            answer.read()
        original, sent = {"model": CLAUDE, "messages": messages}, provider.seen[-1].json
        faults += len(history.check(original, sent, mode="tier", profile="anthropic"))
    return faults, moved


def test_what_signed_thinking_binds_is_the_same_on_every_worker(tmp_path: Path, redis: RedisServer) -> None:
    provider = Scripted(replies(completion()))
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(provider))
        urls = [
            stack.enter_context(whole_of(tmp_path / name, claude_configuration(upstream, redis.url)))
            for name in ("a", "b")
        ]
        faults, moved = signed_faults(urls, provider, list(reflecting("Ann")), SignedThinking())
    assert faults == 0
    assert moved >= 3


def test_what_signed_thinking_binds_is_the_same_after_a_restart(tmp_path: Path) -> None:
    provider, requests, history = Scripted(replies(completion())), list(reflecting("Ann")), SignedThinking()
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(provider))
        with whole_of(tmp_path / "first", claude_configuration(upstream, store)) as first:
            assert signed_faults([first], provider, requests[:7], history)[0] == 0
        with whole_of(tmp_path / "second", claude_configuration(upstream, store)) as second:
            assert signed_faults([second], provider, requests[7:8], history) == (0, 1)

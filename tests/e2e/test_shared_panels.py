"""Live panels stay where they are among proxies that share a Redis. (Restarts: contract/test_live_sessions.py.)"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.doubles import serving
from tests.e2e.fleet import CLAUDE, chat, claude_configuration
from tests.redis_server import RedisServer
from tests.security.provider import RecordingProvider
from tests.waiting import until
from tests.whole import whole_of

pytestmark = pytest.mark.slow

TURNS = [{"todo": "1", "tree": "a"}, {"todo": "2", "tree": "a"}, {"todo": "2", "tree": "a"}, {"todo": "2", "tree": "b"}]
"""What the panels show. What changes in the second turn moves to the end, and stays there until it changes again."""


def ask(url: str, turn: int) -> None:
    # A long request waits longer for a store on a machine that does much at once.
    messages = [{"role": "system", "content": "brief " * 20_000}]
    for number in range(turn):
        messages += [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
    panels = [{"id": name, "kind": "own", "header": name, "content": text} for name, text in TURNS[turn].items()]
    body = {
        "model": CLAUDE,
        "messages": [*messages, {"role": "user", "content": f"q{turn}"}],
        "max_tokens": 10,
        "stratiform": {"session": "s", "panels": panels},
    }
    with chat(url, body) as answer:
        assert answer.status == 200


@pytest.fixture
def provider() -> RecordingProvider:
    return RecordingProvider("alpha")


@pytest.fixture
def upstream(provider: RecordingProvider) -> Iterator[str]:
    with serving(provider) as url:
        yield url


def plain(message: dict[str, Any]) -> tuple[str, str, str]:
    """The message without markers: its role, its words and its calls."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    return message["role"], content or "", json.dumps(message.get("tool_calls"))


def is_appended(provider: RecordingProvider) -> list[bool]:
    """Of each request but the first, whether it begins with all messages of the one before."""
    sent = [[plain(message) for message in seen.json["messages"]] for seen in provider.seen]
    return [after[: len(before)] == before for before, after in pairwise(sent)]


def kept(redis: RedisServer) -> list[str]:
    """What Redis holds of boards of panels."""
    keys = [key for key in redis.ask("KEYS", "*panels}:blobs").split("\r\n") if "panels" in key]
    return [redis.ask("HGETALL", key, errors="replace") for key in keys]


def test_two_workers_with_one_redis_know_each_others_panels(
    tmp_path: Path, upstream: str, provider: RecordingProvider, redis: RedisServer
) -> None:
    settings = claude_configuration(upstream, redis.url)
    with ExitStack() as stack:
        proxies = [stack.enter_context(whole_of(tmp_path / name, settings)) for name in ("one", "two")]
        for turn in range(len(TURNS)):
            before = kept(redis)
            ask(proxies[turn % 2], turn)
            # What a worker keeps of a turn is written behind its answer.
            until(lambda before=before: kept(redis) != before)
    assert is_appended(provider) == [False, True, False]

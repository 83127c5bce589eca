"""A proxy that is killed while it waits for a summary: nothing of the conversation is lost, and the call is booked."""

import asyncio
import json
import sqlite3
import urllib.request
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.doubles import serving
from tests.e2e.fleet import KEY, configuration, fleet
from tests.e2e.test_compaction import GOOD, SUMMARY, is_asked, said
from tests.security.provider import Answer, RecordingProvider, Seen
from tests.waiting import until

pytestmark = pytest.mark.slow

_PRICES = {"input_cost_per_token": 2e-6, "output_cost_per_token": 1e-5}


def config(provider: str, store: Path) -> dict[str, object]:
    terms = {"allowed": True, "min_history_tokens": 2_000, "verbatim_tokens": 300, "summary_tokens": 60}
    found = configuration(provider, f"sqlite:{store}", structured={"compaction": terms})
    found["model_list"] = [
        {
            "model_name": "m",
            "litellm_params": {"model": "openai/cheap-1", "api_base": f"{provider}/v1", "api_key": "none"},
            "model_info": {"transport": "http"},
        }
    ]
    found["stratiform"] |= {"prices": {"cheap-1": _PRICES}}  # type: ignore[operator]
    return found


def turns(number: int) -> list[dict[str, str]]:
    found = [{"role": "system", "content": "Be exact."}]
    for at in range(number):
        found += [
            {"role": "user", "content": f"question {at} " * 80},
            {"role": "assistant", "content": f"answer {at} " * 80},
        ]
    return [*found, {"role": "user", "content": f"question {number} " * 80}]


def ask(url: str, number: int) -> None:
    section = {"session": "s", "compaction": True}
    body = {"model": "m", "max_tokens": 5, "messages": turns(number), "stratiform": section}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


async def never() -> AsyncIterator[bytes]:
    yield b" "
    await asyncio.Event().wait()


@pytest.fixture
def provider() -> RecordingProvider:
    return RecordingProvider("alpha")


@pytest.fixture
def upstream(provider: RecordingProvider) -> Iterator[str]:
    with serving(provider) as url:
        yield url


def calls(provider: RecordingProvider) -> list[Seen]:
    """The calls for a summary."""
    return [seen for seen in provider.seen if is_asked(seen)]


def last_texts(provider: RecordingProvider) -> list[Any]:
    """What the newest request of the client's says."""
    return [message["content"] for message in [s for s in provider.seen if not is_asked(s)][-1].json["messages"]]


def test_a_kill_in_the_middle_of_a_compaction_loses_nothing(
    tmp_path: Path, upstream: str, provider: RecordingProvider
) -> None:
    store = tmp_path / "store.sqlite"
    settings = config(upstream, store)
    provider.script = lambda seen: Answer(body=never()) if is_asked(seen) else None
    with fleet(tmp_path / "first", settings) as proxy:
        for number in range(5):
            ask(proxy.url, number)
        until(lambda: calls(provider))
        proxy.process.kill()
        proxy.process.wait()
    with sqlite3.connect(store) as found:
        (held,) = found.execute("SELECT * FROM hold").fetchall()
    told = [orjson.loads(each) for each in held if isinstance(each, str) and each.startswith("{")]
    assert [(each["reason"], each["ending"], each["team"]) for each in told] == [("compaction", "lost", "red")]
    provider.script = lambda seen: said(GOOD) if is_asked(seen) else None
    with fleet(tmp_path / "second", settings) as proxy:
        ask(proxy.url, 5)
        assert last_texts(provider) == [message["content"] for message in turns(5)]
        later = count(6)

        def is_short() -> bool:
            ask(proxy.url, next(later))
            return any(SUMMARY in str(text) for text in last_texts(provider))

        until(is_short)

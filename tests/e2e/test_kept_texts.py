"""With ``keep_texts`` a text that was sent once is known to every worker and after a restart; without it, no text of a
client reaches the store."""

import hashlib
import json
import random
import sqlite3
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.doubles import serving
from tests.e2e.fleet import CLAUDE, KEY, chat, claude_configuration
from tests.e2e.provider import embedded_app, new_embedded
from tests.redis_server import RedisServer
from tests.waiting import until
from tests.whole import whole_of

pytestmark = pytest.mark.slow

NEIGHBOUR = "sk-fleet-blue"
# Short and without repetition: compressed, it stands in one page of a SQLite file.
TEXT = "secret = '" + random.Random(7).randbytes(300).hex() + "'\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
SENT = {"path": "a.py", "content": TEXT, "selected": True}
NAMED = {"path": "a.py", "digest": DIGEST, "selected": True}


def ask(url: str, file: dict[str, object], key: str = KEY) -> int | str:
    """The tokens of the prompt as the provider counts them, or the code of the proxy's refusal."""
    body = {
        "model": CLAUDE,
        "messages": [{"role": "user", "content": "What is it?"}],
        "max_tokens": 10,
        "stratiform": {"session": "s", "files": [file]},
    }
    try:
        with chat(url, body, key) as answer:
            return int(json.load(answer)["usage"]["prompt_tokens"])
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["error"]["code"])


def config(provider: str, store: str, *, keep_texts: bool | None) -> dict[str, object]:
    ours = {} if keep_texts is None else {"structured": {"keep_texts": keep_texts}}
    found = claude_configuration(provider, store, **ours)
    found["stratiform"]["teams"].append({"name": "blue", "keys": [NEIGHBOUR]})  # type: ignore[index]
    return found


@pytest.fixture
def upstream() -> Iterator[str]:
    with serving(embedded_app(new_embedded())) as url:
        yield url


def traces_in(folder: Path) -> list[str]:
    """What there is of the text in the files of a store: plain, compressed, or by its name."""
    data = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    stream = zlib.compress(TEXT.encode(), 1)
    signs = {"plain": TEXT[10:60].encode(), "compressed": stream[2:-4][:200], "name": f"text:{DIGEST}".encode()}
    return [sign for sign, found in signs.items() if found in data]


def test_a_restart_knows_the_texts_of_before(tmp_path: Path, upstream: str) -> None:
    folder = tmp_path / "store"
    settings = config(upstream, f"sqlite:{folder / 'store.sqlite'}", keep_texts=True)
    with whole_of(tmp_path / "first", settings) as first:
        tokens = ask(first, SENT)
        assert ask(first, NAMED) == tokens
    assert traces_in(folder) == ["compressed", "name"], "the next test would find them"
    with whole_of(tmp_path / "second", settings) as second:
        assert ask(second, NAMED) == tokens
        assert ask(second, NAMED, NEIGHBOUR) == "missing_content"


@pytest.mark.parametrize("keep_texts", [None, False])
def test_no_text_reaches_the_store_unless_it_is_asked_for(
    tmp_path: Path, upstream: str, keep_texts: bool | None
) -> None:
    folder = tmp_path / "store"
    settings = config(upstream, f"sqlite:{folder / 'store.sqlite'}", keep_texts=keep_texts)
    with whole_of(tmp_path / "first", settings) as first:
        tokens = ask(first, SENT)
        assert isinstance(tokens, int)
        assert ask(first, NAMED) == tokens
    assert traces_in(folder) == []
    with sqlite3.connect(folder / "store.sqlite") as connection:
        scopes = {scope for (scope,) in connection.execute("SELECT scope FROM blob")}
    connection.close()
    shown = {"sessions", "session-details"}
    assert len(scopes - shown) == 1, "layout state and what is shown of sessions, and nothing beside it"
    with whole_of(tmp_path / "second", settings) as second:
        assert ask(second, NAMED) == "missing_content"


def test_two_workers_with_one_redis_know_each_others_texts(tmp_path: Path, upstream: str, redis: RedisServer) -> None:
    settings = config(upstream, redis.url, keep_texts=True)
    with ExitStack() as stack:
        one, two = (stack.enter_context(whole_of(tmp_path / name, settings)) for name in ("one", "two"))
        tokens = ask(one, SENT)
        until(lambda: [key for key in redis.ask("KEYS", "*texts}:blobs").split("\r\n") if "texts" in key])
        assert ask(two, NAMED) == tokens
        assert ask(two, NAMED, NEIGHBOUR) == "missing_content"
        redis.pause()
        try:
            unknown = ask(two, {**NAMED, "digest": "0" * 64})
            assert unknown == "missing_content", "a store that is away is the ordinary refusal"
        finally:
            redis.resume()

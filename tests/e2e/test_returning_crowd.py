"""Sessions that all come back in the moment after a restart keep the prefix that the provider has cached for them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.doubles import serving
from tests.e2e.fleet import fleet
from tests.e2e.provider import embedded_app, new_embedded
from tests.e2e.test_layout_state import RULES, ask, config
from tests.fidelity.chats import EDITABLE_ACK, EDITABLE_OPENING
from tests.redis_server import BRISK, redis_server

pytestmark = pytest.mark.slow

SESSIONS = 6
LEARNING_TURNS = 9
RESTARTS = 2


def file(name: str, version: int) -> str:
    body = "\n".join(f"def {name}_{n}():\n    return {n}" for n in range(900))
    return f"\n{name}.py\n```\n{body}\nVERSION = {version}\n```\n"


def session(name: str) -> Iterator[list[dict[str, Any]]]:
    """An editor that shows 90 kB of files in front of the question, one of which changes every time."""
    history: list[dict[str, Any]] = []
    stable = "".join(file(f"{name}_{letter}", 0) for letter in "abc")
    for turn in range(LEARNING_TURNS + RESTARTS):
        shown = {"role": "user", "content": EDITABLE_OPENING + stable + f"\nhot.py\n```\nVERSION = {turn}\n```\n"}
        question = {"role": "user", "content": f"{name} asks {turn}: what does function {turn} return, and why?"}
        system = {"role": "system", "content": f"{RULES}\nIt is 10:{turn:02}.\nBe brief."}
        yield [system, *history, shown, {"role": "assistant", "content": EDITABLE_ACK}, question]
        history += [question, {"role": "assistant", "content": f"Number {turn}, as line {2 * turn} says. " * 8}]


def test_a_crowd_that_comes_back_after_a_restart_keeps_its_prefixes(tmp_path: Path, store: str) -> None:
    sessions = [session(f"user{number}") for number in range(SESSIONS)]
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(embedded_app(new_embedded())))
        crowd = stack.enter_context(ThreadPoolExecutor(SESSIONS))

        def turn(url: str) -> list[tuple[int, int]]:
            """The next request of every session, all at once: what was read of it, and its size, in tokens."""
            return list(crowd.map(lambda messages: ask(url, messages), [next(one) for one in sessions]))

        with fleet(tmp_path / "first", config(upstream, store)) as proxy:
            for _ in range(LEARNING_TURNS):
                before = turn(proxy.url)
        for restart in range(RESTARTS):
            with fleet(tmp_path / f"again{restart}", config(upstream, store)) as proxy:
                after = turn(proxy.url)
            for (had, _), (read, prompt) in zip(before, after, strict=True):
                assert read >= 0.95 * had > 0.6 * prompt, (restart, before, after)


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store that outlives the proxy."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'store.sqlite'}"
        return
    with redis_server(tmp_path / "redis", *BRISK) as server:
        yield server.url

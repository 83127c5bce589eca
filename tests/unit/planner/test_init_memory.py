"""The planner's state takes what it is allowed to take, whatever clients send."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from tests.examples import chosen
from tests.fidelity.chats import File
from tests.talk import Body, Talk, assistant, chat, shown, system, text_part, tool, user

ROOM = 1 << 18


def tiny_turns(n: int) -> Body:
    return chat(system(f"s{n}"), *(m for i in range(40) for m in (user(f"q{n}.{i}"), assistant("a"))), user(f"go {n}"))


def files(n: int) -> Body:
    many = (File(f"{'d' * 60}/{n}/{i}.py", f"{i} {n}\n") for i in range(40))
    return chat(system("s"), *shown(*many), user(f"go {n}"))


def parts(n: int) -> Body:
    return chat(system("s"), user([text_part(f"{n} {i}") for i in range(80)]))


def tools(n: int) -> Body:
    return chat(user(f"go {n}"), tools=[tool(f"t{n}.{i}") for i in range(40)])


def large(n: int) -> Body:
    return chat(system(f"{n}" * 4000), user(f"{n} " * 8000))


def systems(n: int) -> Body:
    return chat(*(system(f"{n}.{i}") for i in range(60)), user("go"))


@pytest.mark.slow
@pytest.mark.parametrize("shape", chosen([tiny_turns, files, large, parts, tools, systems], files))
def test_state_is_bounded_by_bytes(shape: Callable[[int], Body]) -> None:
    talk = Talk(memory_bytes=ROOM)
    for n in range(5):
        talk.send(shape(n))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(5, 45):
            talk.send(shape(n))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # Besides the room there are the token counts, which are bounded by their number.
    assert grown < ROOM + 250 * 45 * 80, f"{grown / 2**20:.1f} MiB"

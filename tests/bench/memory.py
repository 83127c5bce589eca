"""``python -m tests.bench.memory``: what a session takes in memory, and whether the bound holds under many of them."""

import argparse
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from proxy.kit.lru import Bounded
from tests.fidelity.chats import File
from tests.talk import Body, Talk, assistant, chat, shown, system, user

_TURNS = 8
_LINES = "".join(f"def function_{number}(): return {number}\n" for number in range(60))


def appending(session: int, turn: int) -> Body:
    """A chat that grows at its end."""
    said = [one for n in range(turn) for one in (user(f"{session} asks {n} " * 20), assistant("It is so. " * 50))]
    return chat(system("Be brief. " * 200), *said, user(f"{session} asks {turn} " * 20))


def relaid(session: int, turn: int) -> Body:
    """A chat whose editor shows four files, of which one changes with each request."""
    files = [File(f"src/{session}/{n}.py", f"{_LINES}VERSION = {turn if n == 3 else 0}\n") for n in range(4)]
    said = [one for n in range(turn) for one in (user(f"{session} asks {n}"), assistant("It is so. " * 20))]
    return chat(system("Be brief. " * 200), *said, *shown(*files), user(f"{session} asks {turn}"))


def _send(talk: Talk, shape: Callable[[int, int], Body], sessions: range, turns: int) -> None:
    for session in sessions:
        for turn in range(turns):
            talk.send(shape(session, turn), after_s=1.0)
            talk.results.clear()


def kept_bytes(shape: Callable[[int, int], Body], sessions: int, turns: int = _TURNS) -> float:
    """What each further session takes, in bytes."""
    talk = Talk()
    _send(talk, shape, range(20), turns)
    gc.collect()
    tracemalloc.start()
    _send(talk, shape, range(20, 20 + sessions), turns)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept / sessions


def resident_bytes() -> int:
    """The memory of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split("VmRSS:")[1].split()[0]) << 10


def growth(sessions: int, room_mib: int) -> tuple[int, int, int]:
    """What many short sessions take in a new process, in MiB: after a fifth, at the end, and by our estimate."""
    talk = Talk(memory_bytes=room_mib << 20)
    before, after = resident_bytes(), 0
    for session in range(sessions):
        _send(talk, appending, range(session, session + 1), 1)
        if session == sessions // 5:
            gc.collect()
            after = resident_bytes() - before
    gc.collect()
    estimated = sum(one.bytes for one in gc.get_objects() if isinstance(one, Bounded))
    return after >> 20, (resident_bytes() - before) >> 20, estimated >> 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000, help="how many short sessions the bound is held to")
    parser.add_argument("--room", type=int, default=64, help="`state_mib` for them (64)")
    arguments = parser.parse_args()
    # First, so that nothing stands in memory which was given back and not taken yet.
    early, late, estimated = growth(arguments.sessions, arguments.room)
    print(
        f"{arguments.sessions} sessions with {arguments.room} MiB: {early} MiB after a fifth, {late} MiB at the end, "
        f"{estimated} MiB estimated"
    )
    for shape in (appending, relaid):
        print(f"{shape.__name__}: {kept_bytes(shape, 60) / 1024:.0f} KiB for a session of {_TURNS} requests")
    print(f"appending: {kept_bytes(appending, 200, 1) / 1024:.1f} KiB for a session of one request")


if __name__ == "__main__":
    main()

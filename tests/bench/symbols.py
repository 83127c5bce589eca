"""How long the symbol index takes: ``python -m tests.bench.symbols``.

It reads the sources of the libraries that are installed. The index runs in one thread, as it does in
the proxy. Another thread meanwhile asks for the interpreter each millisecond; its longest wait is what the event loop
would feel.
"""

import statistics
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plugins.symbol_index.indexer import SUFFIXES
from proxy.context import ContextFile, SymbolMap, legend_for
from tests.symbols import make_indexer, source

_SUFFIXES = frozenset(f".{suffix}" for suffix in SUFFIXES)
_WARM_CALLS = 50


@dataclass(slots=True)
class Waits:
    """A thread that asks for the interpreter each millisecond, and how long it waited at most."""

    longest_s: float = 0.0
    is_over: bool = False

    def run(self) -> None:
        before = time.perf_counter()
        while not self.is_over:
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest_s = max(self.longest_s, now - before)
            before = now


def read(folder: Path, most: int) -> list[ContextFile]:
    """The first files of a folder that some grammar knows, in the order of their paths."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in _SUFFIXES and path.is_file() and path.stat().st_size > 200:
            found.append(source(str(path.relative_to(folder)), path.read_text("utf-8", "replace")))
        if len(found) == most:
            break
    return found


def timed(work: Callable[[], SymbolMap]) -> tuple[SymbolMap, float]:
    began_s = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began_s


def edited(files: Sequence[ContextFile], number: int, addition: str) -> list[ContextFile]:
    """The files, with something added to one of them."""
    file = files[number % len(files)]
    text = (file.text or "") + addition
    return [source(one.path, text) if one is file else one for one in files]


def longest_wait_s(files: Sequence[ContextFile], aliases: Mapping[str, str]) -> float:
    """How long another thread waits at most while the files are read."""
    waits = Waits()
    other = threading.Thread(target=waits.run, daemon=True)
    other.start()
    make_indexer().index(files, aliases)
    waits.is_over = True
    other.join()
    return waits.longest_s


def measure(files: Sequence[ContextFile]) -> None:
    """Prints every figure."""
    aliases = legend_for([file.path for file in files], {})
    indexer = make_indexer()
    cpu_s = time.process_time()
    found, cold_s = timed(lambda: indexer.index(files, aliases))
    cpu_s = time.process_time() - cpu_s
    warm_s = statistics.median(timed(lambda: indexer.index(files, aliases))[1] for _ in range(_WARM_CALLS))
    edits = []
    for number in range(0, 700, 100):
        changed = edited(files, number, f"\ndef added_{number}(): pass\n")
        edits.append(timed(lambda some=changed: indexer.index(some, aliases))[1])  # type: ignore[misc]
    references, graph_s = timed(lambda: dict(found.references))
    chars = sum(len(file.text or "") for file in files)
    read_chars = sum(len(file.text or "") for file in files if file.path in found.blocks)
    block_chars = sum(map(len, found.blocks.values()))
    wait_ms = longest_wait_s(files, aliases) * 1e3
    print(f"{len(files)} files, {chars / 1e6:.1f} MB, {block_chars / read_chars:.1%} of it as blocks")
    print(f"cold: {cold_s:.1f} s, {cpu_s:.1f} s of processor time; another thread waits at most {wait_ms:.0f} ms")
    print(f"nothing changed: {warm_s * 1e3:.2f} ms, {warm_s / len(files) * 1e6:.2f} us a file")
    print(f"one file edited: {statistics.median(edits) * 1e3:.1f} ms")
    print(f"{sum(map(len, references.values()))} references, found in {graph_s * 1e3:.0f} ms")


def main() -> None:
    """Measure the installed libraries."""
    measure(read(Path(sysconfig.get_paths()["purelib"]), 2_000))


if __name__ == "__main__":
    main()

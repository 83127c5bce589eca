"""The way of one request through the proxy, as numbers: ``python -m tests.bench.trace [SIZE] [--stream]``.

A growing conversation is sent to the running app over a socket, and a profile hook notes each call of a function of
``proxy`` and ``plugins`` for one of its later requests. The counts do not depend on how busy the machine is.

A stay is an unbroken run of calls in one file, and a return is a stay in a file where the request was before.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

from proxy.app import composition
from proxy.app.settings import Environment, load
from proxy.app.web import Parts, create_app
from proxy.app.web.connection import WireLimits, guarded_http
from proxy.protocol.request.tokens import bytes_over_four
from tests.bench import bodies, servers
from tests.bench.provider import Provider
from tests.doubles import serving_here

_PACKAGES = (str(servers.ROOT / "proxy") + "/", str(servers.ROOT / "plugins") + "/")
_HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-a-client-s\r\n"
_WARM, _MEASURED = 3, 3
# Newer versions of Python make no frame for most of them.
_INSIDE = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
_RESUMED = 0x3


@dataclass(frozen=True, slots=True)
class Trace:
    """The functions that a request entered, in order."""

    calls: Sequence[CodeType]

    def functions(self) -> Counter[str]:
        """How often each function was entered, by its place."""
        return Counter(f"{_place(code)}:{code.co_firstlineno} {code.co_qualname}" for code in self.calls)

    def files(self) -> Sequence[str]:
        """The files in the order of their first call."""
        return list(dict.fromkeys(map(_place, self.calls)))

    def stays(self) -> int:
        """How many unbroken runs of calls in one file there are."""
        return sum(1 for _ in groupby(code.co_filename for code in self.calls))

    def figures(self) -> dict[str, int]:
        """What is held against a bound, and what tells how often the way goes back and forth."""
        files, stays = len(self.files()), self.stays()
        found = {"functions": len(self.functions()), "files": files, "calls": len(self.calls)}
        return found | {"stays": stays, "returns": stays - files}


async def traced(size: int, *, stream: bool = False) -> Trace:
    """The request of an appending conversation of about that many bytes that makes the fewest calls."""
    with tempfile.TemporaryDirectory(prefix="stratiform-trace-") as folder:
        loop = asyncio.get_running_loop()
        provider = await loop.create_server(Provider, "127.0.0.1", 0)
        path = Path(folder) / "config.yaml"
        path.write_text(servers.config(f"http://127.0.0.1:{provider.sockets[0].getsockname()[1]}"))
        settings = load(path, environment=Environment({"HOME": folder}))
        built = await composition.build(settings, encode=bytes_over_four)
        async with serving_here(create_app(built.parts), http=guarded_http(WireLimits())) as url:
            found = await _measured(built.parts, int(url.rpartition(":")[2]), size, stream=stream)
        provider.close()
        return found


async def _measured(parts: Parts, port: int, size: int, *, stream: bool) -> Trace:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    found: list[Trace] = []
    for body in bodies.agent(1, size, _MEASURED, stream=stream, warm=_WARM).bodies:
        head = f"{_HEAD}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        with _hooked() as calls:
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if lengths:
                await reader.readexactly(int(lengths[0].partition(b":")[2]))
            else:
                await reader.readuntil(b"\r\n0\r\n\r\n")  # the last chunk
            await _settled(parts)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode("latin-1"))
        found.append(Trace(calls))
    writer.close()
    return min(found[_WARM:], key=lambda trace: len(trace.calls))


async def _settled(parts: Parts) -> None:
    """What follows behind the answer belongs to the request."""
    in_flight = parts.metrics.registry.restricted_registry(["stratiform_in_flight"])
    await asyncio.sleep(0.05)
    while any(sample.value for metric in in_flight.collect() for sample in metric.samples):
        await asyncio.sleep(0.01)
    while parts.engine._conclusion._settling:
        await asyncio.sleep(0.01)


@contextmanager
def _hooked() -> Iterator[list[CodeType]]:
    calls: list[CodeType] = []

    def hook(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(_PACKAGES) and code.co_name not in _INSIDE
        # The argument of RESUME is 0 at the beginning of a function, and not behind an ``await`` or a ``yield``.
        if is_ours and not code.co_code[frame.f_lasti + 1] & _RESUMED:
            calls.append(code)

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _place(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(servers.ROOT))


def main() -> None:
    """Print the figures, and by folder how many calls there are."""
    parser = argparse.ArgumentParser(prog="make trace", description="The way of one appending request in numbers.")
    parser.add_argument("size", nargs="?", type=int, default=50_000, help="bytes of the request (50000)")
    parser.add_argument("--stream", action="store_true", help="ask for an answer in events")
    parser.add_argument("--functions", action="store_true", help="print each function in the order of the way")
    args = parser.parse_args()
    trace = asyncio.run(traced(args.size, stream=args.stream))
    print("  ".join(f"{name} {count}" for name, count in trace.figures().items()))
    if args.functions:
        for function, count in trace.functions().items():
            print(f"{count:5} {function}")
        return
    for folder, count in Counter(str(Path(_place(code)).parent) for code in trace.calls).most_common():
        print(f"{count:5} {folder}")


if __name__ == "__main__":
    main()

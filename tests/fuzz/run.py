"""Runs many cases and says what did not hold."""

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from proxy.app.web.connection import guarded_http
from tests.doubles import serving_here
from tests.fuzz.asgi import HANGS_S, Broken, Result, exchange
from tests.fuzz.cases import Case, case
from tests.fuzz.wire import LIMITS, answer_to, raw_request
from tests.fuzz.world import World, world

TOGETHER = 16
WIRE_EVERY = 10
WARM_SHARE = 0.2
# What the allocator cannot give back differs by 8 MiB between two looks at one run. A leak of 150 bytes a case shows.
MOST_GROWTH = 0.1
# What a batch may cost: so much for each case, and for each byte of its body. Either is ten times what is usual.
CASE_S, BYTE_S = 0.1, 2e-6


@dataclass
class Report:
    """What came of it. ``failures`` name the case's number, so that it can be run again."""

    count: int = 0
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    rss_warm: int = 0
    rss_end: int = 0

    @property
    def growth(self) -> float:
        """How much more memory there is at the end than once the tables were full, as a share."""
        return self.rss_end / self.rss_warm - 1 if self.rss_warm else 0.0


def run(
    count: int, seed: int = 0, only: int | None = None, progress: Callable[[int], None] = lambda done: None
) -> Report:
    """``count`` cases, or one of them."""
    return asyncio.run(_run(count, seed, only, progress))


async def _run(count: int, seed: int, only: int | None, progress: Callable[[int], None]) -> Report:
    report, began = Report(), time.perf_counter()
    wire = {"http": guarded_http(LIMITS), "ws": "none", "lifespan": "off", "timeout_graceful_shutdown": 2}
    async with world() as here, serving_here(here.app, **wire) as url:
        port = int(url.rpartition(":")[2])
        numbers = range(count) if only is None else range(only, only + 1)
        for start in range(numbers.start, numbers.stop, TOGETHER):
            batch = numbers[start - numbers.start : start - numbers.start + TOGETHER]
            spent = time.process_time()
            await asyncio.gather(*(_one(here, port, seed, number, report) for number in batch))
            _count_cpu(seed, batch, time.process_time() - spent, report)
            _hear(here, batch, report)
            report.count += len(batch)
            progress(report.count)
            if not report.rss_warm and report.count >= count * WARM_SHARE:
                report.rss_warm = resident_bytes()
        report.rss_end = resident_bytes()
        await _settled(here, report)
        alive = await answer_to(port, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", HANGS_S)
        if b"200" not in alive[:15]:
            report.failures.append("the server does not answer any more")
    report.seconds = time.perf_counter() - began
    return report


async def _one(here: World, port: int, seed: int, number: int, report: Report) -> None:
    if number % WIRE_EVERY == WIRE_EVERY - 1:
        await _on_the_wire(port, seed, number, report)
        return
    one = case(seed, number)
    report.kinds[one.kind] += 1
    try:
        result = await exchange(here.app, one)
    except TimeoutError:
        report.failures.append(f"{number} ({one.kind}): hangs")
    except Broken as error:
        report.failures.append(f"{number} ({one.kind}): {error}")
    except Exception as error:  # noqa: BLE001 - whatever comes out is a finding
        report.failures.append(f"{number} ({one.kind}): {type(error).__name__} came out of the app: {error}")
    else:
        report.statuses[result.status] += 1
        _judge(one, result, report)


def _judge(one: Case, result: Result, report: Report) -> None:
    what = f"{one.number} ({one.kind})"
    if b'"internal_error"' in result.body:
        report.failures.append(f"{what}: an internal error")
    if b"x-injected" in result.headers:
        report.failures.append(f"{what}: a header was injected")
    # The strange provider's own errors pass as they are.
    is_ours = one.path == "/v1/chat/completions" and b'strange"' not in b"".join(one.parts)
    if result.status in (400, 401, 403, 404, 405, 408, 413, 431) and result.is_complete and is_ours:
        try:
            found = orjson.loads(result.body)["error"] if one.method != "HEAD" else {}
        except (orjson.JSONDecodeError, KeyError, TypeError):
            report.failures.append(f"{what}: {result.status} without an error in OpenAI's shape")
        else:
            if one.method != "HEAD" and not {"message", "type", "param", "code"} <= found.keys():
                report.failures.append(f"{what}: {result.status} with a strange error")


async def _on_the_wire(port: int, seed: int, number: int, report: Report) -> None:
    report.kinds["wire"] += 1
    answer = await answer_to(port, raw_request(seed, number))
    if answer[:9] in (b"HTTP/1.1 ", b"HTTP/1.0 "):
        status = int(answer[9:12])
        report.statuses[status] += 1
        if status == 500 and b"server_error" not in answer:
            report.failures.append(f"{number} (wire): 500")
        if b"internal_error" in answer:
            report.failures.append(f"{number} (wire): an internal error")


def _count_cpu(seed: int, batch: range, spent_s: float, report: Report) -> None:
    """No case may cost out of proportion to its bytes. Cases of a batch run at once: they are judged together."""
    size = sum(len(part) for number in batch for part in case(seed, number).parts)
    if spent_s > CASE_S * len(batch) + BYTE_S * size:
        report.failures.append(f"one of {batch.start} to {batch.stop - 1}: {spent_s:.1f} s of CPU for {size} bytes")


def _hear(here: World, batch: range, report: Report) -> None:
    for complaint in here.complaints:
        report.failures.append(f"one of {batch.start} to {batch.stop - 1}: logged: {complaint}")
    here.complaints.clear()


async def _settled(here: World, report: Report) -> None:
    """Every exchange has ended, and every answer of the provider was closed."""
    for _ in range(12_000):
        if here.in_flight() == 0 and here.strange.opened == here.strange.closed:
            return
        await asyncio.sleep(0.01)
    left = here.strange.opened - here.strange.closed
    report.failures.append(f"{here.in_flight():.0f} exchanges have not ended, {left} answers were not closed")


def resident_bytes() -> int:
    """Memory in use, after what can be given back was given back."""
    gc.collect()
    if sys.platform == "linux":
        # What the allocator keeps for later is not what the proxy holds.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""What Prometheus scrapes is the same text in pieces as in one, and no piece is large."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from proxy.telemetry.metrics import Counters, Metrics, Series, pieces


def without_created(text: bytes) -> bytes:
    """The text of the library without the families that say when a series was made."""
    return b"\n".join(line for line in text.split(b"\n") if b"_created" not in line.split(b"{")[0])


@given(st.lists(st.text(max_size=8), max_size=300, unique=True), st.integers(0, 130))
def test_pieces_are_the_whole_text(values: list[str], more: int) -> None:
    registry = CollectorRegistry()
    text = 'Help with a \\ and a\nline "end".'
    counters = Counters(Counter("c", text, ["z", "name"], registry=registry), ["z", "name"], [str, str])
    gauges = Series(Gauge("g", "Help.", registry=registry), [], [])
    sizes = Series(Histogram("h", "Help.", ["zone"], buckets=(0.1, 1.0), registry=registry), ["zone"], [str])
    empty = Counters(Counter("empty", "Help.", ["name"], registry=registry), ["name"], [str])
    counts = Counters(Counter("count_total", "Help.", registry=registry), [], [])
    gauges.child().set(more / 7 - 3)
    counts(by=1e20)
    for value in values:
        counters("z", value)
    for number in range(more):
        sizes.child(str(number)).observe(number / 10)
    found = list(pieces([counters, gauges, sizes, empty, counts]))
    assert b"".join(found) == without_created(generate_latest(registry))
    assert max(piece.count(b"\n") for piece in found) <= 60


def test_other_work_goes_on_while_the_text_is_written() -> None:
    metrics, seen = Metrics(), list[int]()
    for number in range(3_000):
        metrics.upstream_error("m", f"kind {number}")

    async def main() -> bytes:
        async def other() -> None:
            while True:
                seen.append(1)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        text = await metrics.rendered()
        task.cancel()
        return text

    text = asyncio.run(main())
    assert text.count(b"stratiform_upstream_errors_total{") == 3_000
    assert len(seen) > 60


def test_a_scrape_is_the_librarys_own_text() -> None:
    metrics = Metrics()
    metrics.remaining = lambda: {"red": (1.5, 9.0)}

    def ours(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if not line.startswith((b"process_", b"# "))]

    assert ours(asyncio.run(metrics.rendered())) == ours(without_created(generate_latest(metrics.registry)))
    assert b'stratiform_budget_window_end_seconds{team="red"} 9.0' in b"".join(metrics.pieces())

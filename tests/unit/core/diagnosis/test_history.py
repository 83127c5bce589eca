"""What a session remembers of its last requests, in a few bytes each."""

from proxy.core.diagnosis.breaks import Break, BreakKind
from proxy.core.diagnosis.history import ENTRY_BYTES, MOST_CULPRITS, MOST_REQUESTS, History
from proxy.core.diagnosis.record import PromptRecord
from proxy.core.response.usage import Usage
from proxy.core.shadow.deviations import Deviation

BROKE = Break(
    BreakKind.CHANGED, "system", "system", 0, line=3, before=100, tokens=7, behind=5000, lost=4900, usd=0.5,
    is_waste=True,
)  # fmt: skip


def test_an_entry_says_what_broke_and_what_that_cost() -> None:
    history = History().added(PromptRecord(at=7.5), Usage(5107, 9, read=100, write_5m=20), BROKE)
    history = history.added(PromptRecord(at=9.0), None, None)
    history = history.added(PromptRecord(at=11.0), None, Break(Deviation.EXPIRED))
    first, second, third = history.entries()
    assert (first.at, first.prompt, first.read, first.written) == (7.5, 5107, 100, 20)
    assert (first.kind, first.culprit, first.line, first.is_waste) == ("changed", "system:system", 3, True)
    assert (first.before, first.tokens, first.behind, first.lost, first.usd) == (100, 7, 5000, 4900, 0.5)
    assert (second.at, second.kind, second.culprit) == (9.0, "", "")
    assert third.kind == "expired"


def test_it_is_bounded() -> None:
    history = History()
    for number in range(MOST_REQUESTS + 50):
        broke = Break(BreakKind.CHANGED, f"file:{number}", "file", lost=2**40)
        history = history.added(PromptRecord(at=float(number)), None, broke)
    assert ENTRY_BYTES <= 64
    assert len(history.packed) == MOST_REQUESTS * ENTRY_BYTES
    assert len(history.culprits) == MOST_CULPRITS + 1
    entries = list(history.entries())
    assert (entries[0].at, entries[-1].at) == (50.0, MOST_REQUESTS + 49.0)
    assert (entries[0].culprit, entries[-1].culprit) == ("file:file:50", "other")
    assert entries[0].lost == 2**32 - 1


def test_bytes_that_were_damaged_are_read_as_far_as_they_go() -> None:
    history = History().added(PromptRecord(at=1.0), None, BROKE)
    damaged = History(history.packed + b"\xff" * (ENTRY_BYTES + 3), ())
    assert [entry.culprit for entry in damaged.entries()] == ["", ""]
    assert next(iter(damaged.entries())).kind == "changed"

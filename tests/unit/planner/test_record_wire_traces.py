"""Every break of the recorded sessions is named, and none where there is none, as the requests on the wire show it."""

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.planner.diagnose import PARAMETER, diagnose
from proxy.planner.record import SYSTEM, TOOL, Break, PromptRecord, is_continuation, wire_record
from proxy.protocol.providers import ANTHROPIC, OPENAI
from proxy.protocol.request.tokens import bytes_over_four
from tests.examples import sampled
from tests.wire_breaks import Block, WireBreak, rendered, wire_break

SHARED = Path(__file__).parents[3].parent / "shared"
TRACES = sorted(path for name in ("traces", "traces-inbound") for path in (SHARED / name).glob("*.jsonl.xz"))
WHERE = {TOOL: "tools", SYSTEM: "instructions"}
BESIDE = (PARAMETER, "model")


@dataclass
class Found:
    """What both say of one session, by the number of the request."""

    named: dict[int, Break]
    seen: dict[int, WireBreak]
    beside: set[int]


def judged(path: Path) -> Found:
    """A recorded session before the diagnosis and before the checker."""
    found = Found({}, {}, set())
    records: dict[str, list[PromptRecord]] = {}
    prompts: dict[str, list[list[Block]]] = {}
    with lzma.open(path) as file:
        rows: list[dict[str, Any]] = [json.loads(line) for line in file]
    for number, row in enumerate(rows):
        if "count_tokens" in row.get("path", ""):
            continue
        body, session = row["request"], row["session"]
        before, seen = records.setdefault(session, []), prompts.setdefault(session, [])
        profile = ANTHROPIC if "messages" in row.get("path", "") else OPENAI
        record = wire_record(body, bytes_over_four, at=row["t"])
        if before and is_continuation(body):
            record = record.continuing(before[-1])
        cause = diagnose(before, record, None, profile)
        if cause is not None and cause.culprit_kind in BESIDE:
            found.beside.add(number)
        elif cause is not None and cause.culprit:
            found.named[number] = cause
        prompt = rendered(body, seen)
        if (broken := wire_break(seen, prompt)) is not None:
            found.seen[number] = broken
        before.append(record)
        seen.append(prompt)
    return found


@pytest.mark.parametrize("path", sampled(TRACES, 5), ids=[path.name.removesuffix(".jsonl.xz") for path in TRACES])
def test_the_first_piece_that_differs_is_named_in_each_break(path: Path) -> None:
    found = judged(path)
    for number in found.beside:
        found.seen.pop(number, None)
    assert found.named.keys() == found.seen.keys()
    for number, cause in found.named.items():
        seen = found.seen[number]
        assert (cause.place, cause.line) == (seen.place, seen.line)
        assert WHERE.get(cause.culprit_kind, "talk") in seen.where

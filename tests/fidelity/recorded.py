"""Recorded sessions of real clients, if at hand: $STRATIFORM_TRACES, or shared/traces beside the repository."""

import json
import lzma
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

_BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "traces"


def trace_files() -> list[Path]:
    """The recorded sessions, or none."""
    folder = Path(os.environ.get("STRATIFORM_TRACES") or _BESIDE)
    return sorted(folder.glob("*.jsonl.xz")) if folder.is_dir() else []


@lru_cache(maxsize=2)
def requests_of(path: Path) -> tuple[dict[str, Any], ...]:
    """The request bodies of one session, in order."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line)["request"] for line in lines)


def some_of(path: Path, count: int = 5) -> list[dict[str, Any]]:
    """A few requests of a session, spread over it, the longest with them."""
    every = requests_of(path)
    step = max(1, len(every) // count)
    longest = max(every, key=lambda body: len(str(body["messages"])))
    return [*every[::step], longest]

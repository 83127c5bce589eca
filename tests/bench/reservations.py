"""What is reserved for prompts against what they have: ``python -m tests.bench.reservations [--sessions FOLDER]...``.

Each request of the recorded sessions is bounded as for a model whose tokenizer the proxy has, near a limit ("counted")
and far from one ("bytes"), and for a model of which nobody has the tokenizer ("estimated": by the count and the factor
that is assumed before a provider has reported anything). What it has is counted by the model's tokenizer: o200k_base,
and the last one that Anthropic has published, message by message, with four tokens of frame each.
"""

import argparse
import asyncio
import json
import lzma
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from proxy.kit.tasks import Aside
from proxy.models.bound import InputBound
from proxy.protocol.request import parse_body
from proxy.services import local_encode
from proxy.teams.estimates import Habits, PromptBounds
from tests.exchanges import make_exchange
from tests.security.prompt_meter import billed_prompt, counts

_ROOT = Path(__file__).resolve().parents[3] / "shared"


def requests(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The bodies of all recorded sessions, each with its kind."""
    for file in sorted(folder.glob("*.jsonl.xz")):
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                found = json.loads(line)
                path = found.get("path", "/v1/chat/completions").removeprefix("/v1/")
                yield f"{path}, {_kind(found['request'])}", json.dumps(found["request"], ensure_ascii=False).encode()


def _kind(body: Mapping[str, Any]) -> str:
    return "with tools" if body.get("tools") else "text alone"


def row(name: str, ratios: Sequence[float]) -> str:
    """A line of the table: median, 99th percentile, the least, and how many."""
    ordered = sorted(ratios)
    high = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{name:52}{statistics.median(ordered):8.2f}{high:8.2f}{ordered[0]:8.2f}{len(ordered):7}"


async def table(folders: Sequence[Path]) -> Mapping[str, Sequence[float]]:
    """The ratios by kind and by what was reserved."""
    aside, found = Aside(), dict[str, list[float]]()
    bounds = PromptBounds(local_encode(), aside, lambda _: False, 512 << 20)
    factor = Habits().factor
    # A conversation is sent again with every request: each text is counted once.
    real = {name: lru_cache(200_000)(count) for name, count in counts().items()}
    forms: Sequence[tuple[str, str, Callable[[InputBound, InputBound], int]]] = (
        ("counted", "o200k", lambda size, count: count.tokens(1.0)),
        ("estimated", "anthropic_tokenizer", lambda size, count: count.tokens(factor)),
        ("bytes", "o200k", lambda size, count: size.tokens(None)),
    )
    try:
        for folder in folders:
            for kind, body in requests(folder):
                seen = make_exchange(size=len(body))
                seen.sent = ((parse_body(body), 0),)
                size, count = await bounds.bound(seen, counts=False), await bounds.bound(seen, counts=True)
                if size.beyond or size.pictures:
                    kind = kind.split(",")[0] + ", with media"
                for form, tokenizer, tokens in forms:
                    billed = billed_prompt(body, real[tokenizer])
                    found.setdefault(f"{form:10} {kind}", []).append(tokens(size, count) / billed)
    finally:
        aside.close()
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=Path, action="append")
    folders = parser.parse_args().sessions or [_ROOT / "traces", _ROOT / "traces-inbound"]
    print(f"{'reserved against real tokens':52}{'median':>8}{'p99':>8}{'least':>8}{'n':>7}")
    found = asyncio.run(table([one for one in folders if one.is_dir()]))
    if not found:
        print("no recorded sessions here; name a folder of them with --sessions")
    for name, ratios in sorted(found.items()):
        print(row(name, ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())

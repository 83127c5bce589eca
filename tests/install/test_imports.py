"""What each command, and the parts that another program may build on, leave unloaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import COMMANDS
from tests.unit.replay.sessions import growing, lines, write

FRAMEWORKS = ("starlette", "uvicorn", "litellm", "aiohttp", "openai", "redis", "opentelemetry.exporter")
OFFLINE = sorted({"explain", "replay", "doctor"} & COMMANDS.keys())
PROGRAM = """
import sys
from contextlib import suppress
exec(sys.argv[1], {"words": sys.argv[3:]})
print("\\n", *(name for name in sys.argv[2].split() if name in sys.modules))
"""


def loaded(code: str, *words: str) -> list[str]:
    run = [sys.executable, "-c", PROGRAM, code, " ".join(FRAMEWORKS), *words]
    ended = subprocess.run(run, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return ended.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("name", OFFLINE)
def test_what_reads_recorded_requests_needs_no_server_and_no_client(name: str, tmp_path: Path) -> None:
    trace = write(tmp_path / "chat.jsonl", lines(growing(3)))
    assert loaded("from proxy.cli import main; assert main(words) == 0", name, str(trace)) == []


BUILT = """
import asyncio
from proxy.app.foundation import lay
from proxy.settings import Settings
async def main():
    base = await lay(Settings(), encode=len)
    assert base.planner.pure and base.windows() and "stratiform" in b"".join(base.metrics.pieces()).decode()
    for close in reversed(base.closing):
        await close()
asyncio.run(main())
"""


def test_store_metrics_and_planner_are_built_without_the_web_and_the_upstreams() -> None:
    assert loaded(BUILT) == []


def test_the_callback_inside_litellm_needs_no_server_and_no_client() -> None:
    assert loaded("import proxy.inside") == []


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded("import starlette.types, redis") == ["starlette", "redis"]

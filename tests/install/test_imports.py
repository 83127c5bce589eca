"""What each command, and the parts that another program may build on, leave unloaded."""

import subprocess
import sys
from pathlib import Path

from proxy.cli import COMMANDS
from tests.unit.lab.replay.sessions import growing, lines, write

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


BUILT = """
import asyncio
from proxy.app.foundation import lay
from proxy.app.settings import Settings
async def main():
    base = await lay(Settings(), encode=len)
    assert base.planner.pure and base.windows() and "stratiform" in b"".join(base.metrics.pieces()).decode()
    for close in reversed(base.closing):
        await close()
asyncio.run(main())
"""


def test_neither_commands_offline_nor_the_callback_nor_store_metrics_and_planner_need_a_server_or_client(
    tmp_path: Path,
) -> None:
    """All of them in one process, which is faster: what one of them loaded would be seen."""
    trace = write(tmp_path / "chat.jsonl", lines(growing(3)))
    offline = "from proxy.cli import main\nfor name in words[1:]: assert main([name, words[0]]) == 0\n"
    assert loaded(f"import proxy.app.inside\n{offline}{BUILT}", str(trace), *OFFLINE) == []


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded("import starlette.types, redis") == ["starlette", "redis"]

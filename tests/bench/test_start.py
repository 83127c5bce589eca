"""What the proxy takes before the first request: memory beside that of its frameworks alone, and modules."""

import subprocess
import sys

import pytest

from tests.bench import servers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not servers.IS_SUPPORTED, reason="memory is read from /proc")]

_FRAMEWORKS = (
    "starlette.applications, starlette.routing, uvicorn, aiohttp, orjson, msgspec, prometheus_client, pydantic"
)
_MOST_MB = 50
_MOST_MODULES = 150
_RESIDENT = "print(int(open('/proc/self/statm').read().split()[1]) * 4096 / 1e6)"
_OURS = "print(sum(name.partition('.')[0] in ('proxy', 'plugins') for name in sys.modules))"


def _printed(program: str) -> float:
    """The number that a Python of its own prints."""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=servers.ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return float(ended.stdout)


def test_a_proxy_that_has_started_takes_little_memory_beside_its_frameworks() -> None:
    alone = _printed(f"import {_FRAMEWORKS}; {_RESIDENT}")
    with servers.proxies(["tier"]) as (_, found):
        taken = found["tier"].rss_mb()
    assert alone < taken < alone + _MOST_MB


def test_serving_imports_few_modules() -> None:
    """What only other commands need, and what few requests need, is imported by them."""
    count = _printed(f"import sys, proxy.cli.serve; {_OURS}")
    assert _MOST_MODULES * 0.9 < count <= _MOST_MODULES

"""On recorded sessions the bill on the page is the ledger's, and the picture's areas are the reported tokens."""

import asyncio
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from proxy.app.ui.pages import PARTS, PLOT, Scale, halves, usd
from proxy.lab import read_trace
from tests.fidelity.recorded import trace_files
from tests.pages import MASTER, WITH_MASTER, Browser, visited

TRACES = trace_files()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")]
_MOST_REQUESTS = 60


async def send(browser: Browser, path: Path) -> None:
    """The requests of a session, at their times."""
    headers = {"authorization": f"Bearer {MASTER}", "content-type": "application/json"}
    for step in read_trace(path).steps[:_MOST_REQUESTS]:
        body = json.dumps({**json.loads(step.body), "model": "m", "stream": False})
        timed = {**headers, "x-stratiform-time": repr(step.at)}
        reply = await browser.send("POST", "/v1/chat/completions", timed, content=body)
        assert reply.status_code in (200, 400), reply.text


async def ledger(browser: Browser) -> Any:
    return (await browser.admin("spend?since=1970-01-01"))["total"]


async def sessions(browser: Browser) -> Any:
    return (await browser.admin("sessions?limit=1000"))["data"]


async def listed_usd(browser: Browser) -> float:
    return sum(session["cost_usd"] for session in await sessions(browser))


async def check(browser: Browser) -> None:
    await browser.enter()
    total, told, areas = await ledger(browser), 0.0, dict.fromkeys(PARTS, 0)
    for session in await sessions(browser):
        page = html.unescape((await browser.get(f"/ui/sessions/{session['id']}")).text)
        assert f"<dd>{usd(session['cost_usd'])}</dd>" in page
        told += session["cost_usd"]
        rows = (await browser.admin(f"sessions/{session['id']}/requests"))["data"]
        scale, (_, drawn) = Scale.of(rows), halves(rows)
        for part in PARTS:
            areas[part] += sum(row["planned_layout"][f"{part}_tokens"] for row in rows)
            (path,) = re.findall(rf'<path d="([^"]*)" fill="url\(#k-{part}\)"', drawn) or [""]
            widths = sum(map(float, re.findall(r"h([\d.]+)v", path))) / PLOT * scale.most
            tokens = sum(row["planned_layout"][f"{part}_tokens"] for row in rows)
            assert abs(widths - tokens) <= 0.011 / PLOT * scale.most * len(rows)
    assert abs(told - total["cost_usd"]) < 1e-6
    assert areas == {part: total[f"{part}_tokens"] for part in PARTS}


@pytest.mark.parametrize("path", TRACES[::3], ids=lambda path: path.name.removesuffix(".jsonl.xz"))
async def test_the_bill_is_the_ledgers_and_the_areas_are_the_reported_tokens(tmp_path: Path, path: Path) -> None:
    text = WITH_MASTER.replace("store: memory", "store: memory, clock: header")
    async with visited(tmp_path, text) as browser:
        await send(browser, path)
        # Sessions are listed some time behind their last request.
        for _ in range(1_000):
            if await listed_usd(browser) == pytest.approx((await ledger(browser))["cost_usd"]):
                break
            await asyncio.sleep(0.05)
        await check(browser)

"""The demo as a user runs it, and what its sessions cost over HTTP: to the token what a replay of them says."""

import asyncio
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli import main
from proxy.lab import Step
from proxy.lab.demo import Tally
from proxy.lab.demo.chats import samples
from proxy.lab.demo.command import demo_settings, running, scene_of, send_all
from proxy.lab.replay import counted_once, replay
from proxy.planner.plan import Plan
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.upstream.embedded import account_name
from tests.documents import Page
from tests.waiting import until

PAGE = Page(Path("README.md"))
FRONT_PAGE = {
    "editor": "chat that edits files, in aider's format",
    "agent": "tool-calling agent that only appends",
    "clock": "agent with the time in its instructions",
    "support": "support chat with retrieved documents in the system prompt",
    "all": "all",
}
COMMAND = [sys.executable, "-c", "import sys; from proxy.cli import main; sys.exit(main())", "demo"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=600, check=False)


def run_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The command in this process, which has imported what a process of its own would import: its exit status, and
    what it printed to stdout and stderr."""
    status = main(["demo", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def samples_of(metrics: list[str], name: str) -> dict[str, float]:
    found = (re.fullmatch(rf"{name}{{?(.*?)}}? (\S+)", line) for line in metrics)
    return {match[1]: float(match[2]) for match in found if match}


@pytest.mark.slow
def test_the_demo_ends_well_and_its_figures_agree(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_here(capsys, "--json")
    assert (status, err) == (0, "")
    report: dict[str, Any] = orjson.loads(out)
    total, sessions = report["total"], {session["name"]: session for session in report["sessions"]}
    assert set(sessions) == {"editor", "agent", "clock", "support"}
    assert total["requests"] == sum(session["requests"] for session in sessions.values()) == 84
    assert total["violations"] == 0
    for session in sessions.values():
        cheapest = min(share for name, share in session["share"].items() if name != "stratiform")
        assert session["share"]["stratiform"] <= 1.02 * cheapest
    for name in ("editor", "clock", "support"):
        assert sessions[name]["share"]["stratiform"] < 0.9
    for name, row in FRONT_PAGE.items():
        share = (total if name == "all" else sessions[name])["share"]
        assert PAGE.row(row) == [f"{share[policy]:.2f}" for policy in ("system + last", "stratiform")]
    # What the clients were told, what the proxy counted, and the sums on the screen are the same tokens and dollars.
    tokens = Counter[str]()
    for labels, count in samples_of(report["metrics"], "stratiform_tokens_total").items():
        tokens.update({kind: count for kind in re.findall(r'kind="(\w+)"', labels)})
    assert tokens["read"] == total["tokens_read"]
    assert tokens["read"] + tokens["write"] + tokens["uncached"] == total["prompt_tokens"]
    (cost,) = samples_of(report["metrics"], "stratiform_input_cost_usd_total").values()
    assert cost == pytest.approx(total["usd"]["stratiform"])
    (requests,) = samples_of(report["metrics"], "stratiform_requests_total").values()
    assert requests == 84


@pytest.mark.slow
def test_the_words_on_the_screen() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("84 requests over HTTP, each checked", "Saved: ", "stratiform_tokens_total{", "base_url=", "24/24"):
        assert words in done.stdout
    assert "make demo ARGS=--ui" in done.stdout.splitlines()[-1], "how the pages are seen"


@pytest.mark.slow
def test_over_http_every_session_is_sent_and_costs_as_its_replay_says() -> None:
    encode = counted_once(bytes_over_four)
    scene = scene_of(demo_settings(0), encode)
    tallies = [_Noting.of(sample, scene.setting, scene.price) for sample in samples()]
    with running(scene.settings, bytes_over_four) as proxy:
        asyncio.run(send_all(proxy, tallies))
        ledgers = dict(proxy.provider.ledgers)
    for sample, tally in zip(samples(), tallies, strict=True):
        sent: list[Any] = []
        offline = replay(sample.trace(), replace(tally.setting, on_sent=partial(_note, sent)))
        assert tally.sent == sent
        assert tally.ours == offline.ours
        assert tally.accounts["system + last"].total == offline.totals["system + last"]
        ledger = ledgers[account_name(f"demo-{sample.name}")]
        billed = (ledger.read, ledger.write_5m, ledger.write_1h, ledger.plain)
        assert billed == (offline.ours.read, offline.ours.write_5m, offline.ours.write_1h, offline.ours.plain)
        assert (ledger.requests, ledger.answered) == (len(sample.requests), len(sample.requests))


class _Noting(Tally):
    """A session that remembers what has reached the provider."""

    def add(self, usage: Usage, sent: bytes) -> None:
        self.sent = [*getattr(self, "sent", ()), orjson.loads(sent)]
        super().add(usage, sent)


def _note(sent: list[Any], step: Step, plan: Plan) -> None:
    sent.append(orjson.loads(plan.body))


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_quietly() -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "The proxy is at" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.slow
def test_the_pages_of_the_sessions_are_served_until_somebody_interrupts_them() -> None:
    with subprocess.Popen([*COMMAND, "--ui"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = ""
        while (found := re.search(r"The sessions as pictures: (http://127\.0\.0\.1:\d+/ui)", printed)) is None:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        text = ""

        def is_listed() -> bool:
            # Sessions are listed within two seconds of their last request.
            nonlocal text
            with urllib.request.urlopen(found[1], timeout=60) as page:
                text = page.read().decode()
            return "<svg" in text

        until(is_listed)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    requests = re.search(r"^(\d+) requests over HTTP", printed, re.MULTILINE)
    assert requests is not None
    assert re.search(rf"<dt>Requests</dt><dd>{requests[1]}</dd>", text)

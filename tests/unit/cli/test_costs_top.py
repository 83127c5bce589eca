"""``stratiform top`` on a proxy that runs."""

import json
import os
import pty
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from proxy.cli import main
from proxy.client import token_usage
from tests.services import STRATIFORM
from tests.waiting import until
from tests.whole import whole

MASTER = "sk-top-master"
CONFIG = f"""
model_list:
  - {{model_name: sonnet, litellm_params: {{model: embedded/claude-sonnet-4-5, output_tokens: 40}}}}
  - {{model_name: haiku, litellm_params: {{model: embedded/claude-haiku-4-5, output_tokens: 40}}}}
general_settings: {{master_key: {MASTER}}}
stratiform:
  teams:
    - {{name: red, keys: [sk-red]}}
    - {{name: blue, keys: [sk-blue]}}
"""
RULES = "".join(f"Rule {number}: answer briefly, and never guess what a file contains.\n" for number in range(300))


def talk(url: str, key: str, model: str, turns: int) -> list[Any]:
    """A conversation of so many turns; what the proxy says that each has used."""
    messages, used = [{"role": "system", "content": RULES}], []
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        for turn in range(turns):
            messages.append({"role": "user", "content": f"Question {turn} of {key}: what comes next?"})
            extra = {"stratiform": {"return_usage": True}}
            answer = client.chat.completions.create(model=model, messages=messages, extra_body=extra)  # type: ignore[arg-type]
            messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
            used.append(token_usage(answer))
    return used


def listed(url: str) -> list[dict[str, Any]]:
    request = urllib.request.Request(f"{url}/admin/sessions", headers={"authorization": f"Bearer {MASTER}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]
        return found


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", MASTER)
    monkeypatch.setattr("proxy.services.session_book._EVERY_S", 0.02)  # so often it is written to the store
    with whole(tmp_path, CONFIG) as found:
        yield found


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def command(*words: str) -> str:
        assert main(["top", *words, "--url", url]) == 0
        return capsys.readouterr().out

    return command


@pytest.fixture
def used(url: str) -> dict[str, list[Any]]:
    """Two conversations, of whose last requests the list knows."""
    found = {"red": talk(url, "sk-red", "sonnet", 3), "blue": talk(url, "sk-blue", "haiku", 2)}
    last = {team: tiers(answers[-1]) for team, answers in found.items()}
    until(lambda: {one["team"]: tiers(one) for one in listed(url)} == last)
    return found


def tiers(said: Any) -> dict[str, int]:
    """The tokens in each tier, as an answer or the list says them."""
    each = said["tiers"]
    tokens = each if isinstance(each, dict) else {one["tier"]: one["tokens"] for one in each}
    return {tier: count for tier, count in tokens.items() if count}


def test_sessions_are_listed_with_what_they_used(run: Callable[..., str], used: dict[str, list[Any]]) -> None:
    printed = run("--once")
    for team, model, turns in (("red", "sonnet", 3), ("blue", "haiku", 2)):
        session = used[team][-1]["session"]
        figures = (
            f"{session[name]:,}" for name in ("requests", "cache_read_tokens", "cache_write_tokens", "uncached_tokens")
        )
        assert session["requests"] == turns
        cost = re.escape(f"{session['cost_usd']:.4f}")
        assert re.search(rf"{team} +{model} .*tier +{' +'.join(figures)} +\d+% +{cost} ", printed)
    assert re.search(r"^total +5 ", printed, re.MULTILINE)
    assert re.search(r"^2 sessions of the last day", printed)


def test_sessions_are_added_up(run: Callable[..., str], used: dict[str, list[Any]]) -> None:
    found = json.loads(run("--by", "team", "--json"))["data"]
    assert {one["team"]: one["requests"] for one in found} == {"red": 3, "blue": 2}
    for one in found:
        assert one["cost_usd"] == pytest.approx(sum(each["request"]["cost_usd"] for each in used[one["team"]]))
    assert re.search(r"^haiku +1 +2 ", run("--by", "model", "--once"), re.MULTILINE)
    assert re.search(r"^- +2 +5 ", run("--by", "client", "--once"), re.MULTILINE)


def test_one_session_is_shown_in_its_layers(run: Callable[..., str], url: str, used: dict[str, list[Any]]) -> None:
    (one,) = (each for each in listed(url) if each["team"] == "red")
    printed = run("--session", one["id"], "--once")
    tokens = used["red"][-1]["tiers"][0]["tokens"]
    assert re.search(rf"L0 \(12\+\) +█+ +{tokens:,} +\[cached\] +system {tokens:,}", printed)
    assert re.search(r"first [\d,]+ tokens cached until \d\d:\d\d:\d\d UTC", printed)
    assert "Rule 7" not in printed
    assert json.loads(run("--session", one["id"], "--json"))["blocks"][0]["tokens"] == tokens


def test_what_an_answer_says_is_what_the_list_says(url: str, used: dict[str, list[Any]]) -> None:
    for one in listed(url):
        last = used[one["team"]][-1]
        assert last["session"]["cost_usd"] == pytest.approx(one["cost_usd"])
        assert last["session"]["cache_read_tokens"] == one["read_tokens"]
        assert tiers(last) == tiers(one)
        request = last["request"]
        parts = request["cache_read_tokens"] + request["cache_write_tokens"] + request["uncached_tokens"]
        assert parts == request["prompt_tokens"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--session", "nobody"], "There is no such session"),
        (["--session", "a/b"], "a session's id has no slash"),
        (["--session", "\udcff"], "There is no such session"),
        (["--url", "http://127.0.0.1:9"], "does not answer as a proxy does"),
        (["--url", ""], "does not answer as a proxy does"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    url: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    where = [] if "--url" in words else ["--url", url]
    with pytest.raises(SystemExit) as ended:
        main(["top", "--once", *words, *where])
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


def test_names_of_clients_command_no_terminal(run: Callable[..., str], url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-red", max_retries=0) as client:
        client.chat.completions.create(
            model="sonnet", messages=[{"role": "user", "content": "hi"}], user="\x1b[2J" + "x" * 10_000
        )
    until(lambda: len(listed(url)) == 1)
    printed = run("--once")
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 200


def test_a_terminal_is_kept_up_to_date_until_somebody_interrupts_it(url: str, used: dict[str, list[Any]]) -> None:
    ours, theirs = pty.openpty()
    command = [*STRATIFORM, "top", "--url", url]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "20"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        seen = b""
        while not re.search(rb"total .*?5", seen):
            seen += os.read(ours, 4096)
        talk(url, "sk-red", "haiku", 1)
        while not re.search(rb"total .*?6", seen):
            seen += os.read(ours, 4096)
        process.send_signal(2)
        assert process.wait(30) == 130
    os.close(ours)

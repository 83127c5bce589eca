"""Signals: SIGHUP reloads the configuration of a running proxy; SIGTERM and SIGINT end it, also during a stream."""

import os
import select
import signal
import subprocess
import time
from pathlib import Path

import httpx2 as httpx
import pytest

from proxy.app.composition import ConfigSource
from proxy.app.settings import load
from tests.doubles import serving as provider_at
from tests.e2e.provider import Scripted, streams
from tests.unit.cli.test_serve import serving

WAIT_S = 60.0
MODEL = "  - {{model_name: {name}, litellm_params: {{model: embedded/claude-sonnet-4-5, output_tokens: 40}}}}\n"
TEAM = "    - {{name: {name}, keys: [sk-{name}]{more}}}\n"


def config_of(models: list[str], teams: dict[str, str], more: str = "") -> str:
    listed = "".join(MODEL.format(name=name) for name in models)
    declared = "".join(TEAM.format(name=name, more=rest) for name, rest in teams.items())
    return f"model_list:\n{listed}stratiform:\n  store: memory\n{more}  teams:\n{declared}"


def status(url: str, key: str, model: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20}
    return httpx.post(f"{url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}).status_code


class Log:
    """What the process says from now on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        self._end = process.stderr.fileno()
        self._text = ""

    def until(self, words: str) -> None:
        """Wait for these words, and forget what was said before them."""
        deadline = time.monotonic() + WAIT_S
        while words not in self._text:
            readable, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, self._text
            self._text += os.read(self._end, 1 << 16).decode()
        self._text = self._text.partition(words)[2]


@pytest.mark.slow
def test_models_keys_and_budgets_follow_the_file_and_connections_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config_of(["one"], {"red": "", "gone": ""}))
    with serving("--config", str(path)) as (url, process), httpx.Client() as kept:
        log = Log(process)
        assert [status(url, "sk-red", "one"), status(url, "sk-gone", "one")] == [200, 200]
        assert [status(url, "sk-red", "two"), status(url, "sk-new", "one")] == [404, 401]
        names = kept.get(f"{url}/models", headers={"authorization": "Bearer sk-red"}).json()["data"]
        assert [model["id"] for model in names] == ["one"]
        path.write_text(config_of(["one", "two"], {"red": ", budget: {usd: 0.0000001}", "new": ""}))
        process.send_signal(signal.SIGHUP)
        log.until("the configuration is reloaded: 2 models, 3 teams, 2 keys, 1 budgets")
        names = kept.get(f"{url}/models", headers={"authorization": "Bearer sk-red"}).json()["data"]
        assert [model["id"] for model in names] == ["one", "two"]
        assert [status(url, "sk-new", "two"), status(url, "sk-gone", "one")] == [200, 401]
        assert status(url, "sk-red", "one") == 429, "the new budget holds"


BROKEN = (
    "model_list: [",
    "model_list: [{model_name: one, litellm_params: {model: openai/x}}]\nstratiform: {mode: fast}\n",
    config_of([], {}),
    "model_list: [{model_name: one, litellm_params: {model: vllm/x}, model_info: {transport: http}}]\n",
)


@pytest.mark.slow
def test_a_file_with_a_mistake_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config_of(["one"], {"red": ""}))
    with serving("--config", str(path)) as (url, process):
        log = Log(process)
        for text in BROKEN:
            path.write_text(text)
            process.send_signal(signal.SIGHUP)
            log.until("the configuration is not reloaded: ")
        assert [status(url, "sk-red", "one"), status(url, "sk-none", "one")] == [200, 401]
        path.write_text(config_of(["one"], {"blue": ""}, more="  limits: {drain_s: 3}\n"))
        process.send_signal(signal.SIGHUP)
        log.until("stratiform.limits has changed: the change takes effect when the proxy is started again")
        log.until("the configuration is reloaded: ")
        assert [status(url, "sk-red", "one"), status(url, "sk-blue", "one")] == [401, 200]


@pytest.mark.slow
def test_a_proxy_that_accepted_every_key_accepts_those_of_the_file_alone_once_there_are_some(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model_list:\n" + MODEL.format(name="one"))
    with serving("--config", str(path)) as (url, process):
        log = Log(process)
        assert status(url, "sk-anybody", "one") == 200
        path.write_text(config_of(["one"], {"red": ""}, more="").replace("  store: memory\n", ""))
        process.send_signal(signal.SIGHUP)
        log.until("the configuration is reloaded: ")
        assert [status(url, "sk-anybody", "one"), status(url, "sk-red", "one")] == [401, 200]
        path.write_text("model_list:\n" + MODEL.format(name="one"))
        process.send_signal(signal.SIGHUP)
        log.until("the configuration is reloaded: ")
        assert status(url, "sk-anybody", "one") == 401, "a door that was closed stays closed while the process runs"


@pytest.mark.slow
def test_a_proxy_without_a_file_outlives_the_signal() -> None:
    with serving("--upstream", "http://127.0.0.1:9/v1") as (url, process):
        log = Log(process)
        process.send_signal(signal.SIGHUP)
        log.until("the configuration is reloaded: ")
        assert httpx.get(url.removesuffix("/v1") + "/healthz").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_stream_that_outlasts_the_drain_ends_in_an_error_and_logs_no_traceback(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
    with provider_at(Scripted(streams(event, ends=False))) as upstream:
        path = tmp_path / "config.yaml"
        model = f'{{model_name: m, litellm_params: {{model: openai/m, api_base: "{upstream}/v1", api_key: sk-x}}}}'
        path.write_text(f"model_list: [{model}]\nstratiform: {{limits: {{drain_s: 0.5}}}}\n")
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        with (
            serving("--config", str(path)) as (url, process),
            httpx.stream("POST", f"{url}/chat/completions", json=body) as answer,
        ):
            lines = answer.iter_lines()
            assert "word" in next(lines)
            process.send_signal(number)
            assert any('"code":"shutting_down"' in line for line in lines)
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()
            assert process.wait() == code


@pytest.mark.slow
def test_the_log_says_that_answers_are_waited_for_and_a_second_interrupt_ends_them_without_a_traceback() -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    with (
        provider_at(Scripted(streams(event, ends=False))) as upstream,
        serving("--upstream", f"{upstream}/v1") as (url, process),
        httpx.stream("POST", f"{url}/chat/completions", json=body) as answer,
    ):
        log, lines = Log(process), answer.iter_lines()
        assert "word" in next(lines)
        process.send_signal(signal.SIGINT)
        log.until("Waiting for connections to close. (CTRL+C to force quit)")
        process.send_signal(signal.SIGINT)
        assert any('"code":"shutting_down"' in line for line in lines)
        assert process.wait() == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("general_settings: {allowed_ips: [10.0.0.0/8]}", "general_settings.allowed_ips"),
        ("router_settings: {retry_policy: {TimeoutErrorRetries: 0}}", "router_settings (retries"),
        ("router_settings: {allowed_fails: 9}", "router_settings (retries"),
        ("router_settings: {enable_pre_call_checks: true}", "router_settings (retries"),
        ("router_settings: {fallbacks: [{one: [one]}]}", ""),
    ],
)
def test_what_needs_a_restart_is_named(more: str, what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config_of(["one"], {"red": ""}))
    source = ConfigSource(load(path), lambda: load(path))
    path.write_text(config_of(["one"], {"red": ""}) + more + "\n")
    caplog.clear()
    assert source.reread()
    assert [line.startswith(what) for line in caplog.messages] == ([True] if what else [])

"""``stratiform serve``: starting, budgets through a restart, stopping, what it must not import, and the socket."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import openai
import pytest

from proxy.app import composition
from proxy.app.settings import ConfigError, Environment, load
from proxy.cli import main
from proxy.cli.serve import address, listen, server
from proxy.protocol.request.tokens import bytes_over_four
from tests.services import STRATIFORM
from tests.waiting import until

CONFIG = """
model_list:
  - model_name: sonnet
    litellm_params: {model: embedded/claude-sonnet-4-5, output_tokens: 40}
general_settings: {master_key: sk-master}
stratiform:
  store: sqlite:spend.sqlite
  teams:
    - {name: red, keys: [sk-red], budget: {usd: 0.00085}}
    - {name: blue, keys: [sk-blue]}
"""


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The command, once it listens: its address and the process."""
    command = [*STRATIFORM, "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            first = process.stderr.readline()
            found = re.search(r"http://\S+/v1", first)
            assert found, first + process.stderr.read()
            yield found[0], process
        finally:
            if process.poll() is None:
                process.terminate()


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


def ask(url: str, key: str, **more: object) -> object:
    with openai.OpenAI(base_url=url, api_key=key, max_retries=2) as client:
        messages = [{"role": "user", "content": "hello"}]
        return client.chat.completions.create(model="sonnet", messages=messages, **more)  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_teams_budget_holds_is_told_clearly_and_survives_a_restart(config: str) -> None:
    with serving("--config", config) as (url, process):
        ask(url, "sk-red", max_tokens=20)
        ask(url, "sk-red", max_tokens=20)
        with pytest.raises(openai.RateLimitError) as caught:
            ask(url, "sk-red", max_tokens=20)
        assert caught.value.status_code == 429
        assert caught.value.code == "insufficient_quota"
        assert "The budget 'total' of team 'red' does not allow this request: $0.00" in str(caught.value)
        ask(url, "sk-blue", max_tokens=20)
        ask(url, "sk-master", max_tokens=20)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        log = process.stderr.read()
        assert process.wait() in (0, -signal.SIGTERM)
    assert len(re.findall(r" exchange ", log)) == 5  # the refusal was not retried
    assert "Traceback" not in log
    assert "sk-red" not in log
    with serving("--config", config) as (url, _):
        left = re.search(r'^stratiform_budget_remaining_usd{team="red"} (\S+)', metrics(url), re.MULTILINE)
        assert left
        assert 0 < float(left[1]) < 0.0004
        with pytest.raises(openai.RateLimitError):
            ask(url, "sk-red", max_tokens=20)


def metrics(url: str) -> str:
    return httpx.get(url.removesuffix("/v1") + "/metrics").text


@pytest.mark.slow
def test_the_command_line_wins_over_the_file(config: str) -> None:
    with serving("--config", config, "--mode", "passthrough") as (url, process):
        ask(url, "sk-blue")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert " mode=passthrough " in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream", "localhost:1"], "--upstream: must be an http:// or https:// URL"),
        (
            ["--upstream", "http://x", "--host", "256.0.0.1"],
            "stratiform.host: cannot listen on host `256.0.0.1`, port 4000: ",
        ),
        (["--upstream", "http://x", "--workers", "2"], "--workers: more than one worker needs a store that they share"),
        (["--config", "CONFIG", "--cache-profile", "vllm"], "--cache-profile: goes with --upstream; in a file"),
        (["--config", "/no/such/file.yaml"], "/no/such/file.yaml: cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_served_is_said(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], config: str
) -> None:
    assert main(["serve", *(config if one == "CONFIG" else one for one in arguments)]) == 1
    assert f"error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "bounds"), [("port", "70000", "0 and 65535"), ("workers", "0", "1 and 64")]
)
def test_a_number_out_of_bounds_is_wrong_usage(
    option: str, value: str, bounds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", f"--{option}", value])
    assert f"argument --{option}: must be between {bounds}" in capsys.readouterr().err


@pytest.mark.slow
def test_the_start_says_whose_cache_rules_hold_and_no_password() -> None:
    with serving("--upstream", "http://user:secret@127.0.0.1:9/v1", "--cache-profile", "vllm") as (_, process):
        assert process.stderr is not None
        assert "http://127.0.0.1:9/v1: cache profile vllm" in process.stderr.readline()


BUILD = """
import asyncio, sys
from pathlib import Path
from proxy.app import composition
from proxy.app.settings import load
from proxy.app.web import create_app

create_app(asyncio.run(composition.build(load(Path(sys.argv[1]), "http://localhost:9"))).parts)
found = [name for name in sys.modules if name == "litellm" or name.startswith("litellm.")]
assert not found, found
"""


@pytest.mark.slow
def test_the_http_and_embedded_transports_do_without_litellm(config: str) -> None:
    subprocess.run([sys.executable, "-c", BUILD, config], check=True)


FRAMEWORKS = "import aiohttp, prometheus_client, pydantic, starlette.applications, uvicorn, yaml"
MEMORY = """
from pathlib import Path
print(*[line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")])
"""


def cpu_s(code: str, *arguments: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.slow
def test_starting_costs_little_more_than_the_frameworks_do(config: str) -> None:
    """The bound is five times; about three are usual (0.7 s of the processor). To import litellm alone costs
    twenty times as much. The test takes a ratio, since seconds grow beside other work."""
    assert min(cpu_s(BUILD, config) for _ in range(3)) < 5 * min(cpu_s(FRAMEWORKS) for _ in range(3))


def resident_mb(code: str, *arguments: str) -> float:
    told = subprocess.run([sys.executable, "-c", code + MEMORY, *arguments], check=True, stdout=subprocess.PIPE)
    return int(told.stdout) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_proxy_that_has_started_takes_50_mb_more_than_the_frameworks_do(config: str) -> None:
    assert resident_mb(BUILD, config) < resident_mb(FRAMEWORKS) + 50


WITH_LITELLM = """
model_list:
  - model_name: small
    litellm_params: {model: embedded/claude-sonnet-4-5, output_tokens: 4}
  - model_name: large
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: none, api_base: "http://127.0.0.1:9"}
"""


@pytest.mark.slow
def test_other_models_are_served_while_litellm_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(WITH_LITELLM)
    with serving("--config", str(path)) as (url, _), httpx.Client(base_url=url, timeout=60) as client:

        def asked(model: str) -> httpx.Response:
            return client.post(
                "/chat/completions", json={"model": model, "messages": [{"role": "user", "content": "hi"}]}
            )

        early = asked("large")
        assert (early.status_code, early.json()["error"]["code"]) == (503, "upstream_loading")
        assert early.headers["retry-after"] == "5"
        assert asked("small").status_code == 200
        ready = url.removesuffix("/v1") + "/readyz"
        until(lambda: client.get(ready).status_code == 200)
        assert asked("large").json()["error"]["code"] != "upstream_loading"


async def test_an_idle_connection_outlives_the_pools_of_all_clients(config: str) -> None:
    """Google's load balancers keep an idle connection longest:
    https://cloud.google.com/load-balancing/docs/https#timeout-keepalive-backends."""
    settings = load(Path(config), environment=Environment({}))
    built = await composition.build(settings, encode=bytes_over_four)
    assert server(built, settings.stratiform.limits).config.timeout_keep_alive > 600
    for close in reversed(built.parts.on_close):
        await close()


def test_a_port_that_is_taken_is_said() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert address(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError) as caught:
            listen("127.0.0.1", port)
        (said,) = caught.value.problems
        free = re.fullmatch(rf"stratiform.port: 127.0.0.1:{port} is in use; `--port ([0-9]+)` is free", said)
        assert free is not None
        listen("127.0.0.1", int(free[1])).close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_a_server_listens_on_ipv6() -> None:
    with listen("::1", 0) as listener:
        assert address(listener) == f"http://[::1]:{listener.getsockname()[1]}"

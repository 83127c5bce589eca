"""Every fault of an upstream, as the users of four SDKs see it: directly, and through the proxy.

The kind of the error, its status and its message are the same, and the upstream gets no more calls. Only a broken
connection is told otherwise: in words instead of by a break, such that the SDK does what it would do about the break.
"""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from proxy.app.settings import Environment, load
from proxy.lab.demo.command import running
from proxy.protocol.request.tokens import bytes_over_four
from tests.e2e.faults import FAULTS, FaultyProvider, faulty_provider

# What SDKs leave behind of a connection that broke is theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

TIMEOUT_S = 3.0
PATIENT_S = 120.0
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
_PLACE = re.compile(r"0x[0-9a-f]+|http://127\S+|id='[^']*'")
AI_SDK = Path(__file__).parent / "ai_sdk"
CONFIG = """
router_settings: {{num_retries: 2}}
stratiform: {{port: 0, log_level: error}}
model_list:
{models}
"""
MODEL = '  - {{model_name: "{row}", litellm_params: {{model: openai/m, api_base: "{url}/p-{row}/{row.fault}/v1"}}}}'


@dataclass(frozen=True)
class Row:
    """A fault, what was asked for, and with which SDK."""

    fault: str
    is_stream: bool
    sdk: str

    def __str__(self) -> str:
        return f"{self.fault}-{'sse' if self.is_stream else 'json'}-{self.sdk}"


@dataclass(frozen=True)
class Seen:
    """What the user of an SDK sees, and how many calls the upstream got."""

    kind: str
    status: int | None
    message: str
    calls: int


Raised = tuple[str, int | None, str]
Table = Mapping[Row, tuple[Seen, Seen]]


def ask_openai(url: str, model: str, row: Row) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-x", timeout=timeout_s(row)) as client:
        yield from client.chat.completions.create(model=model, messages=HELLO, stream=row.is_stream)


def ask_anthropic(url: str, model: str, row: Row) -> Iterator[Any]:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="sk-x", timeout=timeout_s(row)) as client:
        answer: Any = client.messages.create(model=model, max_tokens=9, messages=HELLO, stream=row.is_stream)
        yield from answer


def ask_litellm(url: str, model: str, row: Row) -> Iterator[Any]:
    import litellm

    litellm.suppress_debug_info = True
    # With a client of its own, else litellm keeps the connections open.
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-x", timeout=timeout_s(row)) as client:
        to: dict[str, Any] = {"client": client, "api_key": "sk-x", "timeout": timeout_s(row)}
        yield from litellm.completion(model=f"openai/{model}", messages=HELLO, stream=row.is_stream, **to)


def timeout_s(row: Row) -> float:
    """Only the fault that is about the time shall meet its end: a machine that does much at once is slow."""
    return TIMEOUT_S if row.fault == "timeout" else PATIENT_S


Ask = Callable[[str, str, Row], Iterator[Any]]
SDKS: Mapping[str, Ask] = {"openai": ask_openai, "anthropic": ask_anthropic, "litellm": ask_litellm}


def raised(ask: Ask, url: str, model: str, row: Row, begun: threading.Event) -> Raised:
    """What the SDK raises. ``begun`` is set with the first part of its stream."""
    try:
        for _ in ask(url, model, row):
            begun.set()
    except Exception as error:  # noqa: BLE001 - every class is a finding
        # Some messages show an object's address, or where it came from.
        return type(error).__name__, getattr(error, "status_code", None), _PLACE.sub("", str(error))
    return "", None, ""


def rows_of(*sdks: str) -> list[Row]:
    return [Row(fault, is_stream, sdk) for fault in FAULTS for is_stream in (False, True) for sdk in sdks]


@contextmanager
def proxy_before(provider: FaultyProvider, rows: Sequence[Row], folder: Path) -> Iterator[str]:
    """The proxy as it is configured by default, with a deployment for each row."""
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(models="\n".join(MODEL.format(row=row, url=provider.url) for row in rows)))
    with running(load(path, environment=Environment({})), bytes_over_four) as proxy:
        yield proxy.url


def places(provider: FaultyProvider, proxy: str, row: Row) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """The key, the address and the model of a row: direct, and through the proxy."""
    direct = f"d-{row}"
    return (direct, f"{provider.url}/{direct}/{row.fault}", "m"), (f"p-{row}", proxy, str(row))


def begun_at(provider: FaultyProvider, key: str) -> threading.Event:
    """What tells the provider that the client has seen the beginning of its stream."""
    return provider.begun.setdefault(key, threading.Event())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """What the Python SDKs see. All rows run side by side, as SDKs wait long."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    rows, folder = rows_of(*SDKS), tmp_path_factory.mktemp("faults")
    with (
        faulty_provider() as provider,
        proxy_before(provider, rows, folder) as proxy,
        ThreadPoolExecutor(len(rows)) as pool,
    ):

        def run(row: Row) -> tuple[Seen, Seen]:
            direct, through = (
                Seen(*raised(SDKS[row.sdk], url, model, row, begun_at(provider, key)), provider.calls[key])
                for key, url, model in places(provider, proxy, row)
            )
            return direct, through

        yield dict(zip(rows, pool.map(run, rows), strict=True))


@pytest.fixture(scope="module")
def ai_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """What the AI SDK sees."""
    is_there = shutil.which("node") is not None and (AI_SDK / "node_modules" / "ai").is_dir()
    needed = f"needs node, and `npm ci` in {AI_SDK}"
    if not is_there and not os.environ.get("CI"):
        pytest.skip(needed)
    assert is_there, needed
    rows, folder = rows_of("ai-sdk"), tmp_path_factory.mktemp("faults")
    with faulty_provider() as provider, proxy_before(provider, rows, folder) as proxy:
        placed = [(row, *place) for row in rows for place in places(provider, proxy, row)]
        asked = [
            {"url": url, "model": model, "stream": row.is_stream, "timeout_ms": int(timeout_s(row) * 1000)}
            for row, _, url, model in placed
        ]
        done = subprocess.run(
            ["node", "ask.mjs"], cwd=AI_SDK, input=json.dumps(asked), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        found = [
            Seen(told["kind"], told["status"], told["message"], provider.calls[key])
            for (_, key, _, _), told in zip(placed, json.loads(done.stdout), strict=True)
        ]
        yield {row: (found[2 * i], found[2 * i + 1]) for i, row in enumerate(rows)}


def check(row: Row, direct: Seen, through: Seen) -> None:
    """Hold one row against the promise."""
    # A stream is asked for its usage; an upstream that refuses such a request gets the client's own once.
    is_asked = row.fault == "bad-request" and row.is_stream and row.sdk != "anthropic"
    assert through.calls <= direct.calls + is_asked
    if row.fault == "reset" or (row.fault == "cut-in-body" and not row.is_stream):
        assert (through.status, through.calls) == (502, direct.calls), "it is retried as a broken connection is"
        assert "the connection to the upstream broke" in through.message
    elif row.fault == "cut-in-body" and row.is_stream:
        assert through.kind
        assert direct.kind
        assert "the connection to the upstream broke" in through.message
    else:
        assert (through.kind, through.status, through.message) == (direct.kind, direct.status, direct.message)
    if row.fault == "quota":
        assert through.calls == 1 or row.sdk == "ai-sdk", "no wait helps an account without money"


@pytest.mark.parametrize("row", rows_of(*SDKS), ids=str)
def test_an_sdk_sees_of_a_fault_what_it_would_see_directly(table: Table, row: Row) -> None:
    check(row, *table[row])


@pytest.mark.parametrize("row", rows_of("ai-sdk"), ids=str)
def test_the_ai_sdk_sees_of_a_fault_what_it_would_see_directly(ai_table: Table, row: Row) -> None:
    check(row, *ai_table[row])


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_break_in_mid_stream_is_an_error_of_the_sdk(table: Table, sdk: str) -> None:
    """Not one of its HTTP library, which its users do not catch."""
    _, through = table[Row("cut-in-body", True, sdk)]
    assert through.kind in {"APIError", "APIStatusError"}

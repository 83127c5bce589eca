"""The proxy that the security tests attack: put together as ``stratiform serve`` does it, on a real socket.

    with world_of(CONFIG) as world:
        reply = world.call("POST", "/v1/chat/completions", chat("cheap"), key="team-a")
        assert reply.status == 200 and world.sent()[0].provider == "alpha"
        assert world.spent("team-a") > 0

A configuration is LiteLLM's YAML with a ``stratiform`` section. In its text ``{alpha}`` and ``{beta}`` stand for the
base URLs of the recording providers, ``{sqlite}`` for a fresh file; the keys are those of ``KEYS``. Where a file shares
one world, its tests begin with ``world.forget()`` (the fixture ``world`` of the folder does it), and compare what was
spent with what had been spent before.
"""

import asyncio
import http.client
import io
import json
import logging
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from proxy.app import composition
from proxy.app.settings import Environment, load
from proxy.cli.serve import address, listen, run_on_loop, server
from proxy.models.charges import NANOS_PER_USD
from proxy.protocol.request.tokens import Encode, bytes_over_four
from proxy.storage import LedgerEntry, Store
from tests.doubles import serving
from tests.security.provider import RecordingProvider, Seen

T = TypeVar("T")

WAIT_S = 60.0
KEYS = {
    "master": "sk-master-7d1fC0ffee00ab93e1",
    "team-a": "sk-alpha-team-83bd0f6f1c2e55aa",
    "team-b": "sk-bravo-team-19ce77d0aa318b42",
    "listed": "sk-listed-team-5e0ac41799dd0be3",
    "tight": "sk-tight-team-bb41e90c6e6f7720",
    "expired": "sk-expired-key-0a3f86f2d77e1c90",
    "keyed": "sk-keyed-key-c7715f31ee9a02d8",
}
"""The keys of ``CONFIG`` by the names that ``World.call`` knows; ``keyed`` is of team-b and has a list of its own."""
PROVIDER_KEYS = {"alpha": "sk-provider-alpha-6b1f0c8e2d", "beta": "sk-provider-beta-f94e7a3350"}

MODELS = """
model_list:
  - {model_name: cheap, litellm_params: {model: openai/cheap-1, api_base: "{alpha}/v1", api_key: sk-provider-alpha-6b1f0c8e2d},
     model_info: {transport: http}}
  - {model_name: dear, litellm_params: {model: openai/dear-1, api_base: "{beta}/v1", api_key: sk-provider-beta-f94e7a3350},
     model_info: {transport: http}}
router_settings: {num_retries: 0, disable_cooldowns: true}
"""  # noqa: E501
PRICES = """
  prices:
    cheap-1: {input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}
    dear-1: {input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}
"""
CONFIG = (
    MODELS
    + """
general_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}
stratiform:
  port: 0
  store: "{sqlite}"
  log_level: debug
  limits: {receive_s: 20, drain_s: 2}
  teams:
    - name: team-a
      keys: [sk-alpha-team-83bd0f6f1c2e55aa]
    - name: team-b
      keys:
        - sk-bravo-team-19ce77d0aa318b42
        - {key: sk-keyed-key-c7715f31ee9a02d8, models: [cheap]}
    - name: listed
      keys: [sk-listed-team-5e0ac41799dd0be3]
      models: [cheap]
    - name: tight
      keys: [sk-tight-team-bb41e90c6e6f7720]
      budget: {usd: 0.05}
    - name: old
      keys: [{key: sk-expired-key-0a3f86f2d77e1c90, expires: 2020-01-01}]
"""
    + PRICES
)
"""Two models on two providers, a master key, and teams: two without limits, one with a list, one with a budget."""


def chat(model: str = "cheap", text: str = "Are you well?", **more: object) -> dict[str, object]:
    """A chat request."""
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 16, **more}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client was answered. A status of 0: the connection was closed without an answer."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def error_code(self) -> str | None:
        """The error's ``code``, in OpenAI's shape; None where there is no error."""
        answer = self.json
        error = answer.get("error") if isinstance(answer, dict) else None
        return str(error.get("code")) if isinstance(error, dict) else None

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass
class World:
    """A proxy that serves, its providers by name, and where those listen (``urls``)."""

    url: str
    urls: Mapping[str, str]
    providers: Mapping[str, RecordingProvider]
    store_path: Path
    _assembly: composition.BuiltApp
    _loop: asyncio.AbstractEventLoop
    _lines: list[str]
    _keys: dict[str, str] = field(default_factory=lambda: dict(KEYS))

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        key: str | None = "team-a",
        *,
        timeout_s: float = WAIT_S,
    ) -> Reply:
        """One request on a connection of its own. ``path`` is written onto the wire as it is; a body that is no bytes
        goes as JSON. ``key`` is a name of ``KEYS`` or a key itself; None: no key is sent."""
        given = list(headers.items() if isinstance(headers, Mapping) else headers)
        names = {name.lower() for name, _ in given}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [("host", self.url.removeprefix("http://")), ("connection", "close"), *given]
        if key is not None and "authorization" not in names:
            lines.append(("authorization", f"Bearer {self._keys.get(key, key)}"))
        if body is not None and "content-type" not in names:
            lines.append(("content-type", "application/json"))
        if (body is not None or method == "POST") and not names & {"content-length", "transfer-encoding"}:
            lines.append(("content-length", str(len(data))))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines)
        return parse(self.raw(head.encode("utf-8", "surrogateescape") + b"\r\n" + data, timeout_s=timeout_s), method)

    def new_key(self, team: str = "team-a", **fields: object) -> tuple[str, str]:
        """A key that is made now: its id and its secret."""
        made = self.call("POST", "/admin/keys", {"team": team, **fields}, key="master").json
        return made["id"], made["key"]

    def raw(self, data: bytes, *, quiet_s: float | None = None, timeout_s: float = WAIT_S) -> bytes:
        """Everything that the proxy sends back for these bytes, until it closes the connection, or, where ``quiet_s``
        is given, has been quiet for that long. A reset is an error: the client could have lost its answer."""
        with self.connect(timeout_s) as connection:
            received = b""
            try:
                connection.sendall(data)
                if quiet_s is not None:
                    connection.settimeout(quiet_s)
                while chunk := connection.recv(1 << 16):
                    received += chunk
            except TimeoutError:
                assert quiet_s is not None, f"no end of the answer: {received[:500]!r}"
            return received

    def connect(self, timeout_s: float = WAIT_S) -> socket.socket:
        """A connection, for what is sent piece by piece; the caller closes it."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), timeout_s)

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What these give when they are made at the same time."""
        with ThreadPoolExecutor(max_workers=len(calls)) as pool:
            return [done.result() for done in [pool.submit(call) for call in calls]]

    def sent(self, provider: str = "") -> list[Seen]:
        """What reached this provider, or any."""
        return [seen for name, one in self.providers.items() for seen in one.seen if provider in ("", name)]

    def forget(self) -> None:
        """Forget what was seen and logged, and all scripts; what was spent stays. Ends what still runs first."""
        self._wait()
        for provider in self.providers.values():
            provider.forget()
        self._lines.clear()

    @property
    def log(self) -> str:
        """Everything that was logged, by whomever, with tracebacks."""
        return "\n".join(self._lines)

    def metrics(self) -> str:
        """What ``/metrics`` says."""
        return b"".join(self._assembly.parts.metrics.pieces()).decode()

    def ledger(self, team: str) -> list[LedgerEntry]:
        """The team's entries, oldest first, after everything that runs has ended."""
        self._wait()
        return list(self._on_loop(self._store.entries(0.0, 1e12, team=team)))

    def spent(self, team: str) -> float:
        """What the ledger says that the team has spent, in USD."""
        return sum(entry.cost for entry in self.ledger(team)) / NANOS_PER_USD

    def bill(self, team: str, name: str) -> str:
        """The bill that waits with an object; it is taken."""
        return self._on_loop(self._store.take_bill(team, name))

    def _wait(self) -> None:
        """Until nothing is in flight or being settled."""
        engine = self._assembly.parts.engine
        # One metric of a hundred: to render all of them takes longer than a request does.
        in_flight = self._assembly.parts.metrics.registry.restricted_registry(["stratiform_in_flight"])

        async def ended() -> None:
            async with asyncio.timeout(WAIT_S):
                while any(sample.value for metric in in_flight.collect() for sample in metric.samples):
                    await asyncio.sleep(0.005)
                await engine._conclusion.aclose()

        self._on_loop(ended())

    @property
    def _store(self) -> Store:
        reservations: Any = self._assembly.parts.engine._ports.admission
        store: Store = reservations.store_client._store
        return store

    def _on_loop(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_S)


def parse(received: bytes, method: str = "GET") -> Reply:
    """The first answer in these bytes."""
    if not received:
        return Reply(0, [], b"")
    answer = http.client.HTTPResponse(_Bytes(received), method=method)  # type: ignore[arg-type]
    answer.begin()
    try:
        body = answer.read()
    except http.client.IncompleteRead as error:
        body = error.partial
    return Reply(answer.status, [(name.lower(), value) for name, value in answer.getheaders()], body)


class _Bytes:
    """What ``http.client`` asks of a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)


class _Ear(logging.Handler):
    """Keeps what anybody logs."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, with its traceback."""
        self._lines.append(self.format(record))


@contextmanager
def world_of(
    config: str = CONFIG,
    *,
    providers: Sequence[str] = ("alpha", "beta"),
    upstream: str = "",
    encode: Encode = bytes_over_four,
) -> Iterator[World]:
    """Serve this configuration in front of these providers; ``upstream`` is ``--upstream``, and ``encode`` counts
    tokens. Raises ConfigError."""
    with ExitStack() as stack:
        lines: list[str] = []
        stack.enter_context(_heard(lines))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        recording = {name: RecordingProvider(name) for name in providers}
        urls = {name: stack.enter_context(serving(one)) for name, one in recording.items()}
        text, given = _filled(config, folder, urls), _filled(upstream, folder, urls)
        (folder / "config.yaml").write_text(text)
        running = _Running(folder / "config.yaml", given, encode)
        stack.callback(running.stop)
        assembly = running.start()
        yield World(running.url, urls, recording, folder / "spend.sqlite", assembly, running.loop, lines)


def _filled(text: str, folder: Path, urls: Mapping[str, str]) -> str:
    for name, value in {**urls, "sqlite": f"sqlite:{folder / 'spend.sqlite'}"}.items():
        text = text.replace("{" + name + "}", value)
    return text


@contextmanager
def _heard(lines: list[str]) -> Iterator[None]:
    ear, root, ours = _Ear(lines), logging.getLogger(), logging.getLogger("stratiform")
    level = ours.level
    root.addHandler(ear)
    ours.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(ear)
        if not any(isinstance(handler, _Ear) for handler in root.handlers):  # worlds may overlap in any order
            ours.setLevel(level)


class _Running:
    """The server in its thread."""

    def __init__(self, config: Path, upstream: str, encode: Encode) -> None:
        self._encode = encode
        environment = Environment({"HOME": str(config.parent)})
        self._settings = load(config, upstream, environment=environment)
        self._listener = listen("127.0.0.1", 0)
        self._is_built = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attacked", daemon=True)
        self._failure: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._assembly: composition.BuiltApp | None = None
        self.url = address(self._listener)
        self.loop: asyncio.AbstractEventLoop

    def start(self) -> composition.BuiltApp:
        """Raises what keeps it from starting."""
        self._thread.start()
        self._is_built.wait(WAIT_S)
        if self._failure is not None:
            raise self._failure
        assert self._assembly is not None
        return self._assembly

    def stop(self) -> None:
        """End it in order."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(WAIT_S)
        self._listener.close()

    def _run(self) -> None:
        try:
            run_on_loop(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that started this one
            self._failure = error
        finally:
            self._is_built.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._assembly = await composition.build(self._settings, encode=self._encode)
        self._server = server(self._assembly, self._settings.stratiform.limits)
        self._is_built.set()
        await self._server.serve(sockets=[self._listener])

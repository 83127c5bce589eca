"""The connections to Redis. Scripts are called by their digest, and every failure is a StoreError.

The first call connects, and so does the first call after a failure. So a proxy can start without its store, and finds
the store when it is back. Connecting may take longer than a call is allowed to take; it goes on if a caller gives up.

A few senders take all calls that wait and send them together in one write, which costs one round trip. So a busy worker
does not lengthen the queue in front of its store.

A new client asks the server whether it is a cluster, and checks the versions of server and schema. It reads the file of
certificate authorities and looks up the server's name again, because a certificate may be renewed, and a name may lead
to another server after a failover.
"""

import asyncio
import hashlib
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as LineError

from proxy.kit.errors import StoreError
from proxy.kit.tasks import Tasks, drain, spawn, within
from proxy.kit.value import dataclass, field

PREFIX = "stratiform:"
SCHEMA = 1
"""The version of the key layout. A later program raises it, and migrates the data."""

CONNECT_S = 2.0
"""The time limit for connecting. Connecting and checking the server takes several round trips, and with TLS 20 ms of
computing."""

_SCHEMA_KEY = PREFIX + "schema"
_OLDEST = 7
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h).
_OF_ANOTHER_HOST = (62, 64)

Client = Redis | RedisCluster

_log = logging.getLogger("stratiform.store")


async def connected(url: str, connections: int, ca_file: Path | None) -> Client:
    """A client of a server that accepts writes: for a single server or for a cluster, whichever the server is.
    ``connections`` is the number of calls at the same time. Raises StoreError, OSError, and the errors of redis-py.

    The URL is redis:// or rediss:// (TLS). With TLS, the server's certificate must be valid for the URL's host and be
    signed by an authority of the system or of ``ca_file``.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_S,
        "client_name": "stratiform",
    }
    if ca_file is not None:
        options["ssl_ca_certs"] = str(ca_file)
    client: Client = Redis.from_url(url, **options)
    try:
        info: dict[str, Any] = await client.info()
        _check_server(info)
        if info.get("cluster_enabled"):
            await client.aclose()
            client = RedisCluster.from_url(url, max_connections=2 * connections, **options)
        await check_writing(client)
    except BaseException:
        await client.aclose()
        raise
    return client


def _check_server(info: Mapping[str, Any]) -> None:
    """Raises StoreError if the server is too old. Logs if it may delete budgets."""
    if int(str(info["redis_version"]).partition(".")[0]) < _OLDEST:
        raise StoreError(f"Redis {info['redis_version']} is too old: version {_OLDEST} is needed")
    if info.get("maxmemory") and str(info["maxmemory_policy"]).startswith("allkeys"):
        _log.error(
            "the Redis deletes keys when its memory is full (maxmemory-policy %s), and budgets begin anew then: set "
            "noeviction",
            info["maxmemory_policy"],
        )


async def check_writing(client: Client) -> None:
    """Write the version of this program into an empty store. A server that is read-only or full refuses the command
    even if a version is already there. Raises StoreError if a later program has written the version, and RedisError."""
    await client.execute_command("SET", _SCHEMA_KEY, SCHEMA, "NX")
    found = int(await client.execute_command("GET", _SCHEMA_KEY) or SCHEMA)
    if found > SCHEMA:
        raise StoreError(f"the store has version {found}, this program knows {SCHEMA}")


def said(error: Exception) -> str:
    """The text of a failure, with advice if a certificate is refused."""
    refused: BaseException | None = error
    while not isinstance(refused, ssl.SSLCertVerificationError):
        if refused is None:
            return str(error)
        refused = refused.__cause__ or refused.__context__
    advice = "" if refused.verify_code in _OF_ANOTHER_HOST else "; stratiform.store_ca names authorities to trust"
    return f"its certificate is refused: {refused.verify_message.removesuffix('.')}{advice}"


_LUA = Path(__file__).parent / "lua"
# A server answers one call at a time anyway, and making a connection costs more than many calls.
_CONNECTIONS = 8
_MOST_TOGETHER = 100
# EVALSHA: digest count key ...
_KEY_OF_A_SCRIPT = 2
# These errors say that this server does not accept writes (any more), or that the connections to it are dead.
_ANOTHER_SERVER = (LineError, ReadOnlyError, MovedError, ClusterDownError)

Argument = str | bytes | int | float
_Call = tuple[tuple[Argument, ...], "asyncio.Future[Any]"]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the digest by which a server identifies it."""

    text: str
    digest: str

    @classmethod
    def load(cls, *names: str) -> "Script":
        """The script made of the files of these names, one after the other. An empty name stands for no file."""
        text = "\n".join((_LUA / f"{name}.lua").read_text(encoding="utf-8") for name in names if name)
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@dataclass(slots=True, eq=False)
class _Line:
    """A client, and the number of its calls under way. A dropped client is closed after the last of them."""

    client: Client
    calls: int = 0
    is_dropped: bool = False


@dataclass(slots=True, eq=False)
class _Node:
    """One server: the calls that wait for it, each with its answer, and how many senders take them."""

    waiting: deque[_Call] = field(default_factory=deque)
    senders: int = 0


class RedisLink:
    """Connections to one Redis. Raises ValueError if ``url`` is no Redis URL."""

    def __init__(self, url: str, timeout_s: float, ca_file: Path | None = None) -> None:
        parse_url(url)
        self._open = partial(connected, url, _CONNECTIONS, ca_file)
        self._timeout_s = timeout_s
        self._line: _Line | None = None
        self._connecting: asyncio.Task[_Line | Exception] | None = None
        self._tasks: Tasks = set()
        self._nodes: dict[str, _Node] = {}

    async def run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Any:
        """Call a script by its digest, in one round trip, or with its text if the server does not know it yet."""
        try:
            return await self.command("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.command("EVAL", script.text, len(keys), *keys, *arguments)

    async def ping(self) -> None:
        """Raises StoreError if the server does not accept writes. The ping waits for no other call. It goes out on a
        new connection, which replaces the old ones, because those may be dead."""
        async with self._translated(), within(self._timeout_s):
            if self._line is not None and not isinstance(self._line.client, Redis):
                await check_writing(self._line.client)
            else:
                await self._connect()

    async def aclose(self) -> None:
        await drain(self._tasks)
        line, self._line = self._line, None
        if line is not None:
            await line.client.aclose()

    async def command(self, name: str, *words: Argument) -> Any:
        """Call one command. Raises StoreError, and NoScriptError if it calls a script by a digest that the server does
        not know."""
        node, answer = self._node(name, words), asyncio.get_running_loop().create_future()
        # A word that cannot be encoded fails here, so that it does not fail other calls in the same write.
        encoded = [word.encode() if isinstance(word, str) else word for word in words]
        node.waiting.append(((name, *encoded), answer))
        if node.senders < _CONNECTIONS:
            node.senders += 1
            spawn(self._send(node), self._tasks)
        found = await answer
        if isinstance(found, (StoreError, NoScriptError)):
            raise found
        if isinstance(found, RedisError):
            raise StoreError(f"Redis: {said(found)}") from found
        return found

    def _node(self, command: str, words: Sequence[Argument]) -> _Node:
        """The server that a call goes to. A server of a cluster that does not answer delays only its own calls."""
        name = ""
        if self._line is not None and isinstance(self._line.client, RedisCluster):
            key = words[_KEY_OF_A_SCRIPT if command in ("EVALSHA", "EVAL") else 0]
            with suppress(RedisClusterException):  # no server has the key's slot: the call finds out
                found = self._line.client.get_node_from_key(str(key))
                name = found.name if found is not None else ""
        return self._nodes.setdefault(name, _Node())

    async def _send(self, node: _Node) -> None:
        """Send the waiting calls together, until no call waits."""
        most = 1 if self._line is not None and isinstance(self._line.client, RedisCluster) else _MOST_TOGETHER
        try:
            while node.waiting:
                taken = [node.waiting.popleft() for _ in range(min(len(node.waiting), most))]
                calls = [call for call in taken if not call[1].done()]  # a done call has no caller any more
                if calls:
                    await self._send_together(calls)
        finally:
            node.senders -= 1

    async def _send_together(self, calls: Sequence[_Call]) -> None:
        answers: Sequence[Any] = [StoreError("Redis: the call failed")] * len(calls)
        try:
            answers = await self._ask([words for words, _ in calls])
        except StoreError as error:
            answers = [error] * len(calls)
        finally:  # in every case, no caller goes on waiting
            for (_, answer), found in zip(calls, answers, strict=True):
                if not answer.done():
                    answer.set_result(found)

    async def _ask(self, calls: Sequence[tuple[Argument, ...]]) -> Sequence[Any]:
        """The answers of the server, including refusals. Raises StoreError."""
        async with self._translated():
            async with within(self._timeout_s):
                line = self._line if self._line is not None else await self._connect()
            line.calls += 1
            try:
                async with within(self._timeout_s):
                    return await _twice(line.client, calls)
            except (*_ANOTHER_SERVER, TimeoutError):
                self._drop(line)
                raise
            finally:
                line.calls -= 1
                self._close_unused(line)

    async def _connect(self) -> _Line:
        if self._connecting is None:
            self._connecting = spawn(self._connected(), self._tasks)
        found = await asyncio.shield(self._connecting)
        if isinstance(found, Exception):
            raise found
        return found

    async def _connected(self) -> _Line | Exception:
        """A new line, or the error that prevented it. The error is returned, because perhaps nobody waits for it any
        more."""
        try:
            async with within(CONNECT_S):
                line = _Line(await self._open())
        except (StoreError, TimeoutError, RedisError, RedisClusterException, OSError, ValueError) as error:
            return error
        finally:
            self._connecting = None
        if self._line is not None:
            self._drop(self._line)
        self._line = line
        return line

    def _drop(self, line: _Line) -> None:
        """Let the next call connect again. The client of a cluster finds another node by itself."""
        if isinstance(line.client, Redis):
            line.is_dropped = True
            if self._line is line:
                self._line = None
            self._close_unused(line)

    def _close_unused(self, line: _Line) -> None:
        if line.is_dropped and not line.calls:
            spawn(line.client.aclose(), self._tasks)

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise StoreError(f"Redis did not answer within {self._timeout_s:g} s") from error
        except (RedisError, RedisClusterException, OSError, ValueError) as error:
            raise StoreError(f"Redis: {said(error)}") from error


async def _twice(client: Client, calls: Sequence[tuple[Argument, ...]]) -> Sequence[Any]:
    """Ask, and ask again if the connection broke. After a restart of the server, every pooled connection is dead. Every
    call may be repeated."""
    try:
        answers = await _answers(client, calls)
    except LineError:
        answers = await _answers(client, calls)
    for answer in answers:
        if isinstance(answer, _ANOTHER_SERVER):
            raise answer
    return answers


async def _answers(client: Client, calls: Sequence[tuple[Argument, ...]]) -> Sequence[Any]:
    if len(calls) > 1 and isinstance(client, Redis):
        together = client.pipeline(transaction=False)
        for words in calls:
            together.execute_command(*words)
        return await together.execute(raise_on_error=False)
    answers: list[Any] = []
    for words in calls:
        try:
            answers.append(await client.execute_command(*words))
        except ResponseError as error:
            answers.append(error)
    return answers

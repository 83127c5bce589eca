"""The line to Redis: one server or a cluster, found out by asking; scripts by their digest; every failure a StoreError.

The first call connects, and the first call after a failure: a proxy starts without its store, and finds it when it is
back. To connect may take longer than a call may: a caller that gives up does not end it.
"""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LineError
from redis.exceptions import NoScriptError, RedisError

from proxy.ports import StoreError
from proxy.tasks import Tasks, drain, spawn

PREFIX = "stratiform:"
SCHEMA = 1
"""The layout of the keys. A later program raises it, and brings the data along."""

_SCHEMA_KEY = PREFIX + "schema"
_OLDEST = 7
_LUA = Path(__file__).parent / "lua"
# Beyond that many calls at once they wait for each other: a server answers one at a time anyway, and a connection
# costs more to make than many calls.
_CONNECTIONS = 8
# To connect, find out what the server is, and check its version: several round trips, and with TLS 20 ms of computing.
_CONNECT_S = 2.0
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h).
_OF_ANOTHER_HOST = (62, 64)

Client = Redis | RedisCluster
Argument = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the digest that a server knows it by."""

    text: str
    digest: str

    @classmethod
    def load(cls, *names: str) -> "Script":
        """The files of these names, one behind the other."""
        text = "\n".join((_LUA / f"{name}.lua").read_text(encoding="utf-8") for name in names)
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class RedisLink:
    """Connections to one Redis. ``url`` is redis:// or rediss:// (TLS); raises ValueError where it is neither.

    With TLS the server's certificate is checked, and that it is for the URL's host: by the system's authorities, and
    those of ``ca_file``.
    """

    def __init__(self, url: str, timeout_s: float, ca_file: Path | None = None) -> None:
        parse_url(url)
        self._url = url
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client | Exception] | None = None
        self._tasks: Tasks = set()
        self._places = asyncio.Semaphore(_CONNECTIONS)

    async def run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Any:
        """Call a script: by its digest, in one round trip; with its text where the server does not know it yet."""
        async with self._calling() as client:
            try:
                return await self._twice(client, "EVALSHA", script.digest, len(keys), *keys, *arguments)
            except NoScriptError:
                return await self._twice(client, "EVAL", script.text, len(keys), *keys, *arguments)

    async def command(self, *words: Argument) -> Any:
        """Call one command."""
        async with self._calling() as client:
            return await self._twice(client, *words)

    async def aclose(self) -> None:
        """Close every connection. May be called more than once."""
        await drain(self._tasks)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _twice(self, client: Client, *words: Argument) -> Any:
        """Once more where the line broke: after a restart of the server every pooled connection is a dead one, and
        every call of ours may be repeated."""
        try:
            return await client.execute_command(*words)
        except LineError:
            return await client.execute_command(*words)

    @asynccontextmanager
    async def _calling(self) -> AsyncIterator[Client]:
        try:
            async with self._places, asyncio.timeout(self._timeout_s):
                yield self._client or await self._connect()
        except TimeoutError as error:
            raise StoreError(f"Redis did not answer within {self._timeout_s:g} s") from error
        except (RedisError, OSError) as error:
            raise StoreError(f"Redis: {_said(error)}") from error

    async def _connect(self) -> Client:
        if self._connecting is None:
            self._connecting = spawn(self._connected(), self._tasks)
        found = await asyncio.shield(self._connecting)
        if isinstance(found, Exception):
            raise found
        return found

    async def _connected(self) -> Client | Exception:
        """The client, or what kept it from connecting: perhaps nobody waits for it any more."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                client = await self._open()
                try:
                    await _check_schema(client)
                except BaseException:
                    await client.aclose()
                    raise
        except (StoreError, RedisError, OSError) as error:
            return error
        finally:
            self._connecting = None
        self._client = client
        return client

    async def _open(self) -> Client:
        """A client of the right kind. Raises StoreError where the server is too old."""
        options: dict[str, Any] = {
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": _CONNECT_S,
            "client_name": "stratiform",
        }
        if self._ca_file is not None:
            options["ssl_ca_certs"] = str(self._ca_file)
        single = Redis.from_url(self._url, **options)
        try:
            info: dict[str, Any] = await single.info()
            if int(str(info["redis_version"]).partition(".")[0]) < _OLDEST:
                raise StoreError(f"Redis {info['redis_version']} is too old: version {_OLDEST} is needed")
        except BaseException:
            await single.aclose()
            raise
        if not info.get("cluster_enabled"):
            return single
        await single.aclose()
        return RedisCluster.from_url(self._url, max_connections=2 * _CONNECTIONS, **options)


def _said(error: Exception) -> str:
    refused = error.__cause__ or error.__context__
    if not isinstance(refused, ssl.SSLCertVerificationError):
        return str(error)
    advice = "" if refused.verify_code in _OF_ANOTHER_HOST else "; stratiform.store_ca names authorities to trust"
    return f"its certificate is refused: {refused.verify_message.removesuffix('.')}{advice}"


async def _check_schema(client: Client) -> None:
    """Mark an empty store with the version of this program. Raises StoreError where a later one has written it."""
    await client.execute_command("SET", _SCHEMA_KEY, SCHEMA, "NX")
    found = int(await client.execute_command("GET", _SCHEMA_KEY) or SCHEMA)
    if found > SCHEMA:
        raise StoreError(f"the store has version {found}, this program knows {SCHEMA}")

"""Makes a client for a Redis. It asks the server whether it is a cluster, and checks the versions of server and schema.

Every client reads the file of authorities and looks up the server's name anew, because a certificate may be renewed,
and a name may lead to another server after a failover.
"""

import ssl
from pathlib import Path
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.ports import StoreError

PREFIX = "stratiform:"
SCHEMA = 1
"""The layout of the keys. A later program raises it, and brings the data along."""

CONNECT_S = 2.0
"""Connecting and checking the server takes several round trips, and with TLS 20 ms of computing."""

_SCHEMA_KEY = PREFIX + "schema"
_OLDEST = 7
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h).
_OF_ANOTHER_HOST = (62, 64)

Client = Redis | RedisCluster


async def connected(url: str, connections: int, ca_file: Path | None) -> Client:
    """A client of a server that takes what is written; ``connections`` is how many calls there will be at once. Raises
    StoreError, OSError, and the errors of redis-py.

    The URL is redis:// or rediss:// (TLS). With TLS the server's certificate is checked, and that it is for the URL's
    host: by the system's authorities, and those of ``ca_file``.
    """
    client = await _open(url, connections, ca_file)
    try:
        await check_writing(client)
    except BaseException:
        await client.aclose()
        raise
    return client


async def check_writing(client: Client) -> None:
    """Mark an empty store with the version of this program. A server that is read-only or full refuses the command even
    where the mark stands already. Raises StoreError where a later program has written it, and RedisError."""
    await client.execute_command("SET", _SCHEMA_KEY, SCHEMA, "NX")
    found = int(await client.execute_command("GET", _SCHEMA_KEY) or SCHEMA)
    if found > SCHEMA:
        raise StoreError(f"the store has version {found}, this program knows {SCHEMA}")


def said(error: Exception) -> str:
    """The text of a failure, with advice where a certificate is refused."""
    refused: BaseException | None = error
    while not isinstance(refused, ssl.SSLCertVerificationError):
        if refused is None:
            return str(error)
        refused = refused.__cause__ or refused.__context__
    advice = "" if refused.verify_code in _OF_ANOTHER_HOST else "; stratiform.store_ca names authorities to trust"
    return f"its certificate is refused: {refused.verify_message.removesuffix('.')}{advice}"


async def _open(url: str, connections: int, ca_file: Path | None) -> Client:
    """A client of the right kind. Raises StoreError where the server is too old."""
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_S,
        "client_name": "stratiform",
    }
    if ca_file is not None:
        options["ssl_ca_certs"] = str(ca_file)
    single = Redis.from_url(url, **options)
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
    return RedisCluster.from_url(url, max_connections=2 * connections, **options)

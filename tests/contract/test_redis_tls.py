"""Redis over TLS: the server's certificate is checked, and so is whose it is."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.app.factories import open_store
from proxy.app.settings import Environment, load
from proxy.kit.errors import StoreError
from proxy.storage import Balance, Charge, LedgerEntry, Settle
from proxy.storage.redis import RedisStore
from tests.redis_server import RedisServer, redis_binary, redis_server
from tests.services import absent, free_port

T = 1_700_000_000.0


@dataclass(frozen=True)
class TlsServer:
    """A Redis that is reached with TLS, and who vouches for it: at 127.0.0.1, not at localhost."""

    port: int
    authority: Path

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"


def openssl(folder: Path, name: str, *options: str) -> Path:
    """A new certificate; its key stands beside it."""
    binary = shutil.which("openssl") or absent("openssl is not installed: .ci/install-services.sh does that")
    file = folder / f"{name}.pem"
    subprocess.run(
        [
            binary, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
            "-subj", f"/CN={name}", "-keyout", str(file.with_suffix(".key")), "-out", str(file), *options,
        ],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return file


def authority(folder: Path, name: str) -> Path:
    return openssl(folder, name, "-addext", "keyUsage=critical,keyCertSign")


@contextmanager
def tls_server(folder: Path) -> Iterator[tuple[TlsServer, RedisServer]]:
    """A server with a certificate of an authority of its own, also as one that is reached without TLS."""
    refusal = subprocess.run([redis_binary(), "--tls-port", "x"], capture_output=True, text=True, timeout=120)
    if "Bad directive" in refusal.stdout + refusal.stderr:
        absent("this redis-server was built without TLS")
    ours = authority(folder, "ours")
    own = certificate(folder, "server", ours)
    port = free_port()
    options = (
        "--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", str(ours),
        "--tls-cert-file", str(own), "--tls-key-file", str(own.with_suffix(".key")),
    )  # fmt: skip
    with redis_server(folder / "redis", *options) as running:
        yield TlsServer(port, ours), running


def certificate(folder: Path, name: str, vouching: Path) -> Path:
    """A certificate for 127.0.0.1."""
    return openssl(
        folder, name, "-CA", str(vouching), "-CAkey", str(vouching.with_suffix(".key")),
        "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(tmp_path_factory.mktemp("tls")) as (reached, _):
        yield reached


def refusal_of(url: str, ca_file: Path | None) -> str:
    """What a store says that cannot be reached."""

    async def main() -> str:
        store = RedisStore(url, ca_file=ca_file)
        with pytest.raises(StoreError) as caught:
            await store.ping()
        await store.aclose()
        return str(caught.value)

    return asyncio.run(main())


async def test_the_configured_authority_is_trusted(server: TlsServer, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(server.authority.read_bytes())
    config = tmp_path / "config.yaml"
    config.write_text(f"stratiform: {{store: '{server.url}', store_ca: ca.pem}}\n")

    store = await open_store(load(config, "http://127.0.0.1:9", Environment({})))
    end = Settle(LedgerEntry("x", T, "red", cost=2), [Charge("a", 2)])
    assert await store.settle(end, T) == [Balance("a", 2, 0)]
    await store.aclose()
    # Layouts have a line of their own.
    store = RedisStore(server.url, state_timeout_s=2.0, ca_file=server.authority)
    await store.save("s", {"a": b"1"}, 60.0, T)
    assert await store.load("s", ["a"], T) == [b"1"]
    await store.aclose()


async def test_who_is_in_a_hurry_finds_the_line_made_later(server: TlsServer) -> None:
    # Connecting takes longer than that, every time.
    store = RedisStore(server.url, state_timeout_s=0.01, ca_file=server.authority)
    async with asyncio.timeout(60):
        while True:
            try:
                found = await asyncio.gather(*(store.load("s", ["none"], T) for _ in range(3)))
            except StoreError:
                await asyncio.sleep(0.01)
            else:
                break
    assert found == [[None]] * 3
    await store.aclose()


async def test_the_systems_authorities_are_trusted(server: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))

    store = RedisStore(server.url)
    await store.ping()
    await store.aclose()


def test_a_certificate_of_another_authority_is_refused(server: TlsServer, tmp_path: Path) -> None:
    for ca_file in (None, authority(tmp_path, "theirs")):
        said = refusal_of(server.url, ca_file)
        assert said.startswith("Redis: its certificate is refused: ")
        assert said.endswith("; stratiform.store_ca names authorities to trust")


def test_a_certificate_for_another_host_is_refused(server: TlsServer) -> None:
    said = refusal_of(server.url.replace("127.0.0.1", "localhost"), server.authority)
    assert said.startswith("Redis: its certificate is refused: Hostname mismatch")
    assert said.endswith("'localhost'")


@pytest.mark.slow
def test_certificates_may_be_renewed_by_the_same_authority_and_by_another(tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"

    def renew(running: RedisServer, name: str, vouching: Path) -> None:
        new = certificate(tmp_path, name, vouching)
        words = ("tls-cert-file", str(new), "tls-key-file", str(new.with_suffix(".key")))
        assert running.call("CONFIG", "SET", *words, "tls-ca-cert-file", str(vouching)) == "+OK"
        running.call("CLIENT", "KILL", "TYPE", "normal")

    async def main(reached: TlsServer, running: RedisServer) -> None:
        trusted.write_bytes(reached.authority.read_bytes())
        store = RedisStore(reached.url, timeout_s=10.0, ca_file=trusted)
        await store.ping()
        await asyncio.to_thread(renew, running, "renewed", reached.authority)
        await store.balance("red", Charge("a", 0), T)

        other = authority(tmp_path, "other")
        await asyncio.to_thread(renew, running, "of-another", other)
        with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED|its certificate is refused"):
            await store.balance("red", Charge("a", 0), T)
        with pytest.raises(StoreError, match="its certificate is refused"):
            await store.ping()
        trusted.write_bytes(other.read_bytes())
        await store.ping()
        await asyncio.gather(*(store.balance("red", Charge("a", 0), T) for _ in range(20)))
        await store.aclose()

    with tls_server(tmp_path) as (reached, running):
        asyncio.run(main(reached, running))

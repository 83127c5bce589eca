"""What holds for every test, and what tests of several folders share."""

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import Iterator

import httpx
import httpx2
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from proxy.upstream.litellm_ import LitellmUpstream
from tests import read_once, rewriting
from tests.brisk_servers import BriskAsyncio
from tests.examples import are_new, examples
from tests.log_setup import logging_restored
from tests.security import defences

# No deadline and no check for slowness: both measure seconds, which grow beside other work.
settings.register_profile(
    "suite",
    max_examples=examples(100),
    deadline=None,
    derandomize=not are_new(),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the layouts expected in tests/golden")
    parser.addoption("--without", metavar="DEFENCE", help="take this one of tests/security/defences.py away first")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--without"):
        defences.remove(config.getoption("--without"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has its jobs in the background ignore Ctrl-C, and so would all that tests start and interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What is collected stays: to look through it for garbage again and again takes a sixth of the time.
    gc.disable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: many tests wait for a socket or a process."""
    return (os.cpu_count() or 1) + 1


def pytest_sessionstart(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        rewriting.rewrite_share(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that call litellm run first: they stand side by side, so that one worker imports it for all of them."""
    items.sort(key=lambda item: "litellm_imported" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """What was collected stays until the end, so the collector of garbage need not look through it again and again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker tells how a test ended, and of what stands around the test it tells failures only: to tell six things
    of each test takes more time than most tests do."""
    options = item.config.option
    if "PYTEST_XDIST_WORKER" not in os.environ or options.durations is not None or options.xmlpath:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            report.keywords = {}  # nobody reads them on the other side
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(scope="session", autouse=True)
def _large_files_read_once() -> Iterator[None]:
    """Each of the many proxies and clients that tests start takes the same price map and the same TLS context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.app.factories.load_price_map", read_once.load_price_map)
        patch.setattr("ssl.create_default_context", read_once.create_default_context)
        yield


@pytest.fixture(scope="session", autouse=True)
def _servers_end_at_once() -> Iterator[None]:
    """Servers that run in this process notice at once that they shall end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", BriskAsyncio())
        yield


@pytest.fixture(scope="session", autouse=True)
def _clients_are_patient() -> Iterator[None]:
    """A request for which a test sets no limit ends where it hangs, and not where the machine is busy: not after five
    seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for default in (httpx._config.DEFAULT_TIMEOUT_CONFIG, httpx2._config.DEFAULT_TIMEOUT_CONFIG):
            for name in ("connect", "read", "write", "pool"):
                patch.setattr(default, name, 120.0)
        yield


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a command that a test runs in this process sets up for logging, the tests behind it do not see."""
    with logging_restored():
        yield


@pytest.fixture(scope="session")
def litellm_imported() -> None:
    """One import of litellm for all tests that call it (tests/contract/litellm_calls.py)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(LitellmUpstream().warm())

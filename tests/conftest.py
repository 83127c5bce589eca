"""Settings for every test, and fixtures that tests of several folders share."""

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import Coroutine, Iterator
from inspect import iscoroutinefunction

import httpx
import httpx2
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

from proxy.upstream.litellm_ import LitellmUpstream
from tests import read_once, rewriting
from tests.brisk_servers import BriskAsyncio
from tests.examples import are_new, are_shrunk, examples
from tests.log_setup import logging_restored
from tests.security import defences

_MOST_S = 300.0

# No deadline and no check for slowness: both measure seconds, which grow while other work runs.
settings.register_profile(
    "suite",
    max_examples=examples(100),
    deadline=None,
    derandomize=not are_new(),
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if are_shrunk() or phase not in (Phase.shrink, Phase.explain)],
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the layouts expected in tests/golden")
    parser.addoption("--without", metavar="DEFENCE", help="take this one of tests/security/defences.py away first")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--without"):
        defences.remove(config.getoption("--without"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell lets its background jobs ignore Ctrl-C. Processes that tests start and interrupt would ignore it, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The collected tests stay in memory. Searching them for garbage again and again takes a sixth of the time.
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
    """Tests that call litellm run first, next to each other, so that one worker imports it for all of them."""
    items.sort(key=lambda item: "litellm_imported" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """Collected tests stay until the end, so the garbage collector need not search them again and again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker reports how a test ended. Of setup and teardown it reports only failures: six reports for each test take
    more time than most tests."""
    options = item.config.option
    if "PYTEST_XDIST_WORKER" not in os.environ or options.durations is not None or options.xmlpath:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            report.keywords = {}  # the receiving side does not read them
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own. One that hangs fails."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_in_time(pyfuncitem.obj(**given)))
    return True


async def _in_time(test: Coroutine[None, None, None]) -> None:
    async with asyncio.timeout(_MOST_S):
        await test


@pytest.fixture(scope="session", autouse=True)
def _files_read_once() -> Iterator[None]:
    """The many proxies and clients that tests start all use the same price map, names of providers, entry points of
    packages, and TLS context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.app.factories.load_price_map", read_once.load_price_map)
        patch.setattr("proxy.app.factories.provider_names", read_once.provider_names)
        patch.setattr(
            "importlib.metadata.PathDistribution.entry_points", property(read_once.entry_points), raising=False
        )
        patch.setattr("ssl.create_default_context", read_once.create_default_context)
        yield


@pytest.fixture(scope="session", autouse=True)
def _servers_end_at_once() -> Iterator[None]:
    """Servers that run in this process notice at once that they must end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", BriskAsyncio())
        yield


@pytest.fixture(scope="session", autouse=True)
def _clients_are_patient() -> Iterator[None]:
    """A request without a limit of its own ends if it hangs, but not because the machine is busy: it may take longer
    than five seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for default in (httpx._config.DEFAULT_TIMEOUT_CONFIG, httpx2._config.DEFAULT_TIMEOUT_CONFIG):
            for name in ("connect", "read", "write", "pool"):
                patch.setattr(default, name, 120.0)
        yield


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A test may run a command in this process that sets up logging. Later tests do not see this setup."""
    with logging_restored():
        yield


@pytest.fixture(scope="session")
def litellm_imported() -> None:
    """One import of litellm for all tests that call it (tests/contract/litellm_calls.py)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(LitellmUpstream().library.warm())

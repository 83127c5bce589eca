"""Sends coding sessions, each in several forms, through the real proxy over HTTP to the embedded provider. Each form of
a session is a separate client."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TypeVar

import aiohttp
import openai
import uvicorn
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from proxy.app import composition
from proxy.cli.output import Output, fail, print_json
from proxy.cli.serve import address, listen, run_on_loop, server
from proxy.clock import Readings, boot_time
from proxy.core.money.prices import Price
from proxy.core.request.tokens import Encode
from proxy.core.value import dataclass
from proxy.demo import panels, structured
from proxy.demo.sample import MODEL, RequestRecorder, usages
from proxy.demo.tally import FormTally, Tally, losses_of
from proxy.ports import Transport
from proxy.replay.runner import Setting
from proxy.settings import Settings
from proxy.upstream.embedded import EmbeddedUpstream
from proxy.web.app import create_app

_STOP_S = 10


@dataclass(frozen=True, slots=True)
class Running:
    """A running proxy. ``url`` is its address without ``/v1``. ``recorder`` sees the requests that reach the
    provider."""

    url: str
    provider: EmbeddedUpstream
    recorder: RequestRecorder


@contextmanager
def running(settings: Settings, encode: Encode, now: float | None = None, *, tells: bool = False) -> Iterator[Running]:
    """Serve until the block ends, also if it ends with an error. ``now`` is the start of the proxy's clock in unix
    seconds; without it, the machine's clock is used. ``tells``: answers say what the cache did. Raises ConfigError, and
    any error that keeps the app from starting."""
    provider, began = EmbeddedUpstream(encode, tells=tells), boot_time()
    built: Future[uvicorn.Server] = Future()
    with listen(settings.stratiform.host, settings.stratiform.port) as listener:
        proxy = Running(address(listener), provider, RequestRecorder(provider))

        async def serve() -> None:
            assembly = await composition.build(
                settings,
                upstreams={Transport.EMBEDDED: proxy.recorder},
                encode=encode,
                readings=None if now is None else Readings(wall=lambda: now + boot_time() - began),
            )
            limits = settings.stratiform.limits.model_copy(update={"drain_s": _STOP_S})
            app = server(create_app(assembly.parts), limits)
            if assembly.live is not None:
                assembly.live.is_stopping = lambda: app.should_exit
            built.set_result(app)
            await app.serve(sockets=[listener])

        thread = threading.Thread(target=_run, args=(serve(), built), name="stratiform", daemon=True)
        thread.start()
        # As soon as the app is built, connections to the listening socket are served.
        serving = built.result()
        try:
            yield proxy
        finally:
            serving.should_exit = True
            thread.join(_STOP_S)


def _run(work: Coroutine[object, object, None], built: Future[uvicorn.Server]) -> None:
    """Do the work. An error at the start is raised in the thread that waits for the app."""
    try:
        run_on_loop(work)
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that started this one
        if not built.done():
            built.set_exception(error)


_REFRESH_HZ = 4


C = TypeVar("C", bound=panels.Comparison | structured.Comparison)


@dataclass(frozen=True, slots=True)
class Scene:
    """The environment of the sessions. ``settings`` and ``encode`` are the proxy's. ``setting`` are the rules of the
    provider behind it, and ``price`` its prices. ``as_json``: JSON is printed, and no text. ``has_pages``: the pages of
    the sessions are served afterwards."""

    settings: Settings
    encode: Encode
    setting: Setting
    price: Price
    as_json: bool = False
    has_pages: bool = False


def run_sessions(
    scene: Scene,
    compared: Sequence[C],
    table: Callable[[C], Table],
    summary: Callable[[Sequence[C]], Iterator[str]],
    report: Callable[[C], dict[str, object]],
    missed: Callable[[Sequence[C]], Iterator[str]] = lambda compared: iter(()),
) -> int:
    """Send every session in every form, and show the results. Returns 0, or 1 if content was lost or a goal missed. A
    session is shown as a ``table`` while it is sent, in the lines of the ``summary`` when all are sent, and as a
    ``report`` in JSON. ``missed`` tells which goals were not reached."""
    began = perf_counter()
    tallies: list[FormTally] = [tally for one in compared for tally in one.tallies.values()]

    def told(url: str) -> Sequence[str]:
        seconds, lost = perf_counter() - began, [text for one in compared for text in losses_of(one.tallies)]
        if scene.as_json:
            print_json({"model": MODEL, "sessions": [report(one) for one in compared], "seconds": seconds})
        else:
            requests, checked = sum(tally.requests for tally in tallies), "each checked against what its client said"
            checked = f"{len(lost)} faults" if lost else checked
            sent = f"{requests} requests over HTTP, {checked}; {seconds:.1f} s. Input cost at {MODEL}'s prices."
            Output().print(Group(*map(Text, ("", sent, *summary(compared)))))
        return [*lost, *missed(compared)]

    words = "every form of a session is a client of its own."
    return show(scene, tallies, words, lambda: Group(*map(table, compared)), told)


def show(
    scene: Scene,
    tallies: Sequence[Tally | FormTally],
    words: str,
    drawn: Callable[[], RenderableType],
    told: Callable[[str], Sequence[str]],
) -> int:
    """Send all sessions at the same time. Meanwhile the words and, below them, the updated ``drawn`` are shown.
    ``told`` then prints the results; it gets the URL of the proxy, which still serves. The faults that it returns are
    errors. Returns the exit status."""
    ended = max(sending.at for tally in tallies for sending in tally.sendings)
    with running(scene.settings, scene.encode, ended) as proxy:
        notice = f"The proxy is at {proxy.url}/v1; {words}"
        try:
            asyncio.run(_watched(send_all(proxy, tallies), notice, drawn, quiet=scene.as_json))
            wrong = told(proxy.url)
        except (openai.OpenAIError, aiohttp.ClientError, ValueError) as error:
            fail(f"the demo failed: {type(error).__name__}: {error}")
        for text in wrong:
            print(f"error: {text}", file=sys.stderr)
        if scene.has_pages:
            Output().print(f"\nThe sessions as pictures: {proxy.url}/ui (Ctrl-C ends it)")
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    return 1 if wrong else 0


def shown_table(title: str, columns: Sequence[str]) -> Table:
    """A table without rows: the column of the forms' names, then these columns."""
    numbers = (Column(name, justify="right", no_wrap=True) for name in columns)
    return Table(" ", *numbers, box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")


async def _watched(sending: Awaitable[None], notice: str, drawn: Callable[[], RenderableType], *, quiet: bool) -> None:
    """Send. Meanwhile the notice and the updated ``drawn`` are shown. ``quiet``: nothing is shown."""
    if quiet:
        await sending
        return
    output = Output()
    output.print(notice, style="dim")
    with Live(console=output, refresh_per_second=_REFRESH_HZ, get_renderable=drawn):
        await sending


async def send_all(proxy: Running, tallies: Iterable[Tally | FormTally]) -> None:
    """Send the requests of each tally, each tally with its own client."""
    await asyncio.gather(*(_send(proxy, tally) for tally in tallies))


async def _send(proxy: Running, tally: Tally | FormTally) -> None:
    async for usage in usages(f"{proxy.url}/v1", tally.key, tally.sendings, tally.headers):
        tally.add(usage, proxy.recorder.bodies[tally.key].pop())

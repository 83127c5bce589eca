"""``stratiform demo``: sample sessions through the real proxy over HTTP, to a provider in this process.

It needs no API key and no network. The proxy listens on loopback. Behind it is the embedded provider, which really
keeps a prompt cache by Anthropic's rules. The sessions have their own time, so that minutes between turns pass at once.
``demo panels`` and ``demo structured`` send coding sessions, each in several forms, and compare what the forms cost.
Each form of a session is a separate client.

``stratiform try``: a short conversation through a running proxy, and how its provider's cache served it. The
conversation has instructions that are long enough for every provider's cache, and a few short questions. The
provider's report comes back in the answers (``stratiform.return_usage``), so the command needs no more permissions than
any client.
"""

import argparse
import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import aiohttp
import openai
import uvicorn
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from proxy.app import composition, factories
from proxy.app.settings import Environment, ModelEntry, Settings, Stratiform, load
from proxy.cli import Command, Output, add_json, fail, number_within, print_json, print_result
from proxy.cli.admin_client import DEFAULT_CONFIG
from proxy.cli.costs import price_of_model
from proxy.cli.serve import address, listen, run_on_loop, server
from proxy.hookspecs import build_plugin_manager, recognisers, symbol_indexer
from proxy.kit.clock import Readings, boot_time
from proxy.kit.messages import visible
from proxy.kit.value import dataclass
from proxy.lab.demo import MODEL, POLICIES, DemoCosts, RequestRecorder, Tally, added_up, panels, structured, usages
from proxy.lab.demo.chats import prompt, samples
from proxy.lab.demo.structured import GitError
from proxy.lab.replay import AS_SENT, OURS, SYSTEM_LAST, Setting, counted_once
from proxy.models import Transport
from proxy.models.deployments import price_for
from proxy.protocol.prices import Price
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.tokens import Encode
from proxy.services import local_encode
from proxy.upstream.embedded import EmbeddedUpstream

_PROFILE = "anthropic"
_WORTH_A_LOOK = (
    "requests_total", "tokens_total", "input_cost_usd_total", "uncached_input_cost_usd_total", "saved_usd_total",
    "lost_usd_total", "hit_ratio_sum", "hit_ratio_count", "tier_tokens_total",
    "segment_tokens_total", "plan_reasons_total",
    "overhead_seconds_sum", "overhead_seconds_count",
)  # fmt: skip
_NEXT = (
    "",
    "Next:",
    "  stratiform serve --upstream https://YOUR-PROVIDER/v1  forward, with clients' keys",
    '  OpenAI(base_url="http://127.0.0.1:4000/v1")           what changes in a client',
    "  curl http://127.0.0.1:4000/metrics                    what it saves",
    "  stratiform replay SESSION.jsonl                       your recorded sessions",
    "  stratiform demo --ui, or make demo ARGS=--ui          these sessions as pictures, on a page in your browser",
)
_STOP_S = 10
_REFRESH_HZ = 4

C = TypeVar("C", bound=panels.PanelComparison | structured.FormComparison)


@dataclass(frozen=True, slots=True)
class Running:
    """A running proxy. ``url`` is its address without ``/v1``. ``recorder`` sees the requests that reach the
    provider."""

    url: str
    provider: EmbeddedUpstream
    recorder: RequestRecorder


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


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sessions",
        nargs="?",
        choices=["structured", "panels"],
        help="structured: coding sessions that follow a git history, as editor chats and as structured context; "
        "panels: coding sessions with live panels, as context messages and as structured context",
    )
    parser.add_argument(
        "--repository",
        type=Path,
        metavar="PATH",
        help="with structured: follow the last commits of this git repository, not those of an installed package",
    )
    parser.add_argument(
        "--commits",
        type=number_within(int, 1, 500),
        help=f"with --repository: how many commits (default: {structured.TURNS})",
    )
    parser.add_argument(
        "--port",
        type=number_within(int, 0, 65535),
        default=0,
        help="the port to listen on; 0 means any free port (default: 0)",
    )
    shown = parser.add_mutually_exclusive_group()
    add_json(shown)
    shown.add_argument("--ui", action="store_true", help="then serve the pages of these sessions, until interrupted")


def run(arguments: argparse.Namespace) -> int:
    """Start the proxy, send the sessions, show their results, stop the proxy. Raises ConfigError."""
    began = perf_counter()
    scene = scene_of(demo_settings(arguments.port), local_encode(), as_json=arguments.json, has_pages=arguments.ui)
    if arguments.sessions == "structured":
        return _run_structured(arguments, scene)
    if arguments.repository is not None or arguments.commits is not None:
        fail("--repository and --commits belong to `stratiform demo structured`")
    if arguments.sessions == "panels":
        compared = [panels.comparison(scenario, scene.setting, scene.price) for scenario in panels.SCENARIOS]
        return run_sessions(scene, compared, panels.table_of, panels.summary_of, panels.report_of)
    tallies = [Tally.of(sample, scene.setting, scene.price) for sample in samples()]

    def told(url: str) -> Sequence[str]:
        text, total, seconds = asyncio.run(_metrics(url)), added_up(tallies), perf_counter() - began
        names = tuple(f"stratiform_{name}" for name in _WORTH_A_LOOK)
        metrics = [line for line in text.splitlines() if line.startswith(names) and not line.endswith(" 0.0")]
        print_result(
            arguments,
            _report(tallies, total, metrics, seconds),
            lambda: _print_summary(total, metrics, seconds, has_pages=arguments.ui),
        )
        return total.losses

    words = f"{len(tallies)} clients send their sessions there."
    return show(scene, tallies, words, lambda: _table(tallies), told)


def demo_settings(port: int) -> Settings:
    """One model, served by the embedded provider. Requests have their own time."""
    entry = {
        "model_name": MODEL,
        "litellm_params": {"model": MODEL},
        "model_info": {"transport": "embedded", "cache_profile": _PROFILE},
    }
    stratiform = Stratiform(clock="header", host="127.0.0.1", port=port, log_level="warning")
    return Settings(stratiform=stratiform, models=(ModelEntry.model_validate(entry),))


def scene_of(settings: Settings, encode: Encode, *, as_json: bool = False, has_pages: bool = False) -> Scene:
    """The proxy with these settings, and the rules and the prices of the provider behind it."""
    prices = factories.price_map(settings)
    found = price_for(prices, factories.model_table(settings, prices).resolve(MODEL))
    if found is None:
        raise ValueError(f"litellm's price map has no price for {MODEL}")
    setting = Setting(PROFILES[_PROFILE], counted_once(encode), recognisers(build_plugin_manager()))
    return Scene(settings, encode, setting, found, as_json, has_pages)


async def _metrics(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        return await answer.text()


def _table(tallies: Sequence[Tally]) -> Table:
    total = added_up(tallies)
    footers = {"sent": str(total.requests), "tokens": f"{total.ours.prompt:,}", "cached": ""}
    footers |= {name: f"{total.share(name):.3f}" for name in POLICIES}
    table = Table(
        Column("session", "all"),
        *(
            Column(name, footer, justify="right", style="bold" if name == OURS else "", no_wrap=True)
            for name, footer in footers.items()
        ),
        box=None,
        pad_edge=False,
        show_footer=True,
        caption="input cost as a share of no caching",
    )
    for tally in tallies:
        shares = [tally.share(name) for name in POLICIES]
        is_best = tally.requests > 0 and shares[-1] < min(shares[:-1])
        table.add_row(
            tally.words,
            f"{tally.requests}/{len(tally.sendings)}",
            f"{tally.ours.prompt:,}",
            f"{tally.ours.hit_rate:.0%}",
            *(f"{share:.3f}" for share in shares[:-1]),
            Text(f"{shares[-1]:.3f}", "green" if is_best else ""),
        )
    return table


def _print_summary(total: DemoCosts, metrics: Sequence[str], seconds: float, *, has_pages: bool) -> None:
    output = Output()
    checked = f"{len(total.losses)} altered" if total.losses else "each checked against what its client sent"
    summary = (
        "",
        f"{total.requests} requests over HTTP, {checked}; {seconds:.1f} s.",
        f"Input cost at {MODEL}'s prices:",
        f"  without a cache                    {total.uncached_usd:9.4f} USD",
        f"  markers on system + last message   {total.usd[SYSTEM_LAST]:9.4f} USD",
        f"  through Stratiform                 {total.usd[OURS]:9.4f} USD",
        f"Saved: {_saved(total, AS_SENT)} against no cache, {_saved(total, SYSTEM_LAST)} against such markers;",
        f"  {total.ours.read:,} of {total.ours.prompt:,} prompt tokens were read from the cache.",
    )
    output.print(Group(*map(Text, summary)))
    output.print("\nFrom /metrics:")
    for line in metrics:
        output.print(f"  {line}", style="dim", soft_wrap=True)
    output.print(Group(*map(Text, _NEXT[: -1 if has_pages else None])))


def _saved(total: DemoCosts, policy: str) -> str:
    return f"{total.saved_share(policy):.0%} ({total.saved_usd(policy):.4f} USD)"


def _report(tallies: Sequence[Tally], total: DemoCosts, metrics: Sequence[str], seconds: float) -> dict[str, object]:
    return {
        "model": MODEL,
        "sessions": [
            {
                "name": tally.name,
                "client": tally.words,
                "requests": tally.requests,
                "prompt_tokens": tally.ours.prompt,
                "hit_rate": tally.ours.hit_rate,
                "share": {name: tally.share(name) for name in POLICIES},
                "usd": {**tally.usd, "no caching": tally.uncached_usd},
                "violations": tally.losses,
            }
            for tally in tallies
        ],
        "total": {
            "requests": total.requests,
            "prompt_tokens": total.ours.prompt,
            "tokens_read": total.ours.read,
            "share": {name: total.share(name) for name in POLICIES},
            "usd": {**total.usd, "no caching": total.uncached_usd},
            "saved_usd": {name: total.saved_usd(name) for name in (AS_SENT, SYSTEM_LAST)},
            "saved_share": {name: total.saved_share(name) for name in (AS_SENT, SYSTEM_LAST)},
            "violations": len(total.losses),
        },
        "metrics": list(metrics),
        "seconds": seconds,
    }


def _run_structured(arguments: argparse.Namespace, scene: Scene) -> int:
    """Send every session in every form, and show the results. Returns 0, or 1 if content was lost."""
    if symbol_indexer(build_plugin_manager()) is None:
        fail("no symbol index: install the extra `symbols` (pip install 'stratiform[symbols]')")
    try:
        found = structured.histories(arguments.repository, arguments.commits or structured.TURNS)
    except (GitError, OSError, ValueError) as error:
        fail(str(error))
    compared = [structured.comparison(history, scene.setting, scene.price) for history in found]
    return run_sessions(scene, compared, structured.table_of, structured.summary_of, structured.report_of)


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
            app = server(assembly, limits)
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


def run_sessions(
    scene: Scene,
    compared: Sequence[C],
    table: Callable[[C], Table],
    summary: Callable[[Sequence[C]], Iterable[tuple[str, bool]]],
    report: Callable[[C], dict[str, object]],
) -> int:
    """Send every session in every form, and show the results. Returns 0, or 1 if content was lost or a goal missed. A
    session is shown as a ``table`` while it is sent, in the lines of the ``summary`` when all are sent, and as a
    ``report`` in JSON. Each line of the summary comes with whether it is of a goal that was not missed."""
    began = perf_counter()
    tallies = [tally for one in compared for tally in one.tallies.values()]

    def told(url: str) -> Sequence[str]:
        seconds, total = perf_counter() - began, added_up(tallies)
        if scene.as_json:
            print_json({"model": MODEL, "sessions": [report(one) for one in compared], "seconds": seconds})
        else:
            checked = f"{len(total.losses)} faults" if total.losses else "each checked against what its client said"
            sent = f"{total.requests} requests over HTTP, {checked}; {seconds:.1f} s. Input cost at {MODEL}'s prices."
            Output().print(Group(*map(Text, ("", sent, *(line for line, _ in summary(compared))))))
        return [*total.losses, *(line for line, is_reached in summary(compared) if not is_reached)]

    words = "every form of a session is a client of its own."
    return show(scene, tallies, words, lambda: Group(*map(table, compared)), told)


def show(
    scene: Scene,
    tallies: Sequence[Tally],
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
            asyncio.run(send_all(proxy, tallies, notice, None if scene.as_json else drawn))
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


async def send_all(
    proxy: Running, tallies: Iterable[Tally], notice: str = "", drawn: Callable[[], RenderableType] | None = None
) -> None:
    """Send the requests of each tally, each tally with its own client. Meanwhile the notice and the updated ``drawn``
    are shown, if there is something to draw."""

    async def send(tally: Tally) -> None:
        async for usage in usages(f"{proxy.url}/v1", tally.key, tally.sendings, tally.headers):
            tally.add(usage, proxy.recorder.bodies[tally.key].pop())

    with ExitStack() as shown:
        if drawn is not None:
            output = Output()
            output.print(notice, style="dim")
            shown.enter_context(Live(console=output, refresh_per_second=_REFRESH_HZ, get_renderable=drawn))
        await asyncio.gather(*map(send, tallies))


_KEY_VARIABLES = ("STRATIFORM_API_KEY", "STRATIFORM_MASTER_KEY", "LITELLM_MASTER_KEY", "OPENAI_API_KEY")
_DOCUMENTS = range(12)
_QUESTIONS = (
    "How do I pause a subscription for two weeks? Answer in one sentence.",
    "And is the customer told about it? One sentence.",
    "Can a picker do that? One sentence.",
    "Where do I see which stalls are open tomorrow? One sentence.",
)
_ANSWER_TOKENS = 60
_ANSWER_S = 120.0
_BOOKED = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "saved_usd")


def _configure_try(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config", type=Path, metavar="FILE",
        help=f"the configuration of the proxy that runs (default: {DEFAULT_CONFIG}, where there is one)",
    )  # fmt: skip
    where.add_argument("--url", help=f"the proxy that runs; a key is read from {', '.join(_KEY_VARIABLES)}")
    where.add_argument("--embedded", action="store_true", help="a proxy and a provider in this process: costs nothing")
    parser.add_argument("--model", default="", help="the model that is asked (default: the first of the proxy's list)")
    parser.add_argument("--yes", action="store_true", help="do not ask before money is spent")
    add_json(parser)


def _run_try(arguments: argparse.Namespace) -> int:
    """Print the expected cost, send the conversation, and print the provider's report. Raises ConfigError."""
    with _place(arguments) as (url, key, settings):
        try:
            used = asyncio.run(_tried(url, key, settings, arguments))
        except aiohttp.ClientConnectorError:
            fail(f"no proxy listens at {url}: start `stratiform serve`, or use --embedded")
        except (aiohttp.ClientError, TimeoutError, LookupError, TypeError, ValueError) as error:
            fail(f"{url} does not answer as a proxy does ({str(error) or type(error).__name__})")
        print_result(arguments, used, lambda: print(*_told(used), sep="\n"))
    return 0


@contextmanager
def _place(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Settings]]:
    """The URL of the proxy, a key, and the settings of its configuration, as far as they are known."""
    if arguments.embedded:
        settings = demo_settings(0)
        with running(settings, local_encode(), tells=True) as proxy:
            yield proxy.url, "try", settings
        return
    config = arguments.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() and not arguments.url else None)
    settings = load(config) if config is not None else Settings()
    host, port = settings.stratiform.host, settings.stratiform.port
    named = f"[{host}]" if ":" in host else {"0.0.0.0": "127.0.0.1"}.get(host, host)
    url = (arguments.url or f"http://{named}:{port}").rstrip("/").removesuffix("/v1")
    environment = Environment.of_process()
    known = settings.master_key.get_secret_value() if settings.master_key is not None else ""
    yield url, known or next(filter(None, map(environment.get, _KEY_VARIABLES)), "none"), settings


async def _tried(url: str, key: str, settings: Settings, arguments: argparse.Namespace) -> dict[str, Any]:
    """Hold the conversation. Returns the sums of what the proxy booked for it. Raises aiohttp.ClientError, TimeoutError
    and ValueError."""
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S), headers=headers) as session:
        model = arguments.model
        if not model:
            listed = (await _asked(session, "GET", f"{url}/v1/models"))["data"]
            if not listed:
                fail("the proxy lists no model: name one with --model")
            model = str(listed[0]["id"])
        messages = [{"role": "system", "content": prompt(_DOCUMENTS)}]
        if not arguments.json:
            print(_announced(url, settings, model, messages[0]["content"], is_free=arguments.embedded), flush=True)
        is_asked = sys.stdin.isatty() and not (arguments.embedded or arguments.yes)
        if is_asked and input("Go on? [Y/n] ").strip().lower() in ("n", "no"):
            raise SystemExit(0)
        reports = []
        for question in _QUESTIONS:
            messages.append({"role": "user", "content": question})
            body = {"model": model, "messages": messages, "stratiform": {"return_usage": True}}
            answer = await _asked(session, "POST", f"{url}/v1/chat/completions", body)
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"].get("content") or "-"})
            reports.append(answer["stratiform"]["token_usage"])
    return {
        "model": model,
        "requests": len(reports),
        **{name: sum(report["request"][name] for report in reports) for name in _BOOKED},
        "reason": reports[-1]["reason"],
        "mode": reports[-1]["mode"],
    }


async def _asked(session: aiohttp.ClientSession, method: str, url: str, body: object = None) -> Any:
    """The content of an answer. A redirect is not followed, because the key belongs to this address alone."""
    async with session.request(method, url, json=body, allow_redirects=False) as answer:
        content = await answer.json()
        if answer.status != 200:
            # An upstream's own error may be a text, or have another name.
            error = content.get("error", content) if isinstance(content, dict) else content
            said = error.get("message", error) if isinstance(error, dict) else error
            fail(f"the answer has status {answer.status}: {said}")
        return content


def _announced(url: str, settings: Settings, model: str, system: str, *, is_free: bool) -> str:
    prices = factories.price_map(settings)
    price = price_of_model(model, prices, factories.model_table(settings, prices))
    tokens = local_encode()(system) * len(_QUESTIONS)
    if is_free:
        costs = "It costs nothing: the provider is one in this process, with Anthropic's rules."
    elif price is None:
        costs = "What it costs is not known here: litellm's price map has no price for this model."
    else:
        usd = tokens * price.input + len(_QUESTIONS) * _ANSWER_TOKENS * price.output
        costs = f"It costs about {usd:.2f} USD where nothing is cached, and less where something is."
    sent = f"{len(_QUESTIONS)} requests of together {tokens:,} tokens go to `{visible(model)}` through {url}."
    return f"{sent} {costs}"


def _told(used: Mapping[str, Any]) -> Sequence[str]:
    """Three lines: the tokens that were read and written, the cost, and the cost without Stratiform."""
    prompt_tokens, read, written, cost, saved = (used[name] for name in _BOOKED)
    other = cost + saved
    lines = [
        f"Read from the cache: {read:,} of {prompt_tokens:,} prompt tokens ({read / max(prompt_tokens, 1):.0%}); "
        f"written: {written:,}.",
        f"Cost: {cost:.4f} USD." if cost else "Cost: nothing was booked, because the price of this model is not known.",
    ]
    if cost:
        gain = f"{saved / other:.0%} are saved" if saved > 0 else "for such a conversation it adds nothing"
        lines.append(f"Without Stratiform it would have been {other:.4f} USD: {gain}.")
    if not read:
        why = visible(f"mode {used['mode']}, reason {used['reason']}")
        lines.append(f"Nothing was read ({why}): `stratiform check-config` shows which cache profile the model has.")
    return lines


try_ = Command(_configure_try, _run_try)

"""``stratiform try``: a short conversation through a running proxy, and how its provider's cache served it.

The conversation has instructions that are long enough for every provider's cache, and a few short questions. The
provider's report comes back in the answers (``stratiform.return_usage``), so the command needs no more permissions than
any client.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from proxy.app import factories
from proxy.app.settings import Environment, Settings, load
from proxy.cli import add_json, fail, plain_failures, print_result
from proxy.cli.admin_client import DEFAULT_CONFIG
from proxy.cli.costs import price_of_model
from proxy.cli.demo import demo_settings, running
from proxy.kit.messages import visible
from proxy.lab.demo.chats import prompt
from proxy.services import local_encode

_KEY_VARIABLES = ("STRATIFORM_API_KEY", "STRATIFORM_MASTER_KEY", "LITELLM_MASTER_KEY", "OPENAI_API_KEY")
_DOCUMENTS = range(12)
_QUESTIONS = (
    "How do I pause a subscription for two weeks? Answer in one sentence.",
    "And is the customer told about it? One sentence.",
    "Can a picker do that? One sentence.",
    "Where do I see which stalls are open tomorrow? One sentence.",
)
_ANSWER_TOKENS = 60
_TIMEOUT_S = 120.0
_SUMS = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "saved_usd")


def configure(parser: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    """Print the expected cost, send the conversation, and print the provider's report. Raises ConfigError."""
    with plain_failures(), _place(arguments) as (url, key, settings):
        try:
            used = asyncio.run(_tried(url, key, settings, arguments))
        except aiohttp.ClientConnectorError:
            fail(f"no proxy listens at {url}: start `stratiform serve`, or use --embedded")
        except (aiohttp.ClientError, TimeoutError, LookupError, TypeError, ValueError) as error:
            fail(f"{url} does not answer as a proxy does ({str(error) or type(error).__name__})")
        print_result(arguments, used, lambda: print(*_report(used), sep="\n"))
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
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), headers=headers) as session:
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
        **{name: sum(report["request"][name] for report in reports) for name in _SUMS},
        "reason": reports[-1]["reason"],
        "mode": reports[-1]["mode"],
    }


async def _asked(session: aiohttp.ClientSession, method: str, url: str, body: object = None) -> Any:
    """The content of an answer. A redirect is not followed, because the key belongs to this address alone."""
    async with session.request(method, url, json=body, allow_redirects=False) as answer:
        content = await answer.json()
        if answer.status != 200:
            fail(f"the answer has status {answer.status}: {content['error']['message']}")
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


def _report(used: Mapping[str, Any]) -> Sequence[str]:
    """Three lines: the tokens that were read and written, the cost, and the cost without Stratiform."""
    prompt_tokens, read, written, cost, saved = (used[name] for name in _SUMS)
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

"""The common part of the commands ``teams``, ``keys``, ``budgets`` and ``spend``: access to the data, and output.

Each of them uses the same service as the admin API: on the configured store itself or, with ``--url``, through a
running proxy. The master key is never an argument, because other users of a machine can read the arguments of a
process.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp

from proxy.app import factories, foundation
from proxy.app.admin import AdminService
from proxy.app.settings import ConfigError, Environment, Settings, Stratiform, load
from proxy.cli import Output, add_json, fail, plain_table, print_result
from proxy.kit.clock import SteadyClock
from proxy.kit.errors import Conflict, InvalidRequest, NotFound, ProxyError
from proxy.kit.value import dataclass
from proxy.teams.authentication import Directory
from proxy.teams.store_client import Epochs, ask_time
from proxy.teams.validation import date_of

DEFAULT_CONFIG = Path("config.yaml")
_TIMEOUT_S = 30.0
# A command waits as long as a proxy may be busy with its file.
_PATIENCE_S = 10.0
_KEY_VARIABLES = ("STRATIFORM_MASTER_KEY", "LITELLM_MASTER_KEY")
_ERRORS: Mapping[int, type[ProxyError]] = {400: InvalidRequest, 404: NotFound, 409: Conflict}

Ask = Callable[..., Awaitable[Any]]
"""``await ask(method, path, query, body)``: the content of the answer. Raises ProxyError."""


class Unanswered(ProxyError):
    """The proxy refuses a request of the command, or does not answer."""


@dataclass(frozen=True, slots=True)
class CommandOption:
    """An option of a command that becomes a field of the body. Empty, or ``none``, clears the field."""

    flag: str
    field: str
    kind: Callable[[str], Any]
    help: str


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def show(arguments: argparse.Namespace, content: Any, columns: Mapping[str, str]) -> None:
    """Print a list or a single object, as JSON or as a table. ``columns`` has the headings of the columns by the fields
    that they show."""
    rows = content["data"] if content.get("object") == "list" else [content]
    kinds = {
        heading: {type(row[field]) for row in rows if row.get(field) is not None} for heading, field in columns.items()
    }
    numbers = [heading for heading, found in kinds.items() if found and found <= {int, float}]
    cells = ([_text(field, row.get(field)) for field in columns.values()] for row in rows)
    print_result(arguments, content, lambda: Output().print(plain_table(columns, numbers, cells)))


LIMITS = (
    CommandOption("--mode", "mode", str, "the highest mode that a request gets: passthrough, observe, mark or tier"),
    CommandOption(
        "--models", "models", names, "the models that requests may name, separated by commas; * stands for any text"
    ),
    CommandOption("--rpm", "requests_per_minute", int, "requests per minute"),
    CommandOption("--tpm", "tokens_per_minute", int, "tokens per minute"),
)


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request that an action makes to the admin API. ``path`` may name an argument in braces. ``options`` and the
    arguments named in ``fields`` become fields of the body. The arguments named in ``query`` become parameters.
    Arguments that were not given are left out. ``columns`` are the headings under which ``show`` prints the fields of
    the answer."""

    method: str
    path: str
    columns: Mapping[str, str]
    options: Sequence[CommandOption] = ()
    fields: Sequence[str] = ()
    query: Sequence[str] = ()
    show: Callable[[argparse.Namespace, Any, Mapping[str, str]], None] = show


def add_action(
    choices: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, request: AdminRequest
) -> argparse.ArgumentParser:
    """Add an action to those of a command. It also takes the options of ``add_where``."""
    parser = choices.add_parser(name, help=summary)
    for option in request.options:
        parser.add_argument(option.flag, dest=option.field, metavar="VALUE", help=option.help)
    add_where(parser)
    parser.set_defaults(request=request)
    return parser


def run(arguments: argparse.Namespace) -> int:
    request: AdminRequest = arguments.request

    async def work(ask: Ask) -> None:
        query = {name: value for name in request.query if (value := getattr(arguments, name))}
        body = _body(arguments, request) if request.method in ("POST", "PATCH") else None
        content = await ask(request.method, request.path.format(**vars(arguments)), query, body)
        request.show(arguments, content, request.columns)

    return run_with(arguments, work)


def config_or_default(given: Path | None, advice: str) -> Path:
    """The configuration that a command works on. Raises ConfigError, with the advice, if none is given and the default
    one does not exist."""
    if given is None and not DEFAULT_CONFIG.exists():
        raise ConfigError([f"there is no {DEFAULT_CONFIG} here: {advice}"])
    return given or DEFAULT_CONFIG


def add_where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where the command works, and how it prints")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--config", type=Path, metavar="FILE", help=f"use the store of this configuration (default: {DEFAULT_CONFIG})"
    )
    where.add_argument("--store", metavar="STORE", help="use this store: sqlite:PATH or redis://HOST:PORT/DB")
    where.add_argument("--url", help=f"ask a running proxy; its master key is read from {' or '.join(_KEY_VARIABLES)}")
    add_json(group)


def _body(arguments: argparse.Namespace, request: AdminRequest) -> dict[str, Any]:
    body = {name: value for name in request.fields if (value := getattr(arguments, name)) is not None}
    for option in request.options:
        text = getattr(arguments, option.field)
        if text is not None:
            try:
                body[option.field] = None if text.lower() in ("", "none") else option.kind(text)
            except ValueError:
                raise ConfigError([f"{option.flag}: must be a number, or none"]) from None
    return body


def run_with(arguments: argparse.Namespace, work: Callable[[Ask], Awaitable[None]]) -> int:
    """Run a command's work with an ``Ask`` function. Returns the exit status. Raises ConfigError."""

    async def main() -> None:
        async with _asking(arguments) as ask:
            await work(ask)

    try:
        asyncio.run(main())
    except ProxyError as error:
        fail(error.message)
    except UnicodeEncodeError:
        fail("an argument is not valid UTF-8")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if arguments.url is None:
            raise
        # The answers of another version, or of another server, lack what the command reads.
        fail(f"{arguments.url} does not answer as a proxy does ({type(error).__name__})")
    return 0


@asynccontextmanager
async def _asking(arguments: argparse.Namespace) -> AsyncIterator[Ask]:
    """A function that asks the admin service, on the store itself or of a running proxy. Raises ConfigError."""
    environment = Environment.of_process()
    if arguments.url is not None:
        key = next(filter(None, map(environment.get, _KEY_VARIABLES)), None)
        if key is None:
            raise ConfigError([
                f"--url: the master key is missing: set {' or '.join(_KEY_VARIABLES)} in the environment"
            ])  # fmt: skip
        headers = {"authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), headers=headers) as session:
            yield partial(_ask_proxy, session, arguments.url.rstrip("/").removesuffix("/v1"))
        return
    if arguments.store:
        try:
            settings = Settings(stratiform=Stratiform(store=arguments.store), folder=Path())
        except ValueError:
            raise ConfigError(["--store: must be sqlite:PATH or redis://HOST:PORT/DB"]) from None
    else:
        path = config_or_default(arguments.config, "use --config FILE, --store or --url")
        try:
            settings = load(path, environment=environment)
        except ConfigError as error:
            raise ConfigError(
                [*error.problems, "(use --store to work on a store without its configuration)"]
            ) from error
    async with aclosing(await factories.open_store(settings, _PATIENCE_S)) as store:
        if not store.is_durable:
            raise ConfigError(
                ["stratiform.store: is memory, which ends with its process: ask the running proxy instead (--url)"]
            )
        directory = Directory(foundation.declared(settings), store)
        clock = SteadyClock()
        await ask_time(clock, store)
        epochs = Epochs(store, factories.epoch_file(settings))
        await epochs.recall()
        yield AdminService(directory, store, clock, epochs).answer


async def _ask_proxy(
    session: aiohttp.ClientSession,
    url: str,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: object = None,
) -> Any:
    """Ask a running proxy. A redirect is not followed, because the key belongs to this address alone. Raises
    InvalidRequest, NotFound, Conflict, Unanswered."""
    # An argument that is not UTF-8 is sent in its original bytes.
    address = f"{url}/admin/{quote(path, errors='surrogateescape')}"
    if query:
        address += f"?{urlencode(query, errors='surrogateescape')}"
    try:
        async with session.request(method, address, json=body, allow_redirects=False) as answer:
            if answer.status in _ERRORS:
                raise _ERRORS[answer.status](await _message(answer))
            if answer.status >= 300:
                raise Unanswered(await _message(answer))
            content = await answer.json()
            if not isinstance(content, dict) or "object" not in content:
                raise ValueError("no answer of the admin API")
            return content
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Unanswered(f"{url} does not answer as a proxy does ({type(error).__name__})") from error


async def _message(answer: aiohttp.ClientResponse) -> str:
    try:
        message = (await answer.json())["error"]["message"]
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return f"the proxy answered with status {answer.status}"
    if answer.status == 404 and "nothing is served" in str(message):
        return "this proxy has no admin API: it has no master key"
    return str(message)


def _text(field: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.endswith("_at") and isinstance(value, (int, float)):
        return date_of(value).strftime("%Y-%m-%d %H:%M")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".") if field.endswith("usd") else f"{value:g}"
    return str(value)

"""``stratiform spend``: the spend, and the savings by caching, by team, key, user, model and day.

``stratiform prices``: the prices of a configuration's models, and the pinned prices that have changed.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import yaml

from proxy.app import factories
from proxy.app.admin.reports import cell, ledger_entries
from proxy.app.settings import Settings, load
from proxy.cli import Command, Output, add_json, fail, plain_table, print_json, print_result
from proxy.cli.admin_client import Ask, add_where, run_with, show
from proxy.kit.errors import UnknownModel
from proxy.kit.messages import visible
from proxy.models import Deployment
from proxy.models.deployments import ModelTable, bundled_price_file, deviation_of, price_for
from proxy.protocol.prices import Price, PriceMap, forms, needed

_PARAMETERS = ("since", "until", "team", "key", "user", "model", "timezone")
_SUMS = {
    "requests": "requests", "read": "read_tokens", "written": "write_tokens", "uncached": "uncached_tokens",
    "output": "output_tokens", "cost usd": "cost_usd", "saved usd": "saved_usd", "estimated": "estimated_requests",
}  # fmt: skip


def _configure_spend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", help="the groups: team, key, user, model, day, separated by commas (default: team)")
    parser.add_argument("--since", default="30d", help="the start: 30d, 12h, 2026-11-01 or unix seconds (default: 30d)")
    parser.add_argument("--until", help="the end, written in the same way (default: now)")
    for name in ("team", "key", "user", "model"):
        parser.add_argument(f"--{name}", help=f"only what this {name} spent")
    parser.add_argument("--timezone", help="the time zone in which days begin (default: UTC)")
    parser.add_argument("--csv", action="store_true", help="print CSV")
    parser.add_argument(
        "--entries", action="store_true", help="print the entries of the ledger: one JSON object a line, or CSV"
    )
    add_where(parser)


def _run_spend(arguments: argparse.Namespace) -> int:
    query = {name: value for name in _PARAMETERS if (value := getattr(arguments, name)) is not None}
    if arguments.csv and arguments.json:
        fail("print either --csv or --json")
    if arguments.entries and arguments.by is not None:
        fail("--by is for the sums: --entries prints each entry")
    if arguments.entries:
        return run_with(arguments, partial(_export, query, as_csv=arguments.csv))
    query["by"] = arguments.by or "team"

    async def work(ask: Ask) -> None:
        content = await ask("GET", "spend", query)
        by = content["by"]
        if arguments.csv:
            _sheet([*by, *_SUMS.values()]).writerows(map(_cells, content["data"]))
            return
        if len(content["data"]) > 1 and by and not arguments.json:
            # The sum of the rows is the last row.
            content["data"].append({**content["total"], by[0]: "total"})
        show(arguments, content, {**{group: group for group in by}, **_SUMS})

    return run_with(arguments, work)


async def _export(query: dict[str, str], ask: Ask, *, as_csv: bool) -> None:
    sheet = None
    async for entry in ledger_entries(ask, query):
        if as_csv:
            sheet = sheet or _sheet(entry)
            sheet.writerow(_cells(entry))
        else:
            print_json(entry, is_line=True)


def _sheet(columns: Iterable[str]) -> "csv.DictWriter[str]":
    """CSV on the standard output, whose heading is written. Other values than those of the columns are left out."""
    sheet = csv.DictWriter(sys.stdout, list(columns), extrasaction="ignore")
    sheet.writeheader()
    return sheet


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row, so that neither a spreadsheet nor a terminal takes a text for a command."""
    return {name: visible(cell(value)) if isinstance(value, str) else value for name, value in row.items()}


_COLUMNS = ("name", "model", "input", "read", "write", "output", "from", "note")
_NUMBERS = _COLUMNS[2:6]
_NO_PRICE = "no price: budgets in USD refuse it (see stratiform.prices)"

RawMap = Mapping[str, Mapping[str, Any]]


def _configure_prices(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="show each model's price in USD per million tokens, and what is not known")
    add_json(check)
    update = actions.add_parser("update", help="print the installed LiteLLM's values of the pinned prices that differ")
    for one in (check, update):
        one.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            default=Path("config.yaml"),
            help="the configuration (default: config.yaml)",
        )


def _run_prices(arguments: argparse.Namespace) -> int:
    """Run the action, and return the exit status: 1 if a model has no price, or a pinned price has changed. Raises
    ConfigError."""
    settings, path = load(arguments.config), bundled_price_file()
    known: RawMap = orjson.loads(path.read_bytes()) if path is not None else {}
    if arguments.action == "update":
        return _update(settings, known)
    rows = list(_rows(settings, known))

    def show() -> None:
        cells = (["-" if row[name] is None else str(row[name]) for name in _COLUMNS] for row in rows)
        Output().print(plain_table(_COLUMNS, _NUMBERS, cells))
        print(f"USD per million tokens; LiteLLM {version('litellm')}")

    print_result(arguments, {"litellm": version("litellm"), "models": rows}, show)
    return 1 if any(row["note"] == _NO_PRICE for row in rows) else 0


def price_of_model(model: str, prices: PriceMap, table: ModelTable) -> Price | None:
    """The price of a model that a request may name; None if it is not known."""
    try:
        return price_for(prices, table.resolve(model))
    except UnknownModel:
        return prices.price(model)


def _rows(settings: Settings, known: RawMap) -> Iterator[dict[str, Any]]:
    prices = factories.price_map(settings)
    for name, deployment in factories.model_table(settings, prices).listed():
        price, found = price_for(prices, deployment), _named(deployment, known)
        is_given = prices.given.get(name) is not None or "input_cost_per_token" in deployment.params
        row: dict[str, Any] = {"name": name, "model": deployment.model}
        if price is None:
            yield row | dict.fromkeys(_NUMBERS) | {"from": "-", "note": _NO_PRICE}
            continue
        rates = (price.input, price.read, price.write_5m, price.output)
        row |= {column: round(rate * 1_000_000, 6) for column, rate in zip(_NUMBERS, rates, strict=True)}
        source, note = found or "stratiform", deviation_of(found, known.get(found, {}))
        yield row | ({"from": "config", "note": ""} if is_given else {"from": source, "note": note})


def _named(deployment: Deployment, known: RawMap) -> str:
    """The name under which the map has the price of a deployment; empty if it has no price."""
    names = filter(None, (deployment.price_key, deployment.model))
    return next((form for name in names for form in (name, *forms(name)) if form in known), "")


def _update(settings: Settings, known: RawMap) -> int:
    """Print new values of ``stratiform.prices`` for the prices that differ from the installed map by now."""
    pinned, table = factories.price_overrides(settings), factories.model_table(settings, factories.price_map(settings))
    by_name = dict(table.listed())
    changed: dict[str, dict[str, object]] = {}
    for name, given in pinned.items():
        found = _named(by_name[name], known) if name in by_name else name
        current = {key: value for key, value in needed(known.get(found, {})).items() if key in given}
        if current and current != {key: given[key] for key in current}:
            changed[name] = given | current
    if changed:
        print(yaml.safe_dump({"stratiform": {"prices": changed}}, sort_keys=False), end="")
    return 1 if changed else 0


spend = Command(_configure_spend, _run_spend)
prices = Command(_configure_prices, _run_prices)

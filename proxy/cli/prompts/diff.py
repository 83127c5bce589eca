"""``stratiform prompts diff``: the effects of a change on composed texts, tokens, cached prefixes, and the bill.

The bill is an estimate of what the change would have cost for the requests in the ledger.

Each request pays for the growth of the composed texts. In the system text, the price is that of a cache read if the
request found something in the cache, and that of a fresh prompt if it did not. Around the newest user message, it is
the price of a fresh prompt. A fresh prompt is written to the cache if the traffic has cache writes; else it costs the
input price.

Each session that is open at the change has its prefix written again once, from the changed token on. The cost is that
of the tokens that a request usually finds in the cache, without the tokens in front of the changed one, at the price of
a fresh prompt instead of a read.

The ledger knows no sessions. A session is estimated to begin with a user's first request, with a request that comes
more than an hour after the one before, or with a request that finds nothing in the cache.
"""

import argparse
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.text import Text

from proxy.app import factories
from proxy.app.admin.reports import ledger_entries
from proxy.app.settings import ConfigError, load
from proxy.cli import Output, add_json, fail, plain_table, print_result
from proxy.cli.admin_client import Ask, run_with
from proxy.cli.costs import price_of_model
from proxy.cli.prompts.variants import (
    HELP,
    GivenContext,
    PromptSetup,
    TextDifference,
    Variant,
    add_contexts,
    difference,
    differences,
    opened,
    read_context,
)
from proxy.kit.messages import visible
from proxy.protocol.prices import Price
from proxy.services import local_encode
from proxy.services.prompting import Whose

DAYS = 30
"""How many days of the ledger are read."""
_PAUSE_S = 3600.0
_CACHE_LIFE_S = 300.0
_PAGE = "10000"
_SUMMED = ("read_tokens", "write_5m_tokens", "write_1h_tokens", "cost_usd")
_TOTALS = ("requests_usd", "once_usd", "once_usd_at_most")


@dataclass(slots=True)
class Traffic:
    """The requests of the ledger, summed up by model, team and key. Besides the ledger's own sums it has the number of
    ``requests``, the number of ``warm`` ones (they found something in the cache), the number of ``sessions``, and how
    long the sessions were open (``open_s``, in seconds)."""

    by_whose: dict[Whose, Counter[str]] = field(default_factory=dict)
    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry. Entries come in their order. An entry without an answer of a model, such as a refusal or an
        embedding, does not count."""
        if entry["status"] != 200 or not entry["output_tokens"]:
            return
        whose = Whose(entry["model"], entry["team"], entry["key_id"])
        at, last = entry["at"], self._last.get((*whose, entry["user"]))
        self._last[(*whose, entry["user"])] = at
        is_first = last is None or at - last > _PAUSE_S or not entry["read_tokens"]
        open_s = _CACHE_LIFE_S if is_first or last is None else at - last
        of_one = self.by_whose.setdefault(whose, Counter())
        of_one.update({name: entry[name] for name in _SUMMED})
        of_one.update({"requests": 1, "warm": entry["read_tokens"] > 0, "sessions": is_first, "open_s": open_s})


def estimated(
    traffic: Traffic, change: Callable[[Whose], TextDifference], price_of: Callable[[str], Price | None]
) -> dict[str, Any]:
    """The bill of the change for this traffic, as JSON values: a line for each model, team and key, the most expensive
    first, and the sums of all. ``change`` gives the difference for the requests of a model, team and key. ``price_of``
    gives the price of a model's tokens.

    A line has the cost of the changed size of all requests, and the cost for one session that meets the change (both
    None if the price is not known). It also has the one-time cost for the sessions that are open at a usual time, and
    the most that it costs, if every session meets the change."""
    lines = []
    for whose, of_one in sorted(traffic.by_whose.items(), key=lambda pair: (-pair[1]["cost_usd"], pair[0])):
        one, price = change(whose), price_of(whose.model)
        system_tokens = one.new.sizes.system - one.old.sizes.system
        user_tokens = one.new.sizes.user - one.old.sizes.user
        requests_usd = session_usd = None
        if price is not None:
            short, long = of_one["write_5m_tokens"], of_one["write_1h_tokens"]
            fresh = price.write_1h if long > short else price.write_5m if short else price.input
            warm, requests = of_one["warm"], of_one["requests"]
            of_system = warm * price.read + (requests - warm) * fresh
            requests_usd = system_tokens * of_system + user_tokens * requests * fresh
            found = of_one["read_tokens"] / warm if warm else 0.0
            lost = 0.0 if one.kept_tokens is None else max(0.0, found - one.kept_tokens)
            session_usd = lost * max(0.0, fresh - price.read)
        open_sessions = of_one["open_s"] / (DAYS * 86400.0)
        lines.append({
            "model": whose.model, "team": whose.team, "key": whose.key_id,
            "requests": of_one["requests"], "sessions": of_one["sessions"], "open_sessions": open_sessions,
            "spent_usd": of_one["cost_usd"], "system_tokens": system_tokens, "user_tokens": user_tokens,
            "requests_usd": requests_usd, "session_usd": session_usd,
            "once_usd": (session_usd or 0.0) * open_sessions,
            "once_usd_at_most": (session_usd or 0.0) * of_one["sessions"],
        })  # fmt: skip
    return {
        **{name: sum(line[name] or 0.0 for line in lines) for name in _TOTALS},
        "requests_without_price": sum(line["requests"] for line in lines if line["requests_usd"] is None),
        "lines": lines,
    }


_SHOWN_CASES = 5
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_ESTIMATE = (
    "an estimate: sessions are told from pauses and cold requests in the ledger, tokens are counted on this machine, "
    "and the ledger does not know the personas, profiles and contexts of its requests"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help=HELP)
    parser.add_argument("new", metavar="NEW", help="the same, after the change")
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="the configuration whose rules hold where OLD or NEW is a folder, and whose store has the ledger",
    )  # fmt: skip
    parser.add_argument("--exit-code", action="store_true", help="end with status 1 where a cached prefix is lost")
    add_contexts(parser, "the change is shown for each")
    ledger = parser.add_argument_group("the bill")
    ledger.add_argument(
        "--ledger", action="store_true", help=f"estimate what the change would have cost in the last {DAYS} days"
    )
    where = ledger.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="STORE", help="read the ledger of this store: sqlite:PATH or redis://...")
    where.add_argument("--url", help="read the ledger of a running proxy")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the change. Returns 0, or with ``--exit-code`` 1 if a cached prefix is lost."""
    if (arguments.store or arguments.url) and not arguments.ledger:
        fail("--store and --url say whose ledger is read: they need --ledger")
    # Counts are cached, because most kinds of requests have the same texts.
    encode = cache(local_encode())
    contexts = {str(file): read_context(file) for file in arguments.context} or {"": {}}
    with opened(arguments.old, arguments.config) as old, opened(arguments.new, arguments.config) as new:
        found = differences(old, new, contexts, encode)
        usual = next(iter(contexts.values())) if len(contexts) == 1 else {}
        bill = _bill(arguments, old, new, usual) if arguments.ledger else None
    changed = [one for one in found if one.is_changed]
    same = sum(len(one.cases) for one in found if not one.is_changed)
    report = {
        "old": {"name": arguments.old, "version": old.snapshot.version},
        "new": {"name": arguments.new, "version": new.snapshot.version},
        "unchanged": same,
        "changes": [
            {
                "variants": [{**variant.view(), "context": name or None} for variant, name in one.cases],
                "tokens": {
                    "system": [one.old.sizes.system, one.new.sizes.system],
                    "user": [one.old.sizes.user, one.new.sizes.user],
                },
                "prefix_lost": one.kept_tokens is not None,
                "kept_tokens": one.kept_tokens,
                "problems": {"old": one.old.problem or None, "new": one.new.problem or None},
                "diff": list(one.lines()),
            }
            for one in changed
        ],
        "bill": bill,
    }
    print_result(arguments, report, lambda: _print(changed, same, bill))
    return 1 if arguments.exit_code and any(one.kept_tokens is not None for one in changed) else 0


def _bill(arguments: argparse.Namespace, old: PromptSetup, new: PromptSetup, context: GivenContext) -> dict[str, Any]:
    """The bill for the ledger of the store, as if all requests had this context, as JSON values. Raises ConfigError."""
    config = arguments.config or next(
        (Path(place) for place in (arguments.new, arguments.old) if Path(place).is_file()), None
    )
    if config is None:
        raise ConfigError(["--ledger: needs a configuration, for its store and its prices: use --config FILE"])
    settings = load(config)
    prices = factories.price_map(settings)
    price = partial(price_of_model, prices=prices, table=factories.model_table(settings, prices))
    traffic, encode = Traffic(), cache(local_encode())

    async def read(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": f"{DAYS}d", "limit": _PAGE}):
            traffic.add(entry)

    def change(whose: Whose) -> TextDifference:
        return difference(old, new, Variant((whose.model,), whose.team, whose.key_id), context, encode)

    run_with(Namespace(url=arguments.url, store=arguments.store, config=config), read)
    return {"is_estimate": True, "basis": _ESTIMATE, "days": DAYS, **estimated(traffic, change, price)}


def _print(changed: Sequence[TextDifference], same: int, bill: dict[str, Any] | None) -> None:
    output = Output()
    for one in changed:
        for variant, name in one.cases[:_SHOWN_CASES]:
            output.print(variant.label + (f", context {name}" if name else ""), style="bold")
        if len(one.cases) > _SHOWN_CASES:
            output.print(f"and {len(one.cases) - _SHOWN_CASES} more", style="bold")
        pairs = {
            "system text": (one.old.sizes.system, one.new.sizes.system),
            "around the newest message": (one.old.sizes.user, one.new.sizes.user),
        }
        told = (f"{place} {old:,} -> {new:,} ({new - old:+,})" for place, (old, new) in pairs.items() if old or new)
        output.print("tokens: " + (", ".join(told) or "none"))
        output.print(
            "cached prefix: kept"
            if one.kept_tokens is None
            else f"cached prefix: lost from token {one.kept_tokens:,} of the composed system text on, with all that "
            "stands behind it; every open session writes it once more"
        )
        for when, problem in (("before", one.old.problem), ("after", one.new.problem)):
            if problem:
                output.print(f"{when} the change: {problem}", style="red", soft_wrap=True)
        for line in one.lines():
            output.print(Text(visible(line), _COLOURS.get(line[:1], "")), soft_wrap=True)
        output.print()
    count = sum(len(one.cases) for one in changed)
    output.print(f"kinds of requests that change: {count}; that do not: {same}", style="dim")
    if bill is not None:
        _print_bill(output, bill)


def _print_bill(output: Output, bill: dict[str, Any]) -> None:
    numbers = ("requests", "sessions", "spent usd", "tokens a request", "requests usd", "session usd", "once usd")
    table = plain_table(("model", "team", "key", *numbers), numbers)
    for line in bill["lines"]:
        tokens = f"{line['system_tokens'] + line['user_tokens']:+,}"
        money = (_money(line[name]) for name in ("requests_usd", "session_usd", "once_usd"))
        table.add_row(
            line["model"], line["team"], line["key"] or "-", f"{line['requests']:,}", f"{line['sessions']:,}",
            _money(line["spent_usd"]), tokens, *money,
        )  # fmt: skip
    output.print()
    if not bill["lines"]:
        output.print(f"the ledger has no requests of the last {DAYS} days")
        return
    output.print(table)
    once, at_most = (f"{bill[name]:.4f} USD" for name in ("once_usd", "once_usd_at_most"))
    output.print(
        f"Had the change been there for the last {DAYS} days, their bill would differ by {bill['requests_usd']:+.4f} "
        "USD, for the changed size of the requests.\n"
        f"The change itself costs about {once} once, for the sessions that are open on average; {at_most} if each "
        f"session of these {DAYS} days met it.",
        soft_wrap=True,
    )
    if unpriced := bill["requests_without_price"]:
        output.print(f"{unpriced:,} requests are of models without a known price", style="yellow")
    output.print(f"This is {_ESTIMATE}.", style="dim", soft_wrap=True)


def _money(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:.4f}"

"""``stratiform prompts diff``: the effects of a change on composed texts, tokens, cached prefixes, and the bill."""

import argparse
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.text import Text

from proxy.app import factories
from proxy.cli.output import Output, add_json, fail, plain_table, print_result, visible
from proxy.cli.prices import price_of_model
from proxy.cli.prompts.bill import DAYS, estimated, read_traffic
from proxy.cli.prompts.setup import HELP, GivenContext, add_contexts, opened, read_context
from proxy.cli.prompts.variants import (
    Difference,
    PromptVersion,
    Variant,
    difference,
    differences,
    signature,
)
from proxy.planning.tokenizers import local_encode
from proxy.prompting.rules import Whose
from proxy.settings import ConfigError, load

_SHOWN_LINES = 200
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
    with ExitStack() as stack:
        setups = [stack.enter_context(opened(place, arguments.config)) for place in (arguments.old, arguments.new)]
        old, new = (PromptVersion(setup, setup.snapshot()) for setup in setups)
        found = differences(old, new, contexts, encode)
        usual = next(iter(contexts.values())) if len(contexts) == 1 else {}
        bill = _bill(arguments, old, new, usual) if arguments.ledger else None
    changed = [one for one in found if one.is_changed]
    same = sum(len(one.cases) for one in found if not one.is_changed)
    report = {
        "old": {"name": arguments.old, "version": old.snapshot.version},
        "new": {"name": arguments.new, "version": new.snapshot.version},
        "unchanged": same,
        "changes": [_view(one) for one in changed],
        "bill": bill,
    }
    print_result(arguments, report, lambda: _print(changed, same, bill))
    return 1 if arguments.exit_code and any(one.kept_tokens is not None for one in changed) else 0


def _bill(
    arguments: argparse.Namespace, old: PromptVersion, new: PromptVersion, context: GivenContext
) -> dict[str, Any]:
    """The bill for the ledger of the store, as if all requests had this context, as JSON values. Raises ConfigError."""
    config = arguments.config or next(
        (Path(place) for place in (arguments.new, arguments.old) if Path(place).is_file()), None
    )
    if config is None:
        raise ConfigError(["--ledger: needs a configuration, for its store and its prices: use --config FILE"])
    settings = load(config)
    prices = factories.price_map(settings)
    price = partial(price_of_model, prices=prices, table=factories.model_table(settings, prices))
    where = Namespace(url=arguments.url, store=arguments.store, config=config)
    encode, known = local_encode(), dict[object, Difference]()

    def change(whose: Whose) -> Difference:
        key = signature(whose, old.setup, new.setup)
        if key not in known:
            known[key] = difference(old, new, Variant((whose.model,), whose.team, whose.key_id), context, encode)
        return known[key]

    return {"is_estimate": True, "basis": _ESTIMATE, "days": DAYS, **estimated(read_traffic(where), change, price)}


def _view(one: Difference) -> dict[str, object]:
    return {
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


def _print(changed: Sequence[Difference], same: int, bill: dict[str, Any] | None) -> None:
    output = Output()
    for one in changed:
        for variant, name in one.cases[:_SHOWN_CASES]:
            output.print(variant.label + (f", context {name}" if name else ""), style="bold")
        if len(one.cases) > _SHOWN_CASES:
            output.print(f"and {len(one.cases) - _SHOWN_CASES} more", style="bold")
        output.print(_tokens(one))
        output.print(_prefix(one))
        for when, problem in (("before", one.old.problem), ("after", one.new.problem)):
            if problem:
                output.print(f"{when} the change: {problem}", style="red", soft_wrap=True)
        lines = list(one.lines())
        for line in lines[:_SHOWN_LINES]:
            output.print(Text(visible(line), _COLOURS.get(line[:1], "")), soft_wrap=True)
        if len(lines) > _SHOWN_LINES:
            output.print(f"... and {len(lines) - _SHOWN_LINES} more lines", style="dim")
        output.print()
    count = sum(len(one.cases) for one in changed)
    output.print(f"kinds of requests that change: {count}; that do not: {same}", style="dim")
    if bill is not None:
        _print_bill(output, bill)


def _tokens(one: Difference) -> str:
    pairs: Mapping[str, tuple[int, int]] = {
        "system text": (one.old.sizes.system, one.new.sizes.system),
        "around the newest message": (one.old.sizes.user, one.new.sizes.user),
    }
    told = (f"{place} {old:,} -> {new:,} ({new - old:+,})" for place, (old, new) in pairs.items() if old or new)
    return "tokens: " + (", ".join(told) or "none")


def _prefix(one: Difference) -> str:
    if one.kept_tokens is None:
        return "cached prefix: kept"
    return (
        f"cached prefix: lost from token {one.kept_tokens:,} of the composed system text on, with all that stands "
        "behind it; every open session writes it once more"
    )


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
    if bill["requests_without_price"]:
        count = f"{bill['requests_without_price']:,}"
        output.print(f"{count} requests are of models without a known price", style="yellow")
    output.print(f"This is {_ESTIMATE}.", style="dim", soft_wrap=True)


def _money(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:.4f}"

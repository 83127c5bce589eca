"""``stratiform prompts``: shows the prompts of the registry, and finds mistakes in them.

Prompt files or a configuration come in; lists, composed texts, findings and differences go out. No command changes a
prompt. ``list``, ``render``, ``lint`` and ``diff`` stand here in this order. ``diff`` shows the effects of a change on
composed texts, tokens, cached prefixes, and the bill.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from proxy.app import factories
from proxy.app.admin.reports import ledger_entries
from proxy.app.foundation import named_prompts
from proxy.app.settings import ConfigError, load
from proxy.cli import Output, add_json, fail, plain_table, print_result
from proxy.cli.admin_client import Ask, run_with
from proxy.cli.costs import price_of_model
from proxy.cli.prompts.variants import (
    ANY,
    DAYS,
    HELP,
    WHY,
    GivenContext,
    PromptReach,
    PromptSetup,
    Sizes,
    TextDifference,
    Traffic,
    Variant,
    add_contexts,
    add_setup,
    difference,
    differences,
    estimated,
    mistakes,
    opened,
    reach,
    read_context,
    setup_of,
    terms_of,
)
from proxy.kit.errors import ProxyError
from proxy.kit.messages import visible
from proxy.kit.value import dataclass
from proxy.prompts import (
    ROOTS,
    Composition,
    Condition,
    ConditionError,
    Prompt,
    PromptContext,
    PromptFailure,
    PromptTerms,
    RenderError,
    Volatile,
    merged,
    resolved,
    value_at,
    volatile_in,
    volatile_name,
    volatile_values,
)
from proxy.prompts.assembler import chosen, contradiction, holds, in_order
from proxy.protocol.access import matches
from proxy.services import local_encode
from proxy.services.prompting import Whose
from proxy.services.prompting.language import Uses, compiled
from proxy.services.prompting.sources import SHIPPED, CompiledTemplates, Snapshot, in_file, unknown_names


def configure(parser: argparse.ArgumentParser) -> None:
    choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (add_arguments, act, summary) in _ACTIONS.items():
        action = choices.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
        add_arguments(action)
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))


def _list(arguments: argparse.Namespace) -> int:
    setup = setup_of(arguments)
    snapshot = setup.snapshot
    found, encode = reach(snapshot.prompts, setup), local_encode()
    rows = [
        {
            "id": prompt.id,
            "position": prompt.position.value,
            "priority": prompt.priority,
            "profile": prompt.profile or None,
            "conditions": [condition_text(condition) for condition in prompt.conditions],
            "variables": [variable.name for variable in prompt.variables],
            "template_tokens": encode(prompt.text),
            "used": prompt.id not in found.unused,
            "description": prompt.description,
            "origin": prompt.origin,
        }
        for prompt in in_order(snapshot.prompts)
    ]
    print_result(arguments, {"version": snapshot.version, "prompts": rows}, lambda: _print_list(snapshot, rows))
    return 0


def _print_list(snapshot: Snapshot, rows: Sequence[dict[str, Any]]) -> None:
    headings = ("position", "priority", "id", "profile", "conditions", "tokens", "used", "origin")
    cells = (
        (
            row["position"], str(row["priority"]), row["id"], row["profile"] or "-",
            ", ".join(row["conditions"]) or "-", f"{row['template_tokens']:,}", "yes" if row["used"] else "no",
            row["origin"],
        )
        for row in rows
    )  # fmt: skip
    output = Output()
    output.print(plain_table(headings, ("priority", "tokens"), cells))
    output.print(f"version {snapshot.version}; tokens are those of the templates as they are written", style="dim")


def _configure_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=ANY, help="the model that the request names")
    parser.add_argument("--team", help="the team of the request's key (default: that of --key, else `default`)")
    parser.add_argument("--key", default="", metavar="KEY_ID", help="the id of the request's key")
    parser.add_argument("--persona", default="", help="the persona that the client chooses")
    parser.add_argument("--profile", default="", help="the capability profile that the client chooses")
    add_contexts(parser, "several are joined")
    add_setup(parser)


def _render(arguments: argparse.Namespace) -> int:
    """Print the composed text. Returns 0 if no prompt is left out by mistake."""
    setup = setup_of(arguments)
    version, team = setup.snapshot.version, arguments.team or setup.team_of(arguments.key)
    variant = Variant((arguments.model,), team, arguments.key, arguments.persona, arguments.profile)
    context = merged(*map(read_context, arguments.context))
    try:
        terms, composition = terms_of(setup, variant), setup.composition(variant, context)
    except ProxyError as error:
        fail(error.message)
    except PromptFailure as error:
        fail(f"the request would be refused: {error}")
    encode = local_encode()
    sizes = Sizes.of(composition, encode)
    rows = [(part.id, part.position.value, encode(part.text)) for part in composition.parts]
    wrong = setup.mistake(variant, context) if any(mistakes(composition)) else ""
    report = {
        "version": version,
        "variant": variant.view(),
        "persona": terms.persona or None,
        "profile": terms.profile or None,
        "system": composition.system,
        "before_user": composition.inset.before,
        "after_user": composition.inset.after,
        "tokens": sizes,
        "prompts": [{"id": name, "position": position, "tokens": tokens} for name, position, tokens in rows],
        "skipped": {name: {"reason": reason, "why": WHY[reason]} for name, reason in composition.skipped.items()},
        "mistake": wrong or None,
    }
    print_result(arguments, report, lambda: _print_rendered(composition, sizes, rows, version))
    for root in sorted(root for root, values in context.items() if values and root not in terms.allowed.context):
        print(
            f"note: a request may not bring '{root}' by this configuration; it is taken as configured", file=sys.stderr
        )
    if wrong:
        print(f"error: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def _print_rendered(composition: Composition, sizes: Sizes, rows: Sequence[tuple[str, str, int]], version: str) -> None:
    output = Output()
    texts = (
        (sizes.system, "in front of the client's system text", composition.system),
        (sizes.before_user, "in front of the newest user message", composition.inset.before),
        (sizes.after_user, "behind the newest user message", composition.inset.after),
    )
    for tokens, place, text in texts:
        if text:
            output.print(f"--- {place} ({tokens:,} tokens)", style="bold")
            output.print(Text(visible(text)), soft_wrap=True)
    if composition.is_empty:
        output.print("nothing is composed", style="bold")
    cells = [(name, position, f"{tokens:,}", "composed") for name, position, tokens in rows]
    cells += [(name, "", "", f"left out: {WHY[reason]}") for name, reason in composition.skipped.items()]
    if cells:
        output.print()
        output.print(plain_table(("prompt", "position", "tokens", "outcome"), ("tokens",), cells))
    output.print(f"version {version}", style="dim")


Severity = Literal["error", "warning"]

_LOST = "the cached prefix is lost from here on"


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` names the kind of finding, ``prompt`` is an id, and ``place`` is a file or a setting. "" means that
    there is none."""

    severity: Severity
    code: str
    message: str
    prompt: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class _Read:
    """A prompt whose template can be read, and the references of the template."""

    prompt: Prompt
    uses: Uses

    @property
    def paths(self) -> frozenset[str]:
        sources = (variable.source or variable.name for variable in self.prompt.variables)
        fields = (condition.field for condition in self.prompt.conditions)
        return frozenset(path for path in (*self.uses.paths, *sources, *fields) if path.partition(".")[0] in ROOTS)

    def finding(self, severity: Severity, code: str, message: str) -> Finding:
        return Finding(severity, code, message, self.prompt.id, self.prompt.origin)


def findings(setup: PromptSetup, contexts: Sequence[GivenContext] = ()) -> list[Finding]:
    """All findings, errors first. ``contexts`` are the contexts that requests may have. Raises ConfigError if the
    configuration itself cannot be used."""
    prompts, problems, fragments = setup.readable()
    found = [Finding("error", "unreadable", problem) for problem in problems]
    read: list[_Read] = []
    for prompt in prompts:
        try:
            read.append(_Read(prompt, Uses() if prompt.is_literal else compiled(prompt.text)[1]))
        except RenderError as error:
            found.append(Finding("error", "bad-template", in_file(error, prompt), prompt.id, prompt.origin))
    first: dict[str, Prompt] = {}
    for one in read:
        if (other := first.setdefault(one.prompt.id, one.prompt)) is not one.prompt:
            found.append(one.finding("error", "duplicate-id", f"{other.origin} has the same id"))
        found += [*_of_one(one, fragments), *_volatile(one)]
    found += [
        Finding("warning", "cache-breaker", f"line {sign.line} of the fragment '{name}' {_holds(sign)}")
        for name, text in fragments.items()
        for sign in volatile_in(text)[:1]
    ]
    broken = {one.place for one in found if one.code in _BROKEN}
    sound = [one for one in read if one.prompt.origin not in broken]
    known = reach([one.prompt for one in sound], setup)
    found += [
        one.finding("warning", "unused", f"nothing uses the prompt: {known.unused[one.prompt.id]}")
        for one in sound
        # Unused shipped prompts are not reported: they are an offer to choose from.
        if one.prompt.id in known.unused and SHIPPED not in Path(one.prompt.origin).parents
    ]
    found += [
        Finding("error", "unknown-prompt", f"no prompt has the id '{pattern}'", place=path)
        for path, pattern in (named_prompts(setup.settings) if setup.settings is not None else ())
        if not any(matches(pattern, one.prompt.id) for one in read)
    ]
    found += _volatile_contexts(sound, known, contexts)
    found += _outcomes(sound, known, fragments, contexts)
    return sorted(dict.fromkeys(found), key=lambda one: (one.severity, one.place, one.prompt, one.code, one.message))


_BROKEN = frozenset({"undefined-variable", "unknown-fragment", "duplicate-id"})


def _of_one(one: _Read, fragments: Mapping[str, str]) -> Iterator[Finding]:
    """Names that do not exist or are not used, and conditions that never hold together."""
    for code, why in unknown_names(one.prompt, one.uses, fragments):
        yield one.finding("error", code, in_file(why, one.prompt))
    for name in sorted({variable.name for variable in one.prompt.variables} - one.uses.names):
        yield one.finding("warning", "unused-variable", f"the template does not use the variable '{name}'")
    if few := contradiction(one.prompt.conditions):
        told = " and ".join(f"`{condition_text(condition)}`" for condition in few)
        why = "never holds" if len(few) == 1 else "never hold together"
        yield one.finding("error", "unreachable", f"{told} {why}: the prompt is never composed")


def condition_text(condition: Condition) -> str:
    """A condition in one line: "agent.debug eq true"."""
    if condition.operator in ("exists", "not_exists"):
        return f"{condition.field} {condition.operator}"
    value = condition.value
    shown = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return f"{condition.field} {condition.operator} {shown}"


def _volatile(one: _Read) -> Iterator[Finding]:
    """Content that makes the system text of a request differ from the request before. Prompts behind the newest message
    are not checked, because nothing is cached there."""
    if not one.prompt.position.is_system:
        return
    for path in sorted(one.paths):
        if kind := volatile_name(path):
            why = f"`{path}` seems to be {_a(kind)}: {_LOST}; use a user position"
            yield one.finding("error", "cache-breaker", why)
    for sign in volatile_in(one.prompt.text):
        yield one.finding("warning", "cache-breaker", f"line {sign.line + one.prompt.first_line - 1} {_holds(sign)}")


def _volatile_contexts(
    read: Sequence[_Read], known: PromptReach, contexts: Sequence[GivenContext]
) -> Iterator[Finding]:
    """Values that look like times, in a context that a system prompt reads."""
    for context in (*(terms.context for _, terms in known.all_terms), *contexts):
        for path, sign in volatile_values(context):
            for one in read:
                if one.prompt.position.is_system and any(f"{path}.".startswith(f"{each}.") for each in one.paths):
                    yield one.finding("warning", "cache-breaker", f"`{path}` of the context {_holds(sign)}")
    for variant, terms in known.all_terms:
        for sign in volatile_in(terms.override):
            why = f"line {sign.line} of the override for {variant.label} {_holds(sign)}"
            yield Finding("warning", "cache-breaker", why, place="stratiform.prompts")


def _holds(sign: Volatile) -> str:
    return f"holds {_a(sign.kind)} ({sign.shown!r}): if it ever changes, {_LOST}"


def _a(kind: str) -> str:
    return "a random value" if kind == "random" else f"a {kind}"


def _outcomes(
    read: Sequence[_Read], known: PromptReach, fragments: Mapping[str, str], contexts: Sequence[GivenContext]
) -> Iterator[Finding]:
    """Prompts that fail when they are rendered, and prompts that the configuration never lets be composed."""
    by_id = {one.prompt.id: one for one in read}
    prompts = [one.prompt for one in read]
    templates = CompiledTemplates(prompts, fragments)
    tried: set[tuple[str, str]] = set()
    chosen_by: dict[str, list[PromptTerms]] = {}
    for _, terms in known.all_terms:
        asked = [merged(terms.context, context) for context in ({}, *contexts)]
        key = repr((terms.context, sorted(terms.allowed.context)))
        for prompt in chosen(prompts, terms):
            chosen_by.setdefault(prompt.id, []).append(terms)
            if (prompt.id, key) not in tried:
                tried.add((prompt.id, key))
                yield from (each for context in asked for each in _outcome(by_id[prompt.id], templates, terms, context))
    for name, all_terms in chosen_by.items():
        for condition in by_id[name].prompt.conditions:
            if all(_is_out_of_reach(condition, terms) for terms in all_terms):
                why = f"`{condition_text(condition)}` does not hold, and no request may change that"
                yield by_id[name].finding("warning", "unreachable", f"{why}: the prompt is never composed")


def _is_out_of_reach(condition: Condition, terms: PromptTerms) -> bool:
    """Whether the configuration does not meet the condition, and clients may not set the field."""
    if condition.field.partition(".")[0] in terms.allowed.context:
        return False
    try:
        return not holds(condition, merged(terms.context))
    except ConditionError:
        return False


def _outcome(one: _Read, templates: CompiledTemplates, terms: PromptTerms, context: PromptContext) -> Iterator[Finding]:
    prompt = one.prompt
    try:
        if all(holds(condition, context) for condition in prompt.conditions) and not prompt.is_literal:
            templates.render(prompt, context, resolved(prompt.variables, context))
    except ConditionError as error:
        yield one.finding("error", "bad-condition", str(error))
    except RenderError as error:
        missing = sorted(path for path in one.paths if not value_at(context, path)[0])
        if missing and all(path.partition(".")[0] in terms.allowed.context for path in missing):
            told = ", ".join(f"`{path}`" for path in missing)
            why = f"the prompt fails for a request that does not bring {told} ({error})"
            yield one.finding("warning", "needs-context", why)
        else:
            yield one.finding("error", "render-error", str(error))


def _configure_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="end with status 1 for warnings, too")
    add_contexts(parser, "the prompts are tried with each")
    add_setup(parser)


def _lint(arguments: argparse.Namespace) -> int:
    """Print the findings. Returns 1 if there are errors."""
    found = findings(setup_of(arguments), [read_context(file) for file in arguments.context])
    errors = sum(finding.severity == "error" for finding in found)
    is_ok = not errors and not (found and arguments.strict)
    report = {"ok": is_ok, "errors": errors, "warnings": len(found) - errors, "findings": found}
    print_result(arguments, report, lambda: _print_findings(found, errors))
    return 0 if is_ok else 1


def _print_findings(found: Sequence[Finding], errors: int) -> None:
    output = Output()
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in found:
        place = ", ".join(part for part in (finding.place, finding.prompt and f"prompt {finding.prompt}") if part)
        severity = Text(finding.severity, "red" if finding.severity == "error" else "yellow")
        table.add_row(severity, finding.code, f"{place}: {finding.message}" if place else finding.message)
    if found:
        output.print(table)
    output.print(f"errors: {errors}, warnings: {len(found) - errors}", style="dim")


_PAGE = "10000"
_SHOWN_CASES = 5
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_ESTIMATE = (
    "an estimate: sessions are told from pauses and cold requests in the ledger, tokens are counted on this machine, "
    "and the ledger does not know the personas, profiles and contexts of its requests"
)


def _configure_diff(parser: argparse.ArgumentParser) -> None:
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


def _diff(arguments: argparse.Namespace) -> int:
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
    print_result(arguments, report, lambda: _print_changes(changed, same, bill))
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

    run_with(argparse.Namespace(url=arguments.url, store=arguments.store, config=config), read)
    return {"is_estimate": True, "basis": _ESTIMATE, "days": DAYS, **estimated(traffic, change, price)}


def _print_changes(changed: Sequence[TextDifference], same: int, bill: dict[str, Any] | None) -> None:
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


_ACTIONS: Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int], str]] = {
    "list": (add_setup, _list, "list the prompts in the order in which they are composed"),
    "render": (_configure_render, _render, "show what one request gets"),
    "lint": (_configure_lint, _lint, "find mistakes, prompts that are never composed, and what breaks caches"),
    "diff": (_configure_diff, _diff, "show what a change does to texts, tokens, cached prefixes and the bill"),
}

"""``stratiform check-config``: whether a configuration is right, and what it means. It never shows a secret.

The checks that ``serve`` makes, too, stand first: provider keys that strangers could use, restrictions of LiteLLM that
are not enforced, expired keys, and budgets that are too small for any request. Then come the parts about prompts and
context windows. Contexts and overrides are the operator's texts and may hold secrets, so the output only says that they
exist. Then come the command, the meaning of the rest, and the warnings.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy.app import factories, foundation
from proxy.app.foundation import levels_of, missing_prompts, named_prompts, rules_of
from proxy.app.settings import (
    IGNORE_FLAG,
    BudgetEntry,
    ConfigError,
    Effect,
    Mistakes,
    PromptLevel,
    Settings,
    Team,
    Unused,
    places,
    read,
    shadowing,
    unused_on_http,
)
from proxy.cli import Output, add_json, plain_table, print_result
from proxy.hookspecs import build_plugin_manager
from proxy.kit.clock import SystemClock
from proxy.kit.errors import UnknownModel
from proxy.kit.messages import shown, visible
from proxy.models import Deployment, Transport
from proxy.models.charges import longest_output, nanos, worst_case
from proxy.models.deployments import ListedModel, ModelTable, deployment_of, provider_names
from proxy.protocol.access import allows, matches, matches_any
from proxy.protocol.prices import PriceMap
from proxy.protocol.providers import PRICES, sources_of
from proxy.services.prompting.sources import PromptFileError, Snapshot, Sources
from proxy.teams.authentication import CLIENT_KEYS_TEAM, DEFAULT_TEAM, is_loopback
from proxy.teams.estimates import PriceOf

# The dearest token of LiteLLM's price map costs 0.0097 USD.
_DEAR_USD = 0.02
_PER_TOKEN = ("_cost_per_token", "_token_cost")
# Values that are written in place of a key if a server needs none.
_PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "no-key", "not-needed", "not_needed", "x", "-"})


def refuse_exposed(settings: Settings, address: str, *, is_open: bool) -> None:
    """Refuse to serve if anybody who reaches this address could use the operator's keys.

    ``address`` is the address that the socket is bound to. ``is_open`` says that any key is accepted. Raises
    ConfigError.
    """
    if not is_open or settings.stratiform.open_to_network or is_loopback(address):
        return
    if names := [*dict.fromkeys(provider_keys(settings))]:
        raise ConfigError([
            f"stratiform.host: listens on {address or 'every address'}, beyond this machine, and accepts any key, "
            f"while {_first_of(names)} would be served with the operator's own key: set general_settings.master_key or "
            "stratiform.teams, listen on 127.0.0.1, or say stratiform.open_to_network: true"
        ])  # fmt: skip


def provider_keys(settings: Settings) -> Iterator[str]:
    """The names of the models that are served with the operator's credentials. With litellm the credentials may come
    from the environment, or from the role of the machine."""
    for entry in factories.entries_with(settings)[0]:
        deployment = deployment_of(entry, no_price)
        is_placeholder = (deployment.api_key or "").strip().lower() in _PLACEHOLDERS
        has_key = deployment.uses_operators_key and not is_placeholder
        is_signed = has_key or "@" in deployment.base_url.partition("://")[2].partition("/")[0]
        if deployment.transport is Transport.LITELLM or (deployment.transport is Transport.HTTP and is_signed):
            yield entry.name


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")


def no_price(deployment: Deployment) -> None:
    """A source without prices, for questions that do not depend on prices."""


IGNORE_HELP = "accept the file even if it restricts clients in ways that this proxy does not enforce"


def not_honoured(settings: Settings) -> list[Unused]:
    """The keys that are not honoured, although they change permissions or the sent requests. Restrictions come
    first."""
    found, lines = [*settings.unused], {entry.line: entry for entry in factories.entries_with(settings)[0]}
    for index, given in enumerate(settings.models):
        if deployment_of(lines[index], no_price).transport is Transport.HTTP:
            found += unused_on_http(given, f"model_list[{index}]")
    told = (Effect.RESTRICTS, Effect.CHANGES, Effect.UNKNOWN)
    return sorted((one for one in found if one.effect in told), key=lambda one: told.index(one.effect))


def unsupported(settings: Settings) -> Iterator[str]:
    """The restrictions that a configuration relies on and this proxy does not enforce. The configuration is refused
    because of them."""
    for one in settings.unused:
        if one.effect is Effect.RESTRICTS:
            yield f"{one} (to start without it: {IGNORE_FLAG})"


def expired_keys(settings: Settings, now: float) -> Iterator[str]:
    for place, team in enumerate(settings.stratiform.teams):
        for index, key in enumerate(team.keys):
            if key.expires_at is not None and key.expires_at <= now:
                yield f"stratiform.teams[{place}].keys[{index}].expires: has passed: the key is refused; remove it"


def tight_budgets(settings: Settings, table: ModelTable, price_of: PriceOf) -> Iterator[str]:
    """A warning for each budget that is too small for one request without an output limit, at some model that is listed
    by its name. The prompt is not counted."""
    for index, team in enumerate(settings.stratiform.teams):
        served = [
            deployment
            for name, deployment in table.listed()
            if not team.models or allows([team.models], [name, deployment.name, deployment.entry], deployment.groups)
        ]
        for place, budget in placed_budgets(team):
            amounts: dict[str, int] = {}
            for one in (one for one in served if _holds(budget, one)):
                amounts[one.name] = max(amounts.get(one.name, 0), _reserved(budget, team, one, price_of))
            limit = budget.tokens if budget.unit == "tokens" else nanos(budget.usd or 0.0)
            # A budget of 0 is intended, so there is no warning about it.
            if refused := [name for name, amount in amounts.items() if limit and amount > limit]:
                most = max(amounts[name] for name in refused)
                shown = f"{most} tokens" if budget.unit == "tokens" else f"${most / 10**9:.2f}"
                yield (
                    f"stratiform.teams[{index}].{place}: one request without max_tokens sets aside up to {shown}, "
                    f"which is more than all of it, and is refused ({_first_of(refused)}); set assumed_output_tokens"
                )


def placed_budgets(team: Team) -> Iterator[tuple[str, BudgetEntry]]:
    """The budgets of a team, each with its path behind the team's."""
    if team.budget is not None:
        yield "budget", team.budget
    yield from ((f"budgets[{at}]", budget) for at, budget in enumerate(team.budgets))


def dear_prices(settings: Settings) -> Iterator[str]:
    """A warning for each price of a token that was probably meant for a million tokens."""
    given = [(f"stratiform.prices.{name}", price.model_dump()) for name, price in settings.stratiform.prices.items()]
    for index, entry in enumerate(settings.models):
        for part in ("litellm_params", "model_info"):
            given.append((f"model_list[{index}].{part}", getattr(entry, part).model_extra or {}))
    for path, prices in given:
        for name, usd in prices.items():
            if name.endswith(_PER_TOKEN) and isinstance(usd, int | float) and usd >= _DEAR_USD:
                yield f"{path}.{name}: is the price of one token; did you mean {usd / 1e6:g}, for {usd:g} a million?"


def _reserved(budget: BudgetEntry, team: Team, deployment: Deployment, price_of: PriceOf) -> int:
    """The reservation for the answer alone, as ``proxy.teams.estimates`` computes it."""
    price = price_of(deployment)
    assumed = [one.assumed_output_tokens for one in team.all_budgets if _holds(one, deployment)]
    known = [tokens for tokens in assumed if tokens is not None]
    longest = longest_output(max(known) if len(known) == len(assumed) else None, price)
    in_usd = 0 if price is None else worst_case(price, 0, longest, long_life=False)
    return longest if budget.unit == "tokens" else in_usd


def _holds(budget: BudgetEntry, deployment: Deployment) -> bool:
    return budget.scope != "model" or matches(budget.subject, deployment.name)


_SECTIONS = ("models", "teams", "keys")
_LATER = "; one that is made while the proxy runs will have it"


def registered(settings: Settings) -> Snapshot | None:
    """The prompts of which requests may be composed. None if the configuration names none, or if no request gets one
    and they cannot be read. Raises ConfigError."""
    may_compose = rules_of(settings).may_compose
    if not (may_compose or any(named_prompts(settings))):
        return None
    folders, is_shipped = settings.prompt_folders, settings.stratiform.prompts.shipped
    try:
        return Sources.of(folders, is_shipped=is_shipped, manager=build_plugin_manager()).snapshot()
    except PromptFileError as error:
        if may_compose:
            raise ConfigError([f"stratiform.prompts: {error}"]) from None
        # The proxy starts without reading these prompts.
        return None


def prompts_of(settings: Settings, snapshot: Snapshot | None) -> dict[str, object] | None:
    """The section ``stratiform.prompts`` as JSON values; None if no request gets a prompt."""
    given = settings.stratiform.prompts
    if snapshot is None or not rules_of(settings).may_compose:
        return None
    return {
        "version": snapshot.version,
        "registered": [prompt.id for prompt in snapshot.prompts],
        "folders": [str(folder) for folder in settings.prompt_folders],
        "shipped": given.shipped,
        "all": _level(given),
        **{part: {shown(name): _level(level) for name, level in getattr(given, part).items()} for part in _SECTIONS},
    }


def window_of(settings: Settings) -> dict[str, object] | None:
    """The section ``stratiform.window`` as JSON values, with the values of all profiles; None if no request has a
    profile."""
    given = settings.stratiform.window
    named = {part: {shown(name): profile for name, profile in getattr(given, part).items()} for part in _SECTIONS}
    if not (given.profile or given.allowed or any(named.values())):
        return None
    return {
        "profile": given.profile,
        **named,
        "allowed": list(given.allowed),
        "profiles": {
            name: {
                "capability": profile.capability.value,
                "window_tokens": profile.window_tokens,
                "output_tokens": profile.output_tokens,
                "margin_tokens": profile.margin_tokens,
                "caps": {
                    part: most for part in profile.caps.__slots__ if (most := getattr(profile.caps, part)) is not None
                },
                "tail_messages": profile.tail_messages,
                "may_shorten_system": profile.may_shorten_system,
                "template": profile.template or None,
                "over_budget": profile.over_budget.value,
            }
            for name, profile in settings.profiles.items()
        },
    }


def prompt_warnings(settings: Settings, table: ModelTable, snapshot: Snapshot | None) -> Iterator[str]:
    """Warnings about names of models, teams, keys, profiles and prompts that do not exist, and so have no effect."""
    ours = settings.stratiform
    known = foundation.declared(settings)
    teams = {DEFAULT_TEAM, CLIENT_KEYS_TEAM, *(team.name for team in known.teams)}
    keys = {key.id for key in known.keys}
    for path, given in (("stratiform.prompts", ours.prompts), ("stratiform.window", ours.window)):
        for name in given.models:
            if not _is_served(name, table):
                yield f"{path}.models: `{shown(name)}` is no model of model_list"
        for what, names, there in (("team", given.teams, teams), ("key", given.keys, keys)):
            yield from (f"{path}.{what}s: `{shown(name)}` is no {what} of this file{_LATER}"
                        for name in names if name not in there)  # fmt: skip
    yield from (f"stratiform.keep_alive.teams: `{shown(name)}` is no team of this file{_LATER}"
                for name in ours.keep_alive.teams if name not in teams)  # fmt: skip
    if snapshot is not None:
        yield from missing_prompts(settings, [prompt.id for prompt in snapshot.prompts])
    rules = rules_of(settings, table.spellings).prompts
    for index, entry in enumerate(settings.models):
        reminder = entry.model_info.system_reminder
        reminder = "system_reminder" if reminder is True else reminder or ""
        if reminder and matches_any(rules.terms_for(entry.model_name, "", "").use, reminder):
            path = f"model_list[{index}].model_info.system_reminder"
            yield f"{path}: stratiform.prompts composes this prompt, too: it would be sent twice"
    for path, level in levels_of(settings):
        if level.profile and level.profile not in settings.profiles:
            yield f"{path}.profile: `{shown(level.profile)}` is no profile of stratiform.window"


def _is_served(name: str, table: ModelTable) -> bool:
    if "*" in name:
        return bool(table.patterns()) or any(matches(name, one) for one in table.names())
    try:
        return bool(table.candidates(name))
    except UnknownModel:
        return False


def _level(level: PromptLevel) -> dict[str, object]:
    """The values of a level. Texts are not shown."""
    allowed = level.allowed
    said: dict[str, object] = {
        "use": level.use,
        "persona": None if level.persona is None else shown(level.persona),
        "profile": None if level.profile is None else shown(level.profile),
        "override": None if level.override is None else bool(level.override),
        "tools": level.tools,
        "plugins": level.plugins,
        "agents": level.agents,
        "context": list(level.context) or None,
        "strict": level.strict,
        "on_failure": level.on_failure,
        "allowed": None if allowed is None else {what: found for what, found in allowed if found},
    }
    return {name: value for name, value in said.items() if value is not None}


def _word(value: object) -> str:
    """A value in words. An object is put in brackets: "(use system, tools yes)"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_word(one)}" for name, one in value.items() if one is not None)
        return f"({text})" if text else "nothing"
    return " ".join(map(shown, value if isinstance(value, list) else [value])) or "none"


# Facts about a provider that are older than this number of days should be checked again.
_OLD_DAYS = 90


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="FILE", help="LiteLLM's config.yaml, with a stratiform section")
    parser.add_argument(IGNORE_FLAG, action="store_true", help=IGNORE_HELP)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check the file. Returns 0 if it can be used. Raises ConfigError."""
    try:
        report = check(arguments.config, ignores_unsupported=arguments.ignore_unsupported)
    except ConfigError as error:
        if not arguments.json:
            raise
        report = {"errors": list(error.problems), "warnings": []}
    is_ok = not report.get("errors")
    if is_ok or arguments.json:
        print_result(arguments, {"ok": is_ok, **report}, lambda: _print(report))
    else:
        for heading in ("error", "warning"):
            for line in report[f"{heading}s"]:
                print(f"{heading}: {visible(line)}", file=sys.stderr)
    return 0 if is_ok else 1


def check(path: Path, *, ignores_unsupported: bool = False) -> dict[str, Any]:
    """The meaning of a configuration, as JSON values. If it is wrong, only its mistakes and warnings are given. Raises
    ConfigError if nothing of the file can be read."""
    mistakes = Mistakes()
    settings = read(path, mistakes)
    if not ignores_unsupported:
        mistakes.add(unsupported(settings))
    now = SystemClock().now()
    mistakes.add(expired_keys(settings, now))
    with mistakes.collecting():
        factories.refuse_without_otel(settings)
    prices = factories.price_map(settings)
    table, problems = factories.model_table_with(settings, prices)
    mistakes.add(problems)
    prompts = None
    with mistakes.collecting():
        prompts = registered(settings)
    warnings = [
        *shadowing(settings.folder),
        *_warnings(settings, prices, date.fromtimestamp(now)),
        *prompt_warnings(settings, table, prompts),
        *tight_budgets(settings, table, factories.price_source(prices)),
    ]
    located = places(path).located
    if mistakes.lines:
        warnings = [line for line in warnings if not mistakes.cover(line)]
        return {"errors": list(map(located, mistakes.lines)), "warnings": list(map(located, warnings))}
    return _meaning(settings, table, prices, prompts) | {"warnings": list(map(located, warnings))}


def _meaning(settings: Settings, table: ModelTable, prices: PriceMap, prompts: Snapshot | None) -> dict[str, Any]:
    price_of = factories.price_source(prices)
    rows = [_row(name, deployment, price_of) for name, deployment in table.listed()]
    for entry in table.wildcards():
        row = _row(entry.name, deployment_of(entry, price_of), price_of)
        # Values that depend on the requested name are null.
        by_name = {"profile": entry.profile.name if entry.profile else None, "min_tokens": None, "price_known": None}
        rows.append(row | by_name if "*" in entry.model else row)
    ours = settings.stratiform
    return {
        "listen": f"{ours.host}:{ours.port}",
        "mode": ours.mode,
        "store": settings.store_name,
        "keys": _keys(settings),
        "models": rows,
        "teams": [
            {
                "name": team.name,
                "keys": len(team.keys),
                "mode": team.mode,
                "models": list(team.models) or None,
                "budgets": [_budget_text(budget) for budget in team.all_budgets] or None,
            }
            for team in ours.teams
        ],
        "pre_call_checks": settings.routing.checks_windows,
        "fallbacks": dict(settings.routing.fallbacks),
        "context_window_fallbacks": dict(settings.routing.context_window_fallbacks),
        "prompts": prompts_of(settings, prompts),
        "window": window_of(settings),
        "not_honoured": [str(one) for one in not_honoured(settings)],
        "not_used": [str(one) for one in settings.unused if one.effect is Effect.HARMLESS],
    }


def _keys(settings: Settings) -> str:
    is_open = foundation.declared(settings).is_empty
    forwards = settings.stratiform.client_keys == "forward"
    return "configured, and the provider's" if forwards else "any" if is_open else "configured"


def _budget_text(budget: BudgetEntry) -> str:
    """A budget in a few words: "user-month: 500 USD (soft 400) for each user"."""
    counts_tokens = budget.unit == "tokens"
    hard, soft = (budget.tokens, budget.soft_tokens) if counts_tokens else (budget.usd, budget.soft_usd)
    unit = "tokens" if counts_tokens else "USD"
    limit = f"soft {_plain(soft)} {unit}" if hard is None else f"{_plain(hard)} {unit}"
    both = f" (soft {_plain(soft)})" if hard is not None and soft is not None else ""
    of = "" if budget.scope == "team" else f" for {'each ' if budget.subject == '*' else ''}{budget.scope}"
    whom = f" {budget.subject}" if budget.scope != "team" and budget.subject != "*" else ""
    return f"{budget.given_name}: {limit}{both}{of}{whom}"


def _plain(amount: float | None) -> str:
    return f"{amount:.9f}".rstrip("0").rstrip(".")


def _row(name: str, deployment: Deployment, price_of: PriceOf) -> dict[str, object]:
    return {
        "name": name,
        "model": deployment.model,
        "transport": deployment.transport.value,
        "profile": deployment.profile.name,
        "min_tokens": deployment.profile.min_tokens if deployment.profile.name != "none" else None,
        "host": urlsplit(deployment.base_url).hostname or "",
        "mode": deployment.mode.name.lower(),
        "price_known": price_of(deployment) is not None,
        "reminder": bool(deployment.reminder),
    }


def _warnings(settings: Settings, prices: PriceMap, today: date) -> Iterator[str]:
    ours, price_of = settings.stratiform, factories.price_source(prices)
    has_keys = settings.master_key is not None or any(team.keys for team in ours.teams)
    has_budgets = any(budget.usd is not None for team in ours.teams for budget in team.all_budgets)
    if ours.clock == "header":
        yield "stratiform.clock: clients set the time: use this for replays only"
    if _keys(settings) == "any" and not ours.open_to_network and (names := [*dict.fromkeys(provider_keys(settings))]):
        yield (
            f"stratiform.teams: any key is accepted, and {_first_of(names)} would be served with the operator's own "
            "key: `serve` listens on this machine only"
        )
    if ours.teams and ours.metrics.key is None:
        yield "stratiform.metrics.key: is not set: /metrics names teams and models to everyone who reaches it"
    yield from dear_prices(settings)
    yield from _about_teams(settings)
    for entry in {
        entry.line: entry for entry in factories.entries_with(settings)[0] if entry.line is not None
    }.values():
        path, deployment = f"model_list[{entry.line}]", deployment_of(entry, price_of)
        if entry.weight <= 0:
            yield f"{path}: has no weight, rpm or tpm, and others have: it serves `{entry.name}` only when those failed"
        if deployment.transport is Transport.HTTP:
            yield from _about_http(deployment, path, has_keys=has_keys, is_named=entry.profile is not None)
        if deployment.transport is Transport.LITELLM:
            yield from _about_litellm(entry, path, is_priced=price_of(deployment) is not None)
        if "*" not in entry.model and price_of(deployment) is None:
            if has_budgets:
                yield f"{path}: its price is not known: teams with a budget cannot use it (see stratiform.prices)"
            elif deployment.profile.read > 0:
                yield f"{path}: its price is not known: its tokens are counted, its cost is not (see stratiform.prices)"
        yield from _old_facts(deployment, path, today)


def _old_facts(deployment: Deployment, path: str, today: date) -> Iterator[str]:
    """Source pages about the deployment's model whose copies are old. They matter because minimums and prices
    change."""
    prices = [source for name, (_, source) in PRICES.items() if name == deployment.model]
    rows = (*sources_of(deployment.profile, deployment.model), *prices)
    for page, read_on in sorted({row for row in rows if (today - date.fromisoformat(row.read_on)).days > _OLD_DAYS}):
        yield f"{path}: what is known of `{deployment.model}` was read on {read_on}; compare it with {page}"


def _about_teams(settings: Settings) -> Iterator[str]:
    ours = settings.stratiform
    if settings.master_key is not None and settings.store_name == "memory":
        yield (
            "stratiform.store: is memory: keys, teams and budgets that are made while the proxy runs end with its "
            "process"
        )
    served = [entry.model_name for entry in settings.models] + list(settings.aliases)
    if settings.upstream or any("*" in name for name in served):
        return
    for index, team in enumerate(ours.teams):
        lists = [(f"stratiform.teams[{index}].models", team.models)]
        lists += [(f"stratiform.teams[{index}].keys[{at}].models", key.models) for at, key in enumerate(team.keys)]
        lists += [
            (f"stratiform.teams[{index}].{place}.subject", [budget.subject])
            for place, budget in placed_budgets(team)
            if budget.scope == "model"
        ]
        for path, patterns in lists:
            for pattern in patterns:
                if not any(matches(pattern, name) for name in served):
                    yield f"{path}: `{pattern}` is no model of model_list"


def _about_litellm(entry: ListedModel, path: str, *, is_priced: bool) -> Iterator[str]:
    if entry.base_url:
        for problem in factories.unknown_provider(entry, path, provider_names()):
            yield f"{problem}, unless it knows this api_base"
    if not (is_priced or entry.base_url or entry.provider or "/" in entry.model or "*" in entry.model):
        yield f"{path}.litellm_params.model: names no provider: litellm wants `PROVIDER/NAME`"


def _about_http(deployment: Deployment, path: str, *, has_keys: bool, is_named: bool) -> Iterator[str]:
    parts = urlsplit(deployment.base_url)
    if not parts.path:
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/chat/completions"
        yield f"{path}.litellm_params.api_base: has no path, so requests go to {address}; most servers want /v1"
    if has_keys and not deployment.uses_operators_key:
        yield f"{path}.litellm_params.api_key: is missing; requests are refused, for the proxy's keys are not sent on"
    if deployment.profile.name == "none" and "claude" in deployment.model.lower():
        if parts.hostname == "api.anthropic.com":
            yield f"{path}: Anthropic's OpenAI-compatible endpoint does not cache; use `model: anthropic/...`"
        else:
            yield (
                f"{path}: set model_info.cache_profile: anthropic if this server takes cache_control; otherwise no "
                "markers are sent"
            )
    elif deployment.profile.name == "none" and not is_named and not deployment.server and "*" not in deployment.model:
        yield (
            f"{path}: nothing is known of this server's cache: prompts are put into order, without markers, and those "
            "of clients that mark go as they came; set model_info.cache_profile to what it follows, or to `none`"
        )


def _print(report: Mapping[str, Any]) -> None:
    table = plain_table(("name", "model", "transport", "profile", "host", "mode", "price"))
    for row in report["models"]:
        price = {True: "known", False: "unknown", None: "by name"}[row["price_known"]]
        shown = (row[key] or "by name" for key in ("name", "model", "transport", "profile"))
        table.add_row(*shown, row["host"], row["mode"], price)
    output = Output()
    for key in ("listen", "mode", "keys", "store"):
        output.print(f"{key}: {report[key]}", soft_wrap=True)
    output.print(table)
    for team in report["teams"]:
        values = {key: "; ".join(value) if isinstance(value, list) else value for key, value in team.items()}
        output.print("team: " + ", ".join(f"{key} {value}" for key, value in values.items() if value is not None))
    for key, heading in (("fallbacks", "fallbacks"), ("context_window_fallbacks", "context window fallbacks")):
        for name, others in report[key].items():
            output.print(f"{heading} of {name}: {', '.join(others)}", soft_wrap=True)
    if report["pre_call_checks"]:
        output.print("pre-call checks: yes")
    for section in ("prompts", "window"):
        for name, value in (report[section] or {}).items():
            output.print(f"{section}.{name}: {_word(value)}", soft_wrap=True)
    for key, heading in (("not_honoured", "not honoured"), ("not_used", "not used"), ("warnings", "warning")):
        for line in report[key]:
            output.print(f"{heading}: {line}", soft_wrap=True)

"""Turns what a configuration declares into what the proxy holds: the teams, keys and budgets as records of the
directory, and the rules of composed prompts and of context windows.
"""

import hashlib
import secrets
from collections.abc import Collection, Iterator

from proxy.app.settings import Budget, PromptLevel, Settings
from proxy.kit.messages import join, nearest, shown
from proxy.kit.model_patterns import matches
from proxy.prompts import Allowed, NamesOf, PromptLayer, PromptRules, PromptTerms, layered, only_itself
from proxy.prompts.window import WindowRules
from proxy.services.prompting import Rules
from proxy.storage.port import BudgetRecord, KeyRecord, Store, TeamRecord
from proxy.teams.authentication import DEFAULT_TEAM, Declared, Directory, Identity, declared_id, digest_of
from proxy.teams.validation import nanos


def declared(settings: Settings) -> Declared:
    """The records of a configuration."""
    ours = settings.stratiform
    return Declared(
        teams=[
            TeamRecord(
                name=team.name,
                mode=team.mode or "",
                models=tuple(team.models),
                requests_per_minute=team.requests_per_minute,
                tokens_per_minute=team.tokens_per_minute,
                forwards_keys=team.client_keys == "forward",
                paths=tuple(team.paths),
            )
            for team in ours.teams
        ],
        keys=[
            KeyRecord(
                id=declared_id(key.digest),
                digest=key.digest,
                team=team.name,
                user=key.user,
                models=tuple(key.models),
                mode=key.mode or "",
                requests_per_minute=key.requests_per_minute,
                tokens_per_minute=key.tokens_per_minute,
                expires_at=key.expires_at,
                note=key.note,
            )
            for team in ours.teams
            for key in team.keys
        ],
        budgets=[
            *(budget_record(budget, team.name) for team in ours.teams for budget in team.all_budgets),
            *([budget_record(settings.budget, DEFAULT_TEAM)] if settings.budget is not None else ()),
        ],
        master_digest=digest_of(settings.master_key.get_secret_value()) if settings.master_key is not None else "",
        forwards_unknown=ours.client_keys == "forward",
        bounds_all=settings.bounds_all,
    )


def identity(settings: Settings, known: Directory, store: Store) -> Identity:
    """The identification of senders of requests. State that outlives this process, or is shared, must find its owner
    again, so the scopes of clients are derived from the configuration. If there is no such state, they are derived from
    a secret of the process."""
    if not (store.is_durable or store.is_shared):
        return Identity(known, secrets.token_bytes(32))
    master = settings.master_key.get_secret_value() if settings.master_key is not None else ""
    return Identity(known, hashlib.sha256(f"stratiform scope\0{master}".encode()).digest())


def budget_record(budget: Budget, team: str) -> BudgetRecord:
    """A budget of the configuration. Its id keeps it apart from budgets of other teams, and from managed budgets."""
    hard, soft = budget.tokens, budget.soft_tokens
    if budget.unit == "usd":
        hard, soft = (None if usd is None else nanos(usd) for usd in (budget.usd, budget.soft_usd))
    return BudgetRecord(
        id=f"{team}/{budget.given_name}",
        team=team,
        scope=budget.scope,
        subject=budget.subject,
        unit=budget.unit,
        hard=hard,
        soft=soft,
        window=budget.window,
        timezone=budget.timezone,
        assumed_output_tokens=budget.assumed_output_tokens,
        webhook=budget.webhook.get_secret_value() if budget.webhook else "",
    )


def rules_of(settings: Settings, names_of: NamesOf = only_itself) -> Rules:
    """The rules that say which requests get which prompts and which capability profile. ``names_of`` gives the names of
    a model (``ModelTable.spellings``)."""
    prompts, window = settings.stratiform.prompts, settings.stratiform.window
    return Rules(
        PromptRules(
            base=layered(PromptTerms(), _layer(prompts)),
            models={name: _layer(level) for name, level in prompts.models.items()},
            teams={name: _layer(level) for name, level in prompts.teams.items()},
            keys={name: _layer(level) for name, level in prompts.keys.items()},
            names_of=names_of,
        ),
        WindowRules(
            profiles=settings.profiles,
            profile=window.profile,
            models=window.models,
            teams=window.teams,
            keys=window.keys,
            allowed=tuple(window.allowed),
            names_of=names_of,
        ),
    )


def levels_of(settings: Settings) -> Iterator[tuple[str, PromptLevel]]:
    """Every level of the section, with its path."""
    given = settings.stratiform.prompts
    yield "stratiform.prompts", given
    for section, levels in (("models", given.models), ("teams", given.teams), ("keys", given.keys)):
        yield from ((join(f"stratiform.prompts.{section}", name), level) for name, level in levels.items())


def named_prompts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every place of the configuration that names prompts, with the id or the pattern that it names."""
    for path, level in levels_of(settings):
        yield from ((f"{path}.use[{index}]", pattern) for index, pattern in enumerate(level.use or ()))
        if level.persona:
            yield f"{path}.persona", f"persona:{level.persona}"
    for name, profile in settings.profiles.items():
        if profile.template:
            yield f"stratiform.window.profiles.{name}.template", profile.template


def missing_prompts(settings: Settings, ids: Collection[str]) -> Iterator[str]:
    """A warning for every place of the configuration that names a prompt which is not among ``ids``. Nothing is
    composed for it."""
    for path, pattern in named_prompts(settings):
        if not any(matches(pattern, id_) for id_ in ids):
            close = nearest(pattern, ids) if "*" not in pattern else None
            yield f"{path}: there is no prompt `{shown(pattern)}`" + (f"; did you mean `{close}`?" if close else "")


def _layer(level: PromptLevel) -> PromptLayer:
    given = level.allowed
    return PromptLayer(
        use=None if level.use is None else tuple(level.use),
        persona=level.persona,
        profile=level.profile,
        override=level.override,
        tools=level.tools,
        plugins=level.plugins,
        agents=level.agents,
        context=level.context,  # type: ignore[arg-type]  # checked: values that JSON has
        strict=level.strict,
        on_failure=level.on_failure,
        allowed=None
        if given is None
        else Allowed(
            override=given.override,
            extras=given.extras,
            flags=given.flags,
            personas=tuple(given.personas),
            profiles=tuple(given.profiles),
            context=frozenset(given.context),
        ),
    )

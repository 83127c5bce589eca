"""Turns the teams, keys and budgets of the configuration into the records that the directory holds."""

import hashlib
import secrets

from proxy.access.authentication import DEFAULT_TEAM, Declared, Directory, Identity, declared_id, digest_of
from proxy.access.validation import nanos
from proxy.settings import Budget, Key, Settings, Team, key_digest
from proxy.storage.port import BudgetRecord, KeyRecord, Store, TeamRecord


def declared(settings: Settings) -> Declared:
    """The records of a configuration."""
    ours = settings.stratiform
    return Declared(
        teams=[_team(team) for team in ours.teams],
        keys=[_key(key, team) for team in ours.teams for key in team.keys],
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


def _team(team: Team) -> TeamRecord:
    return TeamRecord(
        name=team.name,
        mode=team.mode or "",
        models=tuple(team.models),
        requests_per_minute=team.requests_per_minute,
        tokens_per_minute=team.tokens_per_minute,
        forwards_keys=team.client_keys == "forward",
        paths=tuple(team.paths),
    )


def _key(key: Key, team: Team) -> KeyRecord:
    digest = key_digest(key)
    return KeyRecord(
        id=declared_id(digest),
        digest=digest,
        team=team.name,
        user=key.user,
        models=tuple(key.models),
        mode=key.mode or "",
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        expires_at=key.expires_at,
        note=key.note,
    )

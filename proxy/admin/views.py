"""Records as the admin API shows them: JSON objects with the names of the configuration. They hold no secret and no
digest."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.access.directory import Snapshot
from proxy.access.validation import usd
from proxy.admin.forms import in_unit
from proxy.storage.port import BudgetRecord, KeyRecord, SpendRow, TeamRecord

View = dict[str, Any]


def team_view(team: TeamRecord, snapshot: Snapshot) -> View:
    """A team."""
    return {
        "object": "team",
        "name": team.name,
        "mode": team.mode or None,
        "models": list(team.models),
        "requests_per_minute": team.requests_per_minute,
        "tokens_per_minute": team.tokens_per_minute,
        "client_keys": "forward" if team.forwards_keys else "refuse",
        "paths": list(team.paths),
        "keys": len(snapshot.keys_of(team.name)),
        "budgets": len(snapshot.budgets_of(team.name)),
        "created_at": team.created_at or None,
        "declared": team.name in snapshot.declared,
    }


def key_view(key: KeyRecord, snapshot: Snapshot, now: float) -> View:
    """A key."""
    return {
        "object": "key",
        "id": key.id,
        "team": key.team,
        "user": key.user or None,
        "models": list(key.models),
        "mode": key.mode or None,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "status": _status(key, now),
        "created_at": key.created_at or None,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "note": key.note or None,
        "declared": key.id in snapshot.declared,
    }


def budget_view(budget: BudgetRecord, snapshot: Snapshot, state: Mapping[str, Any] | None = None) -> View:
    """A budget. ``state`` says what has been spent, where the budget has one counter."""
    unit = budget.unit
    return {
        "object": "budget",
        "id": budget.id,
        "team": budget.team,
        "scope": budget.scope,
        "subject": budget.subject,
        unit: in_unit(unit, budget.hard),
        f"soft_{unit}": in_unit(unit, budget.soft),
        "window": budget.window,
        "timezone": budget.timezone,
        "assumed_output_tokens": budget.assumed_output_tokens,
        # The path of a webhook is often its password.
        "webhook": urlsplit(budget.webhook).hostname if budget.webhook else None,
        "declared": budget.id in snapshot.declared,
        **(state or {}),
    }


def spend_view(row: SpendRow) -> View:
    """A line of a report."""
    return {
        **row.group,
        "requests": row.requests,
        "read_tokens": row.read_tokens,
        "write_tokens": row.write_tokens,
        "uncached_tokens": row.plain_tokens,
        "output_tokens": row.output_tokens,
        "cost_usd": usd(row.cost),
        "saved_usd": usd(row.saved),
        "estimated_requests": row.estimated,
    }


def _status(key: KeyRecord, now: float) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and now >= key.expires_at else "active"

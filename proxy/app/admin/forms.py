"""The request bodies and the parameters of the admin API.

The bodies are typed forms. Their fields have the names of the configuration, except ``expires_at``, which is
``expires`` there. A field that is left out keeps its value (or gets its default); null clears it. Each form becomes
changes of a record, after its values were checked.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from proxy.kit.errors import InvalidRequest
from proxy.models.charges import Unit
from proxy.storage import BudgetRecord
from proxy.teams import validation

Query = Mapping[str, str]
View = dict[str, Any]
"""A record as it is shown: a JSON object with the names of the configuration. It holds no secret and no digest."""
FormT = TypeVar("FormT", bound="Form")
T = TypeVar("T")


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every field may be left out. Unknown fields are an error."""


class _PermissionsForm(Form, frozen=True):
    """The permissions of a team or a key."""

    mode: str | None | UnsetType = UNSET
    models: list[str] | None | UnsetType = UNSET
    requests_per_minute: int | None | UnsetType = UNSET
    tokens_per_minute: int | None | UnsetType = UNSET


class TeamForm(_PermissionsForm, frozen=True):
    """A team."""

    name: str | UnsetType = UNSET
    client_keys: Literal["refuse", "forward"] | None | UnsetType = UNSET
    paths: list[str] | None | UnsetType = UNSET


class KeyForm(_PermissionsForm, frozen=True):
    """A key. ``sha256`` is the digest of a key that exists already; without it, a new key is made."""

    team: str | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    user: str | None | UnsetType = UNSET
    expires_at: float | str | None | UnsetType = UNSET
    note: str | None | UnsetType = UNSET


class BudgetForm(Form, frozen=True):
    """A budget. ``expected`` is the limit that the caller of a change believes to be in force (null: no limit). If the
    limit is different by now, nothing changes."""

    team: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    scope: Literal["team", "key", "user", "model"] | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    usd: float | None | UnsetType = UNSET
    soft_usd: float | None | UnsetType = UNSET
    tokens: int | None | UnsetType = UNSET
    soft_tokens: int | None | UnsetType = UNSET
    window: str | UnsetType = UNSET
    timezone: str | None | UnsetType = UNSET
    assumed_output_tokens: int | None | UnsetType = UNSET
    webhook: str | None | UnsetType = UNSET
    expected: float | None | UnsetType = UNSET


class SpentForm(Form, frozen=True):
    """A correction of the spent amount of a budget. ``subject`` names the key, user or model if each of them has its
    own counter."""

    spent: float | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    dry_run: bool = False


def read(body: Any, form: type[FormT], *, is_strict: bool = True) -> FormT:
    """A body as a form. Numbers may be texts unless ``is_strict``. Raises InvalidRequest."""
    try:
        return msgspec.convert(body, form, strict=is_strict)
    except msgspec.ValidationError as error:
        known = f"; known are {', '.join(form.__struct_fields__)}" if "unknown field" in str(error) else ""
        raise InvalidRequest(f"The body is not right: {error}{known}.") from error


def check_query(query: Mapping[str, str], known: Iterable[str]) -> None:
    """Raises InvalidRequest if a parameter is not known."""
    unknown = sorted(set(query) - set(known))
    if unknown:
        raise InvalidRequest(f"There is no parameter '{unknown[0][:64]}'.", param=unknown[0][:64])


def checked(what: str, check: Callable[[T], Any], value: T) -> Any:
    """The value in the form in which it is stored. Raises InvalidRequest with the field's name."""
    try:
        return check(value)
    except ValueError as error:
        raise InvalidRequest(f"'{what}' {error}.", param=what) from None


def limit_of(query: Mapping[str, str], default: str, most: int) -> int:
    """The parameter ``limit`` of a query, which is a whole number of at least 1. Raises InvalidRequest."""
    text = query.get("limit", default)
    return int(checked("limit", _between(1, most), int(text[:9]) if text.isdecimal() else 0))


def _between(least: int, most: int) -> Callable[[int], int]:
    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"must be between {least} and {most}")
        return value

    return check


_per_minute = _between(1, 10**12)
_tokens = _between(0, 10**15)
# How fields of a form become fields of a record: the check of each value, and the value of a cleared field.
_Fields = Mapping[str, tuple[Callable[[Any], Any], Any]]
_COMMON: _Fields = {
    "mode": (validation.mode, ""),
    "models": (validation.patterns, ()),
    "requests_per_minute": (_per_minute, None),
    "tokens_per_minute": (_per_minute, None),
}
_TEAM: _Fields = {**_COMMON, "paths": (validation.paths, ())}
_KEY: _Fields = {**_COMMON, "user": (validation.text, ""), "note": (validation.text, "")}
_BUDGET: _Fields = {
    "timezone": (validation.timezone, "UTC"),
    "assumed_output_tokens": (_between(1, 10**9), None),
    "webhook": (validation.url, ""),
}

_AMOUNTS: Mapping[str, Callable[[Any], int]] = {
    "usd": validation.nanos,
    "soft_usd": validation.nanos,
    "tokens": _tokens,
    "soft_tokens": _tokens,
}


def team_changes(form: TeamForm) -> Mapping[str, Any]:
    """The changes that a form makes to a team, by the fields of its record."""
    changes = _changes(form, _TEAM)
    if form.client_keys is not UNSET:
        changes["forwards_keys"] = form.client_keys == "forward"
    return changes


def key_changes(form: KeyForm, now: float) -> Mapping[str, Any]:
    """The changes that a form makes to a key, by the fields of its record."""
    return _changes(form, {**_KEY, "expires_at": (lambda value: validation.expiry(str(value), now), None)})


def budget_changes(form: BudgetForm, before: BudgetRecord | None = None) -> Mapping[str, Any]:
    """The changes that a form makes to a budget, by the fields of its record. The unit never changes, because counters
    use it."""
    changes = _changes(form, _BUDGET)
    amounts: dict[str, Any] = dict.fromkeys(_AMOUNTS)
    if before is not None:
        unit = before.unit
        amounts |= {unit: in_unit(unit, before.hard), f"soft_{unit}": in_unit(unit, before.soft)}
    amounts |= {name: getattr(form, name) for name in _AMOUNTS if getattr(form, name) is not UNSET}
    counted = {name: checked(name, _AMOUNTS[name], value) for name, value in amounts.items() if value is not None}
    try:
        validation.check_amounts(**amounts)
    except ValueError as error:
        raise InvalidRequest(f"A budget {error}.") from None
    unit = "usd" if counted.keys() & {"usd", "soft_usd"} else "tokens"
    if before is not None and before.unit != unit:
        raise InvalidRequest("The unit of a budget cannot change: delete the budget, and make another.")
    return {**changes, "unit": unit, "hard": counted.get(unit), "soft": counted.get(f"soft_{unit}")}


def spent_amount(budget: BudgetRecord, form: SpentForm) -> int:
    """The spent amount that a form sets, in the unit of the budget's counter."""
    if form.spent is UNSET:
        raise InvalidRequest(f"'spent' is missing: what the budget has spent, in {budget.unit}.", param="spent")
    if budget.unit == "usd":
        return int(checked("spent", validation.nanos, form.spent))
    if not form.spent.is_integer():
        raise InvalidRequest("'spent' must be a whole number: this budget counts tokens.", param="spent")
    return int(checked("spent", _tokens, int(form.spent)))


def in_unit(unit: Unit, amount: int | None) -> float | int | None:
    """An amount of a counter in the unit that people read: USD for nano-dollars; tokens stay as they are."""
    return validation.usd(amount) if amount is not None and unit == "usd" else amount


def _changes(form: Form, fields: _Fields) -> dict[str, Any]:
    given = {name: getattr(form, name) for name in fields if getattr(form, name) is not UNSET}
    return {
        name: fields[name][1] if value is None else checked(name, fields[name][0], value)
        for name, value in given.items()
    }

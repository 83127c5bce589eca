"""The checks of values for teams, keys and budgets, which the configuration and the admin API share, and the admin
API's forms of them.

Each check takes a value as it was written and returns the value as it is stored. It raises ValueError with a text that
can follow the value's name: "must be ...". No text repeats the value.

A form is the body of a request of the admin API. Its fields have the names of the configuration, except ``expires_at``,
which is ``expires`` there. A field that is left out keeps its value (or gets its default); null clears it. Each form
becomes changes of a record, after its values were checked.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import Any, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET, UnsetType

from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Mode
from proxy.models.charges import NANOS_PER_USD, Unit
from proxy.protocol.wire.json_body import CONTROL, MAX_LINE_CHARS
from proxy.storage import BudgetRecord

FormT = TypeVar("FormT", bound="AdminForm")
T = TypeVar("T")

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
CALENDAR_WINDOWS = ("total", "hour", "day", "week", "month")

_NAME = re.compile(NAME_PATTERN)
_PATH = re.compile(r"[A-Za-z0-9_.-]{1,64}(?:/[A-Za-z0-9_.-]{1,64}){0,7}")
_ROLLING = re.compile(r"rolling:([1-9][0-9]{0,8})([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LENGTH = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_NO_TIME = "must be unix seconds, a date or time as in 2027-01-31 or 2027-01-31T18:00:00Z, or a length as in 30d, 12h"
_LATEST_S = 253402214400.0  # the last day of the year 9999, on which some time zones have no date
_SHORTEST_S, _LONGEST_S = 60, 366 * 86400
_MOST_ENTRIES = 1000
# A counter stays below 2^53 (proxy/storage/__init__.py).
MOST_USD = 9_000_000
_HOST = re.compile(r"[^\s/:@?#*\[\]]{1,253}")


def name(text: str) -> str:
    """The name of a team or a budget. It is used in metric labels, URLs and names of counters."""
    if not _NAME.fullmatch(text):
        raise ValueError("must be 1 to 64 letters, digits and _ . -, and begin with a letter or a digit")
    return text


def text(value: str) -> str:
    """A text such as a user or a note: one line, not too long."""
    if len(value) > MAX_LINE_CHARS or CONTROL.search(value):
        raise ValueError(f"must be one line of at most {MAX_LINE_CHARS} characters")
    return value


def patterns(entries: Sequence[str]) -> tuple[str, ...]:
    """Names, such as those of the model list; ``*`` stands for any text."""
    if not all(0 < len(entry) <= MAX_LINE_CHARS for entry in entries):
        raise ValueError(f"must be names of 1 to {MAX_LINE_CHARS} characters, with * for any text")
    return _few([text(entry) for entry in entries])


def paths(entries: Sequence[str]) -> tuple[str, ...]:
    """Paths after ``/v1``, each with everything below it; ``*`` for every path."""
    kept = _few([entry.strip("/") for entry in entries])
    if any(entry != "*" and not _PATH.fullmatch(entry) for entry in kept):
        raise ValueError("must be paths behind /v1, such as `fine_tuning` or `realtime/client_secrets`, or `*`")
    return kept


def _few(entries: Sequence[str]) -> tuple[str, ...]:
    """The entries of a list, each once."""
    if len(entries) > _MOST_ENTRIES:
        raise ValueError(f"may have at most {_MOST_ENTRIES} entries")
    return tuple(dict.fromkeys(entries))


def mode(value: str) -> str:
    """The name of a mode. Empty: no limit is set here."""
    if value and value not in (known.name.lower() for known in Mode):
        raise ValueError("must be passthrough, observe, mark or tier")
    return value


def window(value: str) -> str:
    """A budget's window: a calendar word, or ``rolling:`` and a length (``30d``, ``12h``, ``90m``, seconds). The length
    is stored in seconds."""
    if value in CALENDAR_WINDOWS:
        return value
    if (match := _ROLLING.fullmatch(value)) is None:
        raise ValueError(
            "must be total, hour, day, week, month, or rolling: and a length as in rolling:30d, rolling:12h"
        )
    length_s = int(match[1]) * _SECONDS[match[2]]
    if not _SHORTEST_S <= length_s <= _LONGEST_S:
        raise ValueError("must roll over a minute at least, and 366 days at most")
    return f"rolling:{length_s}"


def timezone(value: str) -> str:
    """A time zone of the IANA database."""
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone as in Europe/Berlin, or UTC") from None
    return value


def nanos(amount_usd: float) -> int:
    """USD as nano-dollars, computed from the decimal digits as they were written."""
    if not 0 <= amount_usd <= MOST_USD:
        raise ValueError(f"must be between 0 and {MOST_USD}")
    return int((Decimal(repr(float(amount_usd))) * NANOS_PER_USD).to_integral_value())


def usd(amount: int) -> float:
    """Nano-dollars as USD."""
    return float(Decimal(amount) / NANOS_PER_USD)


def check_amounts(usd: float | None, soft_usd: float | None, tokens: int | None, soft_tokens: int | None) -> None:
    """Check that a budget limits something, in one unit, and warns before it refuses."""
    if all(amount is None for amount in (usd, soft_usd, tokens, soft_tokens)):
        raise ValueError("must have usd, soft_usd, tokens or soft_tokens")
    if any(amount is not None for amount in (usd, soft_usd)) and any(
        amount is not None for amount in (tokens, soft_tokens)
    ):
        raise ValueError("must be in USD or in tokens, not in both: make two budgets of it")
    for hard, soft in ((usd, soft_usd), (tokens, soft_tokens)):
        if hard is not None and soft is not None and soft > hard:
            raise ValueError("must have a soft limit that is no higher than the hard one")


def budget_name(given: str | None, scope: str, window: str, unit: str) -> str:
    """The given name of a budget, or a name from scope, window and unit: ``total``, ``user-month``, ``day-tokens``."""
    parts = ["" if scope == "team" else scope, window.replace(":", "-"), "" if unit == "usd" else unit]
    return given or "-".join(part for part in parts if part)


def moment(value: str, now: float, ahead: bool) -> float:
    """A time as unix seconds. It is written as unix seconds, as a date or time of ISO 8601 (UTC if it has no zone), or
    as a length: ``30d`` means in 30 days if ``ahead`` is set, otherwise 30 days ago, and never before 1970."""
    if (match := _LENGTH.fullmatch(value)) is not None:
        length_s = int(match[1]) * _SECONDS[match[2]]
        at = now + length_s if ahead else max(0.0, now - length_s)
    else:
        try:
            at = float(value)
        except ValueError:
            at = _iso(value)
    if not 0 <= at < _LATEST_S:
        raise ValueError(_NO_TIME)
    return at


def expiry(value: str, now: float) -> float:
    """The time at which a key expires, as unix seconds. It must be in the future."""
    at = moment(value, now, ahead=True)
    if at <= now:
        raise ValueError("must be a time in the future; to end a key at once, revoke it")
    return at


def date_of(at: float) -> datetime:
    """A time in UTC. Earlier versions took expiries beyond the calendar: these are its last day."""
    return datetime.fromtimestamp(min(at, _LATEST_S), UTC)


def _iso(value: str) -> float:
    try:
        read = datetime.fromisoformat(value)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(_NO_TIME) from None


def url(value: str) -> str:
    """The URL of a webhook: http or https, without a user name."""
    parts = parts_of_url(value, "http", "https")
    if parts is None or parts.username is not None or CONTROL.search(value) or " " in value:
        raise ValueError("must be an http:// or https:// URL without a user name")
    return value


def parts_of_url(text: str, *schemes: str) -> SplitResult | None:
    """The parts of a URL that has one of these schemes and names a host; None for any other text."""
    try:
        parts = urlsplit(text)
        return parts if parts.scheme in schemes and parts.hostname and parts.port != 0 else None
    except ValueError:  # a bracket that is not closed, a port that is no number, ...
        return None


def host(value: str) -> str:
    """The name of a host, or its address, as it stands in front of the port of a URL."""
    with suppress(ValueError):
        return str(ip_address(value))
    if not _HOST.fullmatch(value):
        raise ValueError("must be names of hosts such as proxy.example.com, without a scheme, a port or a path")
    return value


# In LiteLLM, these windows also follow the calendar (litellm_core_utils/duration_parser.py): 7 days begin on Monday, 30
# days on the first of a month. A rolling window is at least as strict as any window of the same length that begins at
# another time.
_CALENDAR = {
    "1h": "hour", "hourly": "hour", "1d": "day", "24h": "day", "daily": "day", "7d": "week", "1w": "week",
    "weekly": "week", "30d": "month", "1mo": "month", "monthly": "month",
}  # fmt: skip
_DURATION = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d|w|mo)")
_IN_DAYS = {"w": 7, "mo": 31}


def window_of(duration: str | None) -> str:
    """The window of a budget that LiteLLM resets after this time; ``total`` if LiteLLM never resets it. Raises
    ValueError."""
    if not duration:
        return "total"
    plain = duration.strip().lower()
    if plain in _CALENDAR:
        return _CALENDAR[plain]
    if (match := _DURATION.fullmatch(plain)) is None:
        raise ValueError("must be a length as in 30s, 15m, 12h, 30d, 2w or 1mo")
    number, unit = int(match[1]), match[2]
    return f"rolling:{number * _IN_DAYS[unit]}d" if unit in _IN_DAYS else f"rolling:{number}{unit}"


class AdminForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every field may be left out. Unknown fields are an error."""


class _PermissionsForm(AdminForm, frozen=True):
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


class BudgetForm(AdminForm, frozen=True):
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


class SpentForm(AdminForm, frozen=True):
    """A correction of the spent amount of a budget. ``subject`` names the key, user or model if each of them has its
    own counter."""

    spent: float | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    dry_run: bool = False


def read_form(body: Any, form: type[FormT], *, is_strict: bool = True) -> FormT:
    """A body as a form. Numbers may be texts unless ``is_strict``. Raises InvalidRequest."""
    try:
        return msgspec.convert(body, form, strict=is_strict)
    except msgspec.ValidationError as error:
        known = f"; known are {', '.join(form.__struct_fields__)}" if "unknown field" in str(error) else ""
        raise InvalidRequest(f"The body is not right: {error}{known}.") from error


def checked(what: str, check: Callable[[T], Any], value: T) -> Any:
    """The value in the form in which it is stored. Raises InvalidRequest with the field's name."""
    try:
        return check(value)
    except ValueError as error:
        raise InvalidRequest(f"'{what}' {error}.", param=what) from None


def between(least: int, most: int) -> Callable[[int], int]:
    """The check that a number is not below ``least`` and not above ``most``."""

    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"must be between {least} and {most}")
        return value

    return check


_per_minute = between(1, 10**12)
_tokens = between(0, 10**15)
# How fields of a form become fields of a record: the check of each value, and the value of a cleared field.
_Fields = Mapping[str, tuple[Callable[[Any], Any], Any]]
_COMMON: _Fields = {
    "mode": (mode, ""),
    "models": (patterns, ()),
    "requests_per_minute": (_per_minute, None),
    "tokens_per_minute": (_per_minute, None),
}
_TEAM: _Fields = {**_COMMON, "paths": (paths, ())}
_KEY: _Fields = {**_COMMON, "user": (text, ""), "note": (text, "")}
_BUDGET: _Fields = {
    "timezone": (timezone, "UTC"),
    "assumed_output_tokens": (between(1, 10**9), None),
    "webhook": (url, ""),
}

_AMOUNTS: Mapping[str, Callable[[Any], int]] = {
    "usd": nanos,
    "soft_usd": nanos,
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
    return _changes(form, {**_KEY, "expires_at": (lambda value: expiry(str(value), now), None)})


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
        check_amounts(**amounts)
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
        return int(checked("spent", nanos, form.spent))
    if not form.spent.is_integer():
        raise InvalidRequest("'spent' must be a whole number: this budget counts tokens.", param="spent")
    return int(checked("spent", _tokens, int(form.spent)))


def in_unit(unit: Unit, amount: int | None) -> float | int | None:
    """An amount of a counter in the unit that people read: USD for nano-dollars; tokens stay as they are."""
    return usd(amount) if amount is not None and unit == "usd" else amount


def _changes(form: AdminForm, fields: _Fields) -> dict[str, Any]:
    given = {name: getattr(form, name) for name in fields if getattr(form, name) is not UNSET}
    return {
        name: fields[name][1] if value is None else checked(name, fields[name][0], value)
        for name, value in given.items()
    }

"""Finds the keys of a LiteLLM configuration that Stratiform does not use, and the effect on clients.

A configuration that relies on a restriction which does not hold here refuses to start. Keys that would change requests
or answers are reported at the start. Keys that change nothing are listed by ``stratiform check-config``.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from proxy.core.value import dataclass, replace
from proxy.settings.environment import join
from proxy.settings.litellm_keys import (
    CHANGES,
    CHANGES_SUFFIXES,
    CHANGING_CALLBACKS,
    HARMLESS,
    HARMLESS_PREFIXES,
    HARMLESS_SUFFIXES,
    LOGGING_CALLBACKS,
    RESTRICTS,
)
from proxy.settings.litellm_schema import FallbackList, ModelEntry, RetriesByError
from proxy.settings.messages import nearest
from proxy.settings.routing import ENFORCED_RATES, fallbacks_in
from proxy.settings.schema import ConfigFile, Stratiform

IGNORE_FLAG = "--ignore-unsupported"
_OPEN_SECTIONS = ("", "general_settings", "litellm_settings", "router_settings")
"""Sections that have no names of a provider's or an operator's own."""
_HONOURED = {
    "master_key": "general_settings.master_key",
    "allowed_ips": "general_settings.allowed_ips",
    "max_budget": "litellm_settings.max_budget",
    "budget_duration": "litellm_settings.budget_duration",
    "teams": "stratiform.teams",
}
"""The keys that restrict clients here, too, with their paths."""
_NO_GUARDRAIL = "no guardrail or handler of LiteLLM's runs here: keep it in front of this proxy, or behind it"
_NEVER_REPEATED = frozenset(
    {
        "BadRequestErrorRetries",
        "AuthenticationErrorRetries",
        "ContentPolicyViolationErrorRetries",
        "NotFoundErrorRetries",
    }
)
_BUDGET_CHECK = "router_budget_limiting"
_RATES = ("rpm", "tpm")


class Effect(StrEnum):
    """The effect of a key that is not used."""

    HARMLESS = "harmless"
    """Clients may do neither more nor less, and nothing else is sent."""
    UNKNOWN = "unknown"
    """The key is not known as a key of LiteLLM."""
    CHANGES = "changes"
    """Something else is sent or served than with LiteLLM."""
    RESTRICTS = "restricts"
    """LiteLLM would refuse something that is accepted here."""


_CONSEQUENCES = (Effect.RESTRICTS, Effect.CHANGES)
_TOLD = {
    Effect.HARMLESS: "is not used by Stratiform",
    Effect.UNKNOWN: "is not known, and not used by Stratiform",
    Effect.CHANGES: "is not honoured by Stratiform",
    Effect.RESTRICTS: "restricts what clients may do, and Stratiform does not honour it",
}


@dataclass(frozen=True, slots=True)
class Unused:
    """A key with its path, and the effect of not using it."""

    path: str
    effect: Effect
    note: str = ""

    def __str__(self) -> str:
        sign = ":" if self.effect in _CONSEQUENCES else ";"
        return f"{self.path}: {_TOLD[self.effect]}" + (f"{sign} {self.note}" if self.note else "")


def effect_of(section: str, key: str) -> tuple[Effect, str]:
    """The effect of an unused key of a section (``""``: the file itself), and what to do."""
    for effect, table in ((Effect.RESTRICTS, RESTRICTS), (Effect.CHANGES, CHANGES)):
        if (note := table.get(section, {}).get(key)) is not None:
            return effect, note
    if key in HARMLESS[section]:
        return Effect.HARMLESS, ""
    is_open = section in _OPEN_SECTIONS
    restricting = {name: join(section, name) for name in RESTRICTS[section]} | _HONOURED
    # This comes before the ends that many harmless names share: if the name means a key that restricts clients, in this
    # section or in another one, they could do more than the operator thinks.
    if is_open and (close := nearest(key, restricting)):
        return Effect.RESTRICTS, f"did you mean `{restricting[close]}`?"
    if key.startswith(HARMLESS_PREFIXES[section]) or key.endswith(HARMLESS_SUFFIXES.get(section, ())):
        return Effect.HARMLESS, ""
    for suffix, note in CHANGES_SUFFIXES.get(section, {}).items():
        if key.endswith(suffix):
            return Effect.CHANGES, note
    return Effect.UNKNOWN, _meant(section, key) if is_open else ""


def _meant(section: str, key: str) -> str:
    """The key that is used here and that an unknown name probably means."""
    owner = ConfigFile.model_fields[section].annotation if section else Stratiform
    close = nearest(key, getattr(owner, "model_fields", {}))
    return f"did you mean `{join(section or 'stratiform', close)}`?" if close else ""


def unused(file: ConfigFile, *, names_keys: bool) -> Iterator[Unused]:
    """The keys of the file that are not used. ``names_keys``: the configuration names keys of clients, so other keys
    are refused."""
    for key, value in (file.model_extra or {}).items():
        yield _found("", key, value, key)
    for section in ("general_settings", "litellm_settings", "router_settings"):
        for key, value in (getattr(file, section).model_extra or {}).items():
            yield from _special(section, key, value, names_keys=names_keys)
    if file.litellm_settings.max_budget and file.stratiform.teams:
        # It would hold for all teams together, but here each team's money is counted separately.
        yield Unused("litellm_settings.max_budget", Effect.RESTRICTS, "set stratiform.teams[].budgets")
    checks = file.router_settings.optional_pre_call_checks or []
    yield from _of_checks(checks, has_teams=bool(file.stratiform.teams))
    yield from _of_retries(file.router_settings.retry_policy, "retry_policy")
    for name, given in (file.router_settings.model_group_retry_policy or {}).items():
        yield from _of_retries(given, join("model_group_retry_policy", name))
    for section in ("router_settings", "litellm_settings"):
        for key in ("fallbacks", "context_window_fallbacks"):
            yield from _of_fallbacks(f"{section}.{key}", getattr(getattr(file, section), key))
    for index, entry in enumerate(file.model_list):
        yield from _of_entry(entry, f"model_list[{index}]", enforces_rates=ENFORCED_RATES in checks)


def unused_on_http(entry: ModelEntry, path: str) -> Iterator[Unused]:
    """Parameters of a deployment that only the litellm transport would apply."""
    for key, value in (entry.litellm_params.model_extra or {}).items():
        is_price = key.endswith(("_cost_per_token", "_token_cost")) or "_cost_" in key or "_cost_per_" in key
        is_told = effect_of("litellm_params", key)[1] or nearest(key, type(entry.litellm_params).model_fields)
        if _is_unset(value) or is_price or key == "drop_params" or is_told:
            continue
        if key not in HARMLESS["litellm_params"]:
            note = "is not sent on the http transport; clients must send it, or use `model_info.transport: litellm`"
            yield Unused(join(f"{path}.litellm_params", key), Effect.CHANGES, note)


def _of_checks(checks: Sequence[str], *, has_teams: bool) -> Iterator[Unused]:
    path = "router_settings.optional_pre_call_checks"
    if ENFORCED_RATES in checks and has_teams:
        # The limits would hold for all teams together, but here each team's requests are counted separately.
        yield Unused(path, Effect.RESTRICTS, "set requests_per_minute and tokens_per_minute in stratiform.teams")
    elif _BUDGET_CHECK in checks:
        yield Unused(path, Effect.RESTRICTS, "set budgets with `scope: model` in stratiform.teams")
    elif others := [check for check in checks if check != ENFORCED_RATES]:
        yield _found("router_settings", "optional_pre_call_checks", others, path)


def _of_retries(given: RetriesByError | None, key_path: str) -> Iterator[Unused]:
    for key, value in ((given.model_extra or {}) if given is not None else {}).items():
        path = join(f"router_settings.{key_path}", key)
        if key not in _NEVER_REPEATED:
            yield Unused(path, Effect.UNKNOWN)
        elif value:
            yield Unused(path, Effect.CHANGES, "such a refusal is the answer: it is not repeated")


def _of_fallbacks(path: str, given: FallbackList | None) -> Iterator[Unused]:
    """The keys of a fallback's long form that would change the request."""
    note = "the request goes to the fallback as it is: use a model of its own"
    for _, targets in fallbacks_in(path, given):
        for at, target in targets.items():
            for key in (target.model_extra or {}) if not isinstance(target, str) else ():
                yield Unused(join(at, key), Effect.CHANGES, note)


def _of_entry(entry: ModelEntry, path: str, *, enforces_rates: bool) -> Iterator[Unused]:
    for key in entry.model_extra or {}:
        yield Unused(join(path, key), Effect.UNKNOWN)
    for name, part in (("litellm_params", entry.litellm_params), ("model_info", entry.model_info)):
        rates = {} if enforces_rates else {rate: getattr(part, rate) for rate in _RATES}
        for key, value in {**rates, **(part.model_extra or {})}.items():
            found = _found(name, key, value, f"{path}.{name}.{key}")
            if found.effect in _CONSEQUENCES:
                yield found
            elif found.effect is Effect.UNKNOWN and key != "model" and (close := nearest(key, type(part).model_fields)):
                yield replace(found, note=f"did you mean `{close}`?")


def _special(section: str, key: str, value: object, *, names_keys: bool) -> Iterator[Unused]:
    path = f"{section}.{key}"
    match section, key:
        case "litellm_settings", "callbacks":
            yield from _callbacks(value, path)
        case "general_settings", "database_url" if names_keys:
            # A client with a key of that database is refused, so nobody may do more than before.
            yield Unused(path, Effect.CHANGES, "keys live in this proxy's own store, and not in that database")
        case "litellm_settings", "default_team_settings" if _only_logs(value):
            yield Unused(path, Effect.HARMLESS)
        case _:
            yield _found(section, key, value, path)


def _only_logs(teams: object) -> bool:
    """Whether LiteLLM's settings for each team id only say where the team's requests are logged."""
    keys = [key for team in teams if isinstance(team, Mapping) for key in team] if isinstance(teams, list) else [""]
    loggers = tuple(f"{name}_" for name in LOGGING_CALLBACKS)
    return all(key == "team_id" or key.endswith("_callback") or key.startswith(loggers) for key in map(str, keys))


def _callbacks(value: object, path: str) -> Iterator[Unused]:
    """Each callback by its name: loggers, hooks that edit requests, and all others, which may refuse them."""
    names = _listed(value)
    for index, name in enumerate(names):
        if name in CHANGING_CALLBACKS:
            yield Unused(join(path, index), Effect.CHANGES, f"`{name}` does not run here")
        elif name not in LOGGING_CALLBACKS:
            yield Unused(join(path, index), Effect.RESTRICTS, _NO_GUARDRAIL)
    if LOGGING_CALLBACKS.issuperset(names):
        yield Unused(path, Effect.HARMLESS)


def _found(section: str, key: str, value: object, path: str) -> Unused:
    effect, note = effect_of(section, key)
    if effect in _CONSEQUENCES and _is_unset(value):
        return Unused(path, Effect.HARMLESS)
    return Unused(path, effect, note)


def _listed(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [str(key) for key in value]
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _is_unset(value: object) -> bool:
    """Whether a value is empty or switched off. A limit of 0 is a limit."""
    return value is None or value is False or value in ("", [], {})

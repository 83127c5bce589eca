"""Retries, breakers and fallbacks, from the keys of LiteLLM's router.

LiteLLM reads most of them from ``router_settings`` and from ``litellm_settings``; ``router_settings`` wins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from proxy.core.resilience import BreakerPolicy, Kind, RetryPolicy
from proxy.core.value import dataclass, field
from proxy.settings.litellm_schema import (
    FallbackList,
    FallbackTarget,
    LiteLLMSettings,
    ModelEntry,
    RetriesByError,
    RouterSettings,
)
from proxy.settings.messages import join

# The defaults are LiteLLM's own: openai.DEFAULT_MAX_RETRIES, DEFAULT_ALLOWED_FAILS, DEFAULT_COOLDOWN_TIME_SECONDS.
_RETRIES = RetryPolicy()
_BREAKER = BreakerPolicy()

ENFORCED_RATES = "enforce_model_rate_limits"
"""The only one of LiteLLM's optional checks that is made here."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The rules for deployments that fail. ``breaker`` is None if failing deployments get no cooldown. ``fallbacks``
    are the names that replace a name (``*``: any name). ``context_window_fallbacks`` replace a name if the request is
    too long for it; ``checks_windows``: the length is also checked before a call."""

    retries: RetryPolicy = _RETRIES
    breaker: BreakerPolicy | None = _BREAKER
    fallbacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    context_window_fallbacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checks_windows: bool = False
    targets: Sequence[tuple[str, str]] = ()
    """Each fallback name, with its path in the configuration."""
    enforces_rates: bool = False
    """A deployment's ``rpm`` and ``tpm`` are limits."""


def routing_of(router: RouterSettings, litellm: LiteLLMSettings) -> Routing:
    """The routing of a configuration."""
    every, too_long, default = (
        list(fallbacks_in(*_first_given(router, litellm, key)))
        for key in ("fallbacks", "context_window_fallbacks", "default_fallbacks")
    )
    return Routing(
        retries=RetryPolicy(
            retries=_first(router.num_retries, litellm.num_retries, _RETRIES.retries),
            least_wait_s=router.retry_after or 0.0,
            retries_after=_by_kind(router.retry_policy) if router.retry_policy is not None else {},
            retries_of={name: _by_kind(given) for name, given in (router.model_group_retry_policy or {}).items()},
        ),
        breaker=None
        if router.disable_cooldowns
        else BreakerPolicy(
            allowed_fails=_first(router.allowed_fails, litellm.allowed_fails, _BREAKER.allowed_fails),
            cooldown_s=_first(router.cooldown_time, litellm.cooldown_time, _BREAKER.cooldown_s),
        ),
        fallbacks={**_named(default), **_named(every)},
        context_window_fallbacks=_named(too_long),
        checks_windows=bool(router.enable_pre_call_checks),
        targets=tuple((at, _model(to)) for _, found in (*every, *too_long, *default) for at, to in found.items()),
        enforces_rates=ENFORCED_RATES in (router.optional_pre_call_checks or ()),
    )


def _by_kind(given: RetriesByError) -> dict[Kind, int]:
    """Retries by the kind of failure. LiteLLM has two classes for 5xx answers: the smaller number holds for both."""
    errors = (given.InternalServerErrorRetries, given.ServiceUnavailableErrorRetries)
    told = [retries for retries in errors if retries is not None]
    by_kind: dict[Kind, int | None] = {
        "timeout": given.TimeoutErrorRetries,
        "rate-limited": given.RateLimitErrorRetries,
        "server-error": min(told) if told else None,
        "unavailable": None,
    }
    every = {kind: given.DefaultRetries if retries is None else retries for kind, retries in by_kind.items()}
    return {kind: retries for kind, retries in every.items() if retries is not None}


def weights_of(models: Sequence[ModelEntry]) -> list[float]:
    """Each entry's share within its name: ``weight``, else ``rpm``, else ``tpm``. In a group without any of them, all
    entries are equal. If only some entries have one, the others serve when those have failed (as in LiteLLM's simple
    shuffle)."""
    return [_weight(entry, [other for other in models if other.model_name == entry.model_name]) for entry in models]


def _weight(entry: ModelEntry, group: Sequence[ModelEntry]) -> float:
    for name in ("weight", "rpm", "tpm"):
        if any(getattr(other.litellm_params, name) is not None for other in group):
            return float(getattr(entry.litellm_params, name) or 0.0)
    return 1.0


def fallbacks_in(path: str, given: FallbackList | None) -> Iterator[tuple[str, dict[str, str | FallbackTarget]]]:
    """The fallbacks of a list, which is at this path: a name, and what replaces it, by its path. A fallback without a
    name replaces any name."""
    for index, item in enumerate(given or ()):
        here = join(path, index)
        if isinstance(item, str):
            yield "*", {here: item}
            continue
        for name, targets in item.items():
            yield name, {join(join(here, name), at): target for at, target in enumerate(targets)}


def _first_given(router: RouterSettings, litellm: LiteLLMSettings, key: str) -> tuple[str, Any]:
    """The path of the value that counts, and the value."""
    mine = getattr(router, key)
    return (f"router_settings.{key}", mine) if mine else (f"litellm_settings.{key}", getattr(litellm, key))


def _model(given: str | FallbackTarget) -> str:
    return given if isinstance(given, str) else given.model


def _named(fallbacks: Iterable[tuple[str, Mapping[str, str | FallbackTarget]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, targets in fallbacks:
        found[name] = (*found.get(name, ()), *map(_model, targets.values()))
    return found


N = TypeVar("N", int, float)


def _first(*values: N | None) -> N:
    return next(value for value in values if value is not None)

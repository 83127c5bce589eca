"""LiteLLM's sections of the configuration file as pydantic models, as far as Stratiform uses them. First comes the base
of all sections of a configuration.

Keys that LiteLLM knows and Stratiform does not use are accepted (``extra="allow"``). ``proxy.app.settings.unsupported``
describes the consequences.

At the end, ``FailureRules`` gathers retries, breakers and fallbacks. LiteLLM reads most of their keys from
``router_settings`` and from ``litellm_settings``; ``router_settings`` wins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from proxy.kit.messages import join
from proxy.kit.resilience import BreakerPolicy, Kind, RetryPolicy
from proxy.kit.value import dataclass, field
from proxy.protocol.prices import needed
from proxy.protocol.providers import PROFILES
from proxy.teams.validation import MOST_USD, NAME_PATTERN, parts_of_url


class ConfigSection(BaseModel):
    """A part of a configuration. Its numbers are finite, and are not written as ``true`` or ``false``."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_switch(cls, given: object, read: ValidatorFunctionWrapHandler) -> object:
        """YAML reads ``yes`` and ``on`` as true, which pydantic takes for the number 1."""
        value = read(given)
        if _is_counted(given, value):
            raise ValueError("must be a number, not true or false")
        return value


def _is_counted(given: object, value: object) -> bool:
    """Whether a switch was taken for a number, there or among the values of a mapping."""
    if isinstance(given, dict) and isinstance(value, dict):
        return any(_is_counted(item, value.get(name)) for name, item in given.items())
    return isinstance(given, bool) and isinstance(value, int | float) and not isinstance(value, bool)


class Strict(ConfigSection):
    """A section in which every unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


def filled(instead: str) -> Callable[[SecretStr], SecretStr]:
    """A check that a key is not empty. ``instead`` says what happens without a key."""

    def check(key: SecretStr) -> SecretStr:
        if not key.get_secret_value().strip():
            raise ValueError(f"is empty; remove it to {instead}, or set one")
        return key

    return check


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Usd = Annotated[float, Field(ge=0, le=MOST_USD, allow_inf_nan=False)]
_AMOUNT: TypeAdapter[float] = TypeAdapter(Usd)

# LiteLLM has a ``model_info.mode`` of its own, the kind of endpoint (the values in its price map, 1.109). They say
# nothing about Stratiform's mode, and are ignored.
ENDPOINT_MODES = frozenset(
    {
        "audio_speech", "audio_transcription", "batch", "chat", "completion", "decisions", "embedding", "evaluation",
        "extraction", "guardrail", "image_edit", "image_generation", "moderation", "moderations", "ocr", "realtime",
        "rerank", "responses", "search", "vector_store", "video_generation",
    }
)  # fmt: skip


def http_url(url: str) -> str:
    """The URL without a trailing slash. Raises ValueError if it is not an http or https URL."""
    text = url.strip().rstrip("/")
    if parts_of_url(text, "http", "https") is None or any(char.isspace() for char in text):
        raise ValueError("must be an http:// or https:// URL")
    return text


NO_BASE = "must have no `?` and no `#`, and not end in /chat/completions: the path of each request is appended to it"


def is_base(url: str) -> bool:
    """Whether the path of a request can be appended to the URL."""
    return not ("?" in url or "#" in url or url.endswith("/chat/completions"))


HttpUrl = Annotated[str, AfterValidator(http_url)]


def _amount(name: str, value: object) -> float:
    try:
        return _AMOUNT.validate_python(value)
    except ValidationError:
        raise ValueError(f"{name} must be a number of USD, not below 0") from None


def _known_profile(name: str) -> str:
    if name not in PROFILES:
        raise ValueError(f"must be one of {', '.join(PROFILES)}")
    return name


CacheProfileName = Annotated[str, AfterValidator(_known_profile)]


class Loose(ConfigSection):
    """A section in which unknown keys are accepted."""

    model_config = ConfigDict(extra="allow", protected_namespaces=(), coerce_numbers_to_str=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        # Without the extra fields: they may hold credentials (aws_secret_access_key, database_url, ...).
        return ((name, getattr(self, name)) for name, told in type(self).model_fields.items() if told.repr)


class LiteLLMParams(Loose):
    """The target of a deployment's requests. Parameters without a field here reach the litellm transport unchanged."""

    model: str = Field(min_length=1)
    custom_llm_provider: str | None = None
    api_base: HttpUrl | None = None
    base_url: HttpUrl | None = None
    api_key: Annotated[SecretStr, AfterValidator(filled("forward the client's own key"))] | None = None
    timeout: float | None = Field(default=None, gt=0)
    extra_headers: dict[str, str] | None = Field(default=None, repr=False)
    organization: str | list[str] | None = None
    litellm_credential_name: str | None = None
    weight: float | None = Field(default=None, ge=0)
    order: int | None = None
    rpm: float | None = Field(default=None, ge=0)
    tpm: float | None = Field(default=None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _passed_on(cls, values: object) -> object:
        """YAML 1.1 reads ``3e-6`` as text. A price is a number however it is written, as it is for LiteLLM. Where
        litellm expects a list, it fails at each request that finds anything else."""
        if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
            return values
        for name in ("additional_drop_params", "allowed_openai_params"):
            if values.get(name) and not isinstance(values[name], list):
                raise ValueError(f"{name} must be a list of parameters' names")
        prices = {name for name in needed(values) if "_cost" in name and values[name] is not None}
        return {name: _amount(name, value) if name in prices else value for name, value in values.items()}


class ModelInfo(Loose):
    """The facts about a model. The first six keys are Stratiform's, the rest is LiteLLM's. ``session_header`` is the
    header by which a router in front of self-hosted engines keeps a conversation on one of them. ``cache_salt`` keeps
    the teams apart in the engine's cache. ``max_input_tokens`` is the most tokens that the model reads; None: the
    number in the price map. ``id`` names this entry alone. ``access_groups`` are the model lists that it is in."""

    transport: Literal["http", "litellm", "embedded"] | None = None
    cache_profile: CacheProfileName | None = None
    system_reminder: bool | str = False
    mode: str | None = None
    session_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")
    cache_salt: Literal["team"] | None = None
    base_model: str | None = None
    max_input_tokens: int | None = Field(default=None, gt=0)
    id: str | None = None
    access_groups: list[str] | None = None
    rpm: float | None = Field(default=None, ge=0)
    tpm: float | None = Field(default=None, ge=0)

    @field_validator("mode")
    @classmethod
    def _known_mode(cls, mode: str | None) -> str | None:
        if mode is None or mode in ENDPOINT_MODES:
            return None
        if mode not in ("passthrough", "observe", "mark", "tier"):
            raise ValueError("must be passthrough, observe, mark or tier (or one of LiteLLM's endpoint kinds)")
        return mode


class ModelEntry(Loose):
    """One entry of ``model_list``."""

    model_name: str = Field(min_length=1)
    litellm_params: LiteLLMParams
    model_info: ModelInfo = ModelInfo()

    @field_validator("model_info", mode="before")
    @classmethod
    def _left_empty(cls, value: object) -> object:
        return {} if value is None else value


class Credential(Loose):
    """One entry of LiteLLM's ``credential_list``: parameters shared by deployments that name it."""

    credential_name: str
    credential_values: dict[str, object] = Field(repr=False)


class GeneralSettings(Loose):
    """LiteLLM's ``general_settings``. Only the master key and the allowed addresses are used."""

    master_key: Annotated[SecretStr, AfterValidator(filled("accept any key"))] | None = None
    allowed_ips: list[IPvAnyNetwork] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _connections_count(self) -> Self:
        if self.allowed_ips and (self.model_extra or {}).get("use_x_forwarded_for"):
            raise ValueError(
                "allowed_ips goes by the address of the connection, because a client can write any address into a "
                "header: remove use_x_forwarded_for, or restrict addresses in the proxy that stands in front"
            )
        return self


class FallbackTarget(Loose):
    """The long form of a fallback."""

    model: str


FallbackList = list[dict[str, list[str | FallbackTarget]] | str]
"""The fallback names for a name. A name alone is a fallback for every other name."""


class _Retries(Loose):
    num_retries: int | None = Field(default=None, ge=0, le=20)
    allowed_fails: int | None = Field(default=None, ge=0)
    cooldown_time: float | None = Field(default=None, ge=0)
    fallbacks: FallbackList | None = None
    default_fallbacks: list[str] | None = None
    context_window_fallbacks: FallbackList | None = None


class LiteLLMSettings(_Retries):
    """LiteLLM's ``litellm_settings``: the settings for every call."""

    drop_params: bool | None = None
    request_timeout: float | None = Field(default=None, gt=0)
    max_budget: Usd | None = None
    budget_duration: str | None = None


class AliasTarget(Loose):
    """The long form of an alias; ``hidden``: it is not listed."""

    model: str
    hidden: bool = False


class RetriesByError(Loose):
    """LiteLLM's ``retry_policy``: retries after an error, by its class there. Refusals are never repeated here."""

    TimeoutErrorRetries: int | None = Field(default=None, ge=0, le=20)
    RateLimitErrorRetries: int | None = Field(default=None, ge=0, le=20)
    InternalServerErrorRetries: int | None = Field(default=None, ge=0, le=20)
    ServiceUnavailableErrorRetries: int | None = Field(default=None, ge=0, le=20)
    DefaultRetries: int | None = Field(default=None, ge=0, le=20)


class RouterSettings(_Retries):
    """LiteLLM's ``router_settings``: aliases, the timeout, retries, cooldowns and fallbacks are used."""

    model_group_alias: dict[str, str | AliasTarget] = {}
    timeout: float | None = Field(default=None, gt=0)
    retry_after: float | None = Field(default=None, ge=0)
    disable_cooldowns: bool | None = None
    retry_policy: RetriesByError | None = None
    model_group_retry_policy: dict[str, RetriesByError] | None = None
    enable_pre_call_checks: bool | None = None
    optional_pre_call_checks: list[str] | None = None


# The defaults are LiteLLM's own: openai.DEFAULT_MAX_RETRIES, DEFAULT_ALLOWED_FAILS, DEFAULT_COOLDOWN_TIME_SECONDS.
_RETRIES = RetryPolicy()
_BREAKER = BreakerPolicy()

ENFORCED_RATES = "enforce_model_rate_limits"
"""The only one of LiteLLM's optional checks that is made here."""


@dataclass(frozen=True, slots=True)
class FailureRules:
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


def routing_of(router: RouterSettings, litellm: LiteLLMSettings) -> FailureRules:
    """The routing of a configuration."""
    every, too_long, default = (
        list(fallbacks_in(*_first_given(router, litellm, key)))
        for key in ("fallbacks", "context_window_fallbacks", "default_fallbacks")
    )
    return FailureRules(
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
    errors, every = (given.InternalServerErrorRetries, given.ServiceUnavailableErrorRetries), given.DefaultRetries
    by_kind: dict[Kind, int | None] = {
        "timeout": given.TimeoutErrorRetries,
        "rate-limited": given.RateLimitErrorRetries,
        "server-error": min((retries for retries in errors if retries is not None), default=None),
        "unavailable": None,
    }
    return {kind: most for kind, told in by_kind.items() if (most := every if told is None else told) is not None}


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

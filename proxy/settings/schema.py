"""The configuration file as pydantic models: LiteLLM's sections as they are, ours strict.

Keys that LiteLLM knows and Stratiform does not use are accepted (``extra="allow"``) and listed as warnings by
``stratiform check-config``. In the ``stratiform`` section every unknown key is an error.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator

from proxy.core.profiles import PROFILES

ModeName = Literal["passthrough", "observe", "mark", "tier"]
TransportName = Literal["http", "litellm", "embedded"]
LogLevel = Literal["debug", "info", "warning", "error"]
TeamName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]

# LiteLLM has a ``model_info.mode`` of its own, the kind of endpoint (the values in its price map, 1.109). They say
# nothing about Stratiform's mode and are passed over.
ENDPOINT_MODES = frozenset(
    {
        "audio_speech", "audio_transcription", "batch", "chat", "completion", "decisions", "embedding", "evaluation",
        "extraction", "guardrail", "image_edit", "image_generation", "moderation", "moderations", "ocr", "realtime",
        "rerank", "responses", "search", "vector_store", "video_generation",
    }
)  # fmt: skip


class _Loose(BaseModel):
    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        # Without the extra fields: they may hold credentials (aws_secret_access_key, database_url, ...).
        return ((name, getattr(self, name)) for name, field in type(self).model_fields.items() if field.repr)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LiteLLMParams(_Loose):
    """Where a deployment's requests go. What is not named here reaches the litellm transport as it is."""

    model: str = Field(min_length=1)
    custom_llm_provider: str | None = None
    api_base: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    timeout: float | None = Field(default=None, gt=0)
    extra_headers: dict[str, str] | None = Field(default=None, repr=False)
    organization: str | None = None
    litellm_credential_name: str | None = None

    @field_validator("api_key")
    @classmethod
    def _not_empty(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not key.get_secret_value().strip():
            raise ValueError("is empty; remove it to forward the client's own key, or set one")
        return key

    @field_validator("api_base", "base_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        return None if url is None else http_url(url)


class ModelInfo(_Loose):
    """What is known about a model. The first four keys are Stratiform's, the rest is LiteLLM's."""

    transport: TransportName | None = None
    cache_profile: str | None = None
    system_reminder: bool | str = False
    mode: str | None = None
    base_model: str | None = None

    @field_validator("cache_profile")
    @classmethod
    def _known_profile(cls, name: str | None) -> str | None:
        if name is not None and name not in PROFILES:
            raise ValueError(f"must be one of {', '.join(PROFILES)}")
        return name

    @field_validator("mode")
    @classmethod
    def _known_mode(cls, mode: str | None) -> str | None:
        if mode is None or mode in ENDPOINT_MODES:
            return None
        if mode not in ("passthrough", "observe", "mark", "tier"):
            raise ValueError("must be passthrough, observe, mark or tier (or one of LiteLLM's endpoint kinds)")
        return mode


class ModelEntry(_Loose):
    """One entry of ``model_list``."""

    model_name: str = Field(min_length=1)
    litellm_params: LiteLLMParams
    model_info: ModelInfo = ModelInfo()

    @field_validator("model_info", mode="before")
    @classmethod
    def _left_empty(cls, value: object) -> object:
        return {} if value is None else value


class Credential(_Loose):
    """One entry of LiteLLM's ``credential_list``: parameters shared by deployments that name it."""

    credential_name: str
    credential_values: dict[str, object] = Field(repr=False)


class GeneralSettings(_Loose):
    """LiteLLM's ``general_settings``, of which only the master key is used."""

    master_key: SecretStr | None = None

    @field_validator("master_key")
    @classmethod
    def _not_empty(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not key.get_secret_value().strip():
            raise ValueError("is empty; remove it to accept any key, or set one")
        return key


class LiteLLMSettings(_Loose):
    """LiteLLM's ``litellm_settings``: what holds for every call."""

    drop_params: bool | None = None
    request_timeout: float | None = Field(default=None, gt=0)


class AliasTarget(_Loose):
    """The long form of an alias."""

    model: str


class RouterSettings(_Loose):
    """LiteLLM's ``router_settings``, of which aliases and the timeout are used."""

    model_group_alias: dict[str, str | AliasTarget] = {}
    timeout: float | None = Field(default=None, gt=0)


class Budget(_Strict):
    """A hard limit on what a team spends in all, in USD."""

    usd: Usd = Field(description="refuse requests that could take the team's spend beyond this")
    assumed_output_tokens: int = Field(
        default=8192, gt=0, description="output reserved for a request that sets no limit of its own"
    )


class Team(_Strict):
    """A list of keys with a name, a budget and a mode."""

    name: TeamName
    keys: list[SecretStr] = Field(min_length=1)
    budget: Budget | None = None
    mode: ModeName | None = Field(default=None, description="the highest mode for this team's requests")

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name == "default":
            raise ValueError("`default` is the name for requests of no team; choose another")
        return name

    @field_validator("keys")
    @classmethod
    def _no_empty_key(cls, keys: list[SecretStr]) -> list[SecretStr]:
        if any(not key.get_secret_value().strip() for key in keys):
            raise ValueError("holds an empty key")
        return keys


class Budgets(_Strict):
    """How budgets behave."""

    on_store_error: Literal["allow", "deny"] = Field(
        default="allow", description="what happens to a team's requests while its spend cannot be read or written"
    )


class Limits(_Strict):
    """Bounds on what is accepted."""

    max_body_mib: float = Field(default=64, gt=0, le=2048, description="the largest request body")


class Price(_Strict):
    """USD per token, in the field names of LiteLLM's price map."""

    input_cost_per_token: Usd
    output_cost_per_token: Usd
    cache_read_input_token_cost: Usd | None = None
    cache_creation_input_token_cost: Usd | None = None
    cache_creation_input_token_cost_above_1hr: Usd | None = None


class Stratiform(_Strict):
    """The ``stratiform`` section."""

    mode: ModeName = Field(default="tier", description="the highest mode for any request")
    policy: Literal["economic", "classic"] = Field(
        default="economic", description="how the order of pieces is decided: by price, or by stability alone"
    )
    clock: Literal["system", "header"] = Field(
        default="system", description="header: take the time from x-stratiform-time (for replays; never in production)"
    )
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=4000, ge=0, le=65535)
    log_level: LogLevel = "info"
    limits: Limits = Limits()
    teams: list[Team] = []
    budgets: Budgets = Budgets()
    store: str | None = Field(default=None, description="memory, or sqlite:PATH")
    prices: dict[str, Price] = Field(default={}, description="prices by model, over LiteLLM's price map")

    @field_validator("store")
    @classmethod
    def _known_store(cls, store: str | None) -> str | None:
        if store is None or store == "memory" or (store.startswith("sqlite:") and store != "sqlite:"):
            return store
        raise ValueError("must be memory or sqlite:PATH")


class ConfigFile(_Loose):
    """The whole file."""

    model_list: list[ModelEntry] = []
    credential_list: list[Credential] = []
    general_settings: GeneralSettings = GeneralSettings()
    litellm_settings: LiteLLMSettings = LiteLLMSettings()
    router_settings: RouterSettings = RouterSettings()
    environment_variables: dict[str, object] = Field(default={}, repr=False)
    stratiform: Stratiform = Stratiform()


def http_url(url: str) -> str:
    """The URL without a trailing slash. Raises ValueError where it is no http or https URL."""
    text = url.strip().rstrip("/")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in ("http", "https") or not rest or rest[0] in "/?#":
        raise ValueError("must be an http:// or https:// URL")
    return text

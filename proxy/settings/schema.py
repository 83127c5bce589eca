"""The configuration file as pydantic models: LiteLLM's sections as they are, ours strict.

Keys that LiteLLM knows and Stratiform does not use are accepted (``extra="allow"``). ``proxy.settings.unsupported``
says what follows from that. In the ``stratiform`` section every unknown key is an error.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from proxy.core.money.prices import needed, price_of
from proxy.core.providers import PROFILES
from proxy.settings.prompts import Prompts
from proxy.settings.teams import Budgets, ClientKeys, ModeName, Strict, Team
from proxy.settings.window import Window

TransportName = Literal["http", "litellm", "embedded"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
MOST_WORKERS = 64
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
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
    """The URL without a trailing slash. Raises ValueError where it is no http or https URL."""
    text = url.strip().rstrip("/")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in ("http", "https") or not rest or rest[0] in "/?#":
        raise ValueError("must be an http:// or https:// URL")
    return text


HttpUrl = Annotated[str, AfterValidator(http_url)]


def _filled(instead: str) -> Callable[[SecretStr], SecretStr]:
    def check(key: SecretStr) -> SecretStr:
        if not key.get_secret_value().strip():
            raise ValueError(f"is empty; remove it to {instead}, or set one")
        return key

    return check


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


class LiteLLMParams(_Loose):
    """The target of a deployment's requests. Parameters without a field here reach the litellm transport unchanged."""

    model: str = Field(min_length=1)
    custom_llm_provider: str | None = None
    api_base: HttpUrl | None = None
    base_url: HttpUrl | None = None
    api_key: Annotated[SecretStr, AfterValidator(_filled("forward the client's own key"))] | None = None
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
    def _priced(cls, values: object) -> object:
        """YAML 1.1 reads ``3e-6`` as text. A price is a number however it is written, as it is for LiteLLM."""
        if not isinstance(values, dict):
            return values
        prices = {name for name in needed(values) if "_cost" in name and values[name] is not None}
        return {name: _amount(name, value) if name in prices else value for name, value in values.items()}


class ModelInfo(_Loose):
    """The facts about a model. The first six keys are Stratiform's, the rest is LiteLLM's. ``session_header`` is the
    header by which a router in front of self-hosted engines keeps a conversation on one of them; ``cache_salt`` keeps
    the teams apart in the engine's cache. ``max_input_tokens`` is the most that it reads; None: what the price map
    says. ``id`` names this entry alone, ``access_groups`` the lists of models that it is in."""

    transport: TransportName | None = None
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
    """LiteLLM's ``general_settings``, of which the master key and the allowed addresses are used."""

    master_key: Annotated[SecretStr, AfterValidator(_filled("accept any key"))] | None = None
    allowed_ips: list[IPvAnyNetwork] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _connections_count(self) -> Self:
        if self.allowed_ips and (self.model_extra or {}).get("use_x_forwarded_for"):
            raise ValueError(
                "allowed_ips goes by the address of the connection, because a client can write any address into a "
                "header: remove use_x_forwarded_for, or restrict addresses in the proxy that stands in front"
            )
        return self


class FallbackTarget(_Loose):
    """The long form of a fallback."""

    model: str


FallbackList = list[dict[str, list[str | FallbackTarget]] | str]
"""The names that stand in for a name; a name alone stands in for every other."""


class _Retries(_Loose):
    num_retries: int | None = Field(default=None, ge=0, le=20)
    allowed_fails: int | None = Field(default=None, ge=0)
    cooldown_time: float | None = Field(default=None, ge=0)
    fallbacks: FallbackList | None = None
    default_fallbacks: list[str] | None = None
    context_window_fallbacks: FallbackList | None = None


class LiteLLMSettings(_Retries):
    """LiteLLM's ``litellm_settings``: what holds for every call."""

    drop_params: bool | None = None
    request_timeout: float | None = Field(default=None, gt=0)
    max_budget: Usd | None = None
    budget_duration: str | None = None


class AliasTarget(_Loose):
    """The long form of an alias; ``hidden``: it is not listed."""

    model: str
    hidden: bool = False


class RetriesByError(_Loose):
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


class Limits(Strict):
    """Bounds on what is accepted."""

    max_body_mib: float = Field(default=64, gt=0, le=2048, description="the largest request body")
    max_header_kib: float = Field(
        default=64, ge=1, le=1024, description="the largest headers of a request, with its first line"
    )
    max_headers: int = Field(default=256, ge=16, description="how many headers a request may have")
    receive_s: float = Field(
        default=60,
        gt=0,
        description="how long a request may take to arrive; a body gets another second for each 16 KiB",
    )
    send_s: float = Field(default=300, gt=0, description="how long a client may leave an answer unread")
    state_mib: float = Field(
        default=512,
        ge=16,
        description="the most memory for what planning remembers of requests; other parts take up to 60 % on top",
    )
    drain_s: float = Field(
        default=60, ge=0, description="how long running answers may take to end when the proxy is told to stop"
    )

    @property
    def state_bytes(self) -> int:
        return int(self.state_mib * (1 << 20))


class Ledger(Strict):
    """The record that is kept of each exchange."""

    retention_days: float | None = Field(
        default=400, gt=0, le=36500, description="how long entries are kept; null: forever"
    )


class MetricsPage(Strict):
    """The protection of ``/metrics``."""

    key: Annotated[SecretStr, AfterValidator(_filled("let everyone read /metrics"))] | None = Field(
        default=None, description="the key that /metrics asks for, as `Authorization: Bearer KEY`; null: none"
    )

    @property
    def secret(self) -> str:
        return "" if self.key is None else self.key.get_secret_value()


class Ui(Strict):
    """The pages under ``/ui``."""

    enabled: bool = Field(
        default=True,
        description="serve the pages: with a master key to whoever has it, else read-only on this machine alone",
    )
    hosts: list[str] = Field(
        default=[], description="names by which browsers reach the proxy, besides the address that it listens on"
    )
    show_text: bool = Field(
        default=False, description="show texts of prompts, from the memory of a worker; they are stored nowhere"
    )
    session_minutes: float = Field(
        default=60, gt=0, le=1440, description="how long somebody who has logged in may look and change"
    )


class Otel(Strict):
    """Spans for an OpenTelemetry collector (``proxy.telemetry.spans``)."""

    endpoint: HttpUrl | None = Field(
        default=None, description="the collector, as an OTLP/HTTP address (http://localhost:4318); null: no spans"
    )
    headers: dict[str, SecretStr] = Field(default={}, description="headers for the collector, such as its key")
    service: str = Field(default="stratiform", min_length=1, description="service.name of the spans")


class Objects(Strict):
    """The memory of the objects of the provider's account: files, stored responses, batches ..."""

    retention_days: float = Field(
        default=400,
        gt=0,
        le=36500,
        description="how long a team's objects are remembered; afterwards the team cannot reach them",
    )
    most_per_team: int = Field(
        default=100_000, ge=1, le=10_000_000, description="how many objects of a team are remembered"
    )


class Price(Strict):
    """USD per token, image, second, character or search, in the field names of LiteLLM's price map."""

    input_cost_per_token: Usd | None = None
    output_cost_per_token: Usd | None = None
    cache_read_input_token_cost: Usd | None = None
    cache_creation_input_token_cost: Usd | None = None
    cache_creation_input_token_cost_above_1hr: Usd | None = None
    input_cost_per_token_priority: Usd | None = None
    output_cost_per_token_priority: Usd | None = None
    output_cost_per_audio_token: Usd | None = None
    output_cost_per_image_token: Usd | None = None
    output_cost_per_image: Usd | None = None
    input_cost_per_second: Usd | None = None
    input_cost_per_character: Usd | None = None
    input_cost_per_query: Usd | None = None

    @model_validator(mode="after")
    def _is_price(self) -> "Price":
        if (self.input_cost_per_token is None) != (self.output_cost_per_token is None):
            raise ValueError("input_cost_per_token and output_cost_per_token belong together")
        if price_of(self.model_dump(exclude_none=True)) is None:
            raise ValueError("has no price: set input_cost_per_token and output_cost_per_token")
        return self


class KeepAlive(Strict):
    """Refreshes of prefixes whose clients pause."""

    enabled: bool = False
    usd_per_day: Usd = Field(default=1.0, description="the most that refreshes may cost a team in a day (UTC)")
    teams: dict[str, Usd] = Field(default={}, description="the same limit for single teams; 0: no refreshes")
    own_keys: bool = Field(default=False, description="also refresh for clients that send the provider's key")
    max_sessions: int = Field(default=256, ge=1, le=100_000, description="how many conversations are kept warm at once")
    max_mib: float = Field(
        default=64, gt=0, le=4096, description="the most memory for the requests of these conversations"
    )


class TieredAssembly(Strict):
    """The flags of policy ``classic`` for structured context (``proxy.core.layout.tiers.ClassicPolicy``)."""

    cache_target_tokens: int | None = Field(
        default=None, ge=0, description="what a tier should hold at least; 0: no anchoring; default: by the model"
    )
    history: Literal["stay", "piggyback", "threshold"] = Field(
        default="stay", description="turns stay active, enter L3 with other items, or as soon as they reach the target"
    )
    history_window: Literal["newest", "remainder", "none"] = Field(
        default="newest", description="which of the newest turns stay active when others leave"
    )
    oversize_turn: Literal["stay", "move"] = Field(
        default="stay", description="what a newest turn does that is larger than the target"
    )
    underfill: Literal["unmark", "demote", "demote_whole"] = Field(
        default="unmark", description="a small tier loses its breakpoint, or its items go one tier down"
    )
    count: Literal["response", "cascade"] = Field(
        default="response", description="items age with each answer, or only when their tier is processed"
    )
    graduation: Literal["count", "leave"] = Field(
        default="count", description="an item enters L3 after three answers, or when it is no longer selected"
    )
    anchoring: Literal["excess", "within", "always", "never"] = Field(
        default="excess", description="which of the youngest items a tier holds back"
    )
    is_capped: bool = Field(default=True, description="an item does not age beyond what would take it one tier up")
    first_l0: Literal["empty", "referenced"] = Field(
        default="empty", description="what stands in L0 before the first answer: nothing, or the most referenced items"
    )


class Freezing(Strict):
    """The bounds for freezing the oldest part of a conversation into a panel
    (``proxy.core.structured.history.freezing``)."""

    enabled: bool = Field(
        default=True,
        description="freeze the conversations of clients that send panels or messages_meta, unless they say no",
    )
    chunk_messages: int = Field(default=25, ge=1, description="what is frozen has at least so many messages")
    chunk_tokens: int = Field(default=5_000, ge=1, description="what is frozen has at least so many tokens")
    keep_messages: int = Field(default=25, ge=1, description="so many messages stay behind it at least")
    keep_tokens: int = Field(default=7_500, ge=1, description="so many tokens stay behind it at least")


class LivePanels(Strict):
    """The form of live panels."""

    repeat_system_for: list[CacheProfileName] = Field(
        default=[], description="cache profiles of the upstreams that read the system text again behind the panels"
    )


class Compaction(Strict):
    """When the oldest part of a conversation makes room for a summary (``proxy.planning.compactions``)."""

    allowed: bool = Field(default=False, description="compact the conversations of clients that ask for it")
    min_history_tokens: int = Field(default=24_000, ge=1_000, description="the shortest conversation that is compacted")
    verbatim_tokens: int = Field(default=4_000, ge=0, description="so many of the newest tokens stay beside a summary")
    summary_tokens: int = Field(default=500, ge=50, le=2_000, description="how long a summary should be at most")
    keep_exchanges: int = Field(default=2, ge=1, description="so many of the last user messages stay in any case")
    usd_per_day: Usd = Field(default=1.0, description="the most that the calls may cost a team in a day (UTC)")
    own_keys: bool = Field(default=False, description="also for clients that send the provider's key")


class Structured(Strict):
    """Structured context."""

    enabled: bool = Field(default=True, description="assemble the context that requests describe in `stratiform`")
    text_mib: float = Field(default=256, gt=0, le=65_536, description="the most memory for texts that clients sent")
    keep_texts: bool = Field(
        default=False, description="keep these texts in the store, too, so that other workers and restarts know them"
    )
    classic: TieredAssembly = TieredAssembly()
    panels: LivePanels = LivePanels()
    detach: Freezing = Freezing()
    compaction: Compaction = Compaction()


class CallbackSettings(Strict):
    """The behaviour of the callback inside a LiteLLM proxy (``proxy.inside``)."""

    injection_points: Literal["keep", "replace"] = Field(
        default="keep",
        description="keep: markers of LiteLLM's cache_control_injection_points stay, and ours take the slots that they "
        "leave; replace: a request that is laid out goes without them",
    )
    share_of_time: float = Field(
        default=0.25,
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="the share of the process's time beyond which requests go as they came",
    )


class Stratiform(Strict):
    """The ``stratiform`` section."""

    mode: ModeName = Field(default="tier", description="the highest mode for any request")
    policy: Literal["economic", "classic"] = Field(
        default="economic", description="how the order of pieces is decided: by price, or by stability alone"
    )
    holdout: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="the share of sessions whose requests are left unchanged, as controls",
    )
    routing_keys: bool = Field(
        default=True, description="send the routing key by which a provider keeps a conversation's requests together"
    )
    steady_tools: bool = Field(
        default=True, description="send the same tools in the order and form in which a client first sent them"
    )
    ask_provider_for_cause: bool = Field(
        default=False, description="ask Anthropic and OpenAI on /v1/messages and /v1/responses why a cache missed"
    )
    fingerprints: bool = Field(
        default=False, description="write what is sent to a file, as keyed digests and sizes without text"
    )
    fingerprints_file: str = Field(
        default="stratiform-fingerprints.jsonl", min_length=1, description="the file of fingerprints"
    )
    default_model: str | None = Field(
        default=None, min_length=1, description="the model whose deployment serves paths that name none, such as files"
    )
    clock: Literal["system", "header"] = Field(
        default="system", description="header: take the time from x-stratiform-time (for replays; never in production)"
    )
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=4000, ge=0, le=65535)
    open_to_network: bool = Field(
        default=False, description="accept any key from other machines, although models have keys of their own"
    )
    log_level: LogLevel = "info"
    log_format: LogFormat = Field(
        default="text", description="json: each line is an object; that of an exchange has the values of the text line"
    )
    request_id: bool = Field(default=True, description="send the id of each request to the upstream")
    otel: Otel = Otel()
    limits: Limits = Limits()
    client_keys: ClientKeys = Field(
        default="refuse",
        description="forward: a key that is not known here is taken for the provider's, and goes upstream",
    )
    teams: list[Team] = []
    budgets: Budgets = Budgets()
    workers: int = Field(
        default=1,
        ge=1,
        le=MOST_WORKERS,
        description="how many processes serve; more than one need a Redis that they share",
    )
    store: str | None = Field(
        default=None, repr=False, description="memory, sqlite:PATH, or redis://[:PASSWORD@]HOST:PORT/DB (rediss: TLS)"
    )
    store_ca: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file of authorities for the certificate of a rediss:// store, besides the system's",
    )
    spool: str | None = Field(
        default=None, min_length=1, description="the folder for settlements that wait for the store"
    )
    spool_max_mib: int = Field(
        default=1024, ge=1, description="how much a worker keeps of settlements that wait for the store"
    )
    spool_fsync: bool = Field(default=True, description="make the spool survive a power cut")
    spool_fallback: str | None = Field(
        default=None,
        min_length=1,
        description="the folder for settlements that neither store nor spool take when the proxy ends",
    )
    ledger: Ledger = Ledger()
    metrics: MetricsPage = MetricsPage()
    ui: Ui = Ui()
    objects: Objects = Objects()
    keep_alive: KeepAlive = KeepAlive()
    structured: Structured = Structured()
    prompts: Prompts = Prompts()
    window: Window = Window()
    callback: CallbackSettings = CallbackSettings()
    prices: dict[str, Price] = Field(default={}, description="prices by model, which override LiteLLM's price map")

    @model_validator(mode="after")
    def _can_wait(self) -> "Stratiform":
        if self.keep_alive.enabled and self.clock == "header":
            raise ValueError("keep_alive needs clock: system; time that requests bring along does not pass by itself")
        return self

    @field_validator("store")
    @classmethod
    def _known_store(cls, store: str | None) -> str | None:
        if store is None or store == "memory" or (store.startswith("sqlite:") and store != "sqlite:"):
            return store
        if store.startswith(("redis://", "rediss://")):
            return redis_url(store)
        raise ValueError("must be memory, sqlite:PATH, redis://HOST:PORT/DB or rediss://HOST:PORT/DB")


class ConfigFile(_Loose):
    """The whole file."""

    model_list: list[ModelEntry] = []
    credential_list: list[Credential] = []
    general_settings: GeneralSettings = GeneralSettings()
    litellm_settings: LiteLLMSettings = LiteLLMSettings()
    router_settings: RouterSettings = RouterSettings()
    environment_variables: dict[str, object] = Field(default={}, repr=False)
    stratiform: Stratiform = Stratiform()


def redis_url(url: str) -> str:
    """The URL of a Redis. Raises ValueError where it is none; the message does not quote it, it may hold a password."""
    try:
        parts = urlsplit(url)
        is_right = bool(parts.hostname) and parts.port != 0 and (parts.path.strip("/") or "0").isdecimal()
    except ValueError:
        is_right = False
    if not is_right or parts.query or parts.fragment:
        raise ValueError("must be redis://[USER:PASSWORD@]HOST[:PORT][/DB], or the same with rediss://")
    return url

"""The configuration file as pydantic models: the ``stratiform`` section, in which every unknown key is an error, and
LiteLLM's own sections (``proxy.app.settings.litellm_schema``).

Teams, their keys and their budgets come first. ``proxy.teams.validation`` has the checks of their values, which the
admin API and the command line use, too.
"""

from datetime import UTC, date, datetime, time
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from proxy.app.settings.litellm_schema import (
    CacheProfileName,
    Credential,
    GeneralSettings,
    HttpUrl,
    LiteLLMSettings,
    Loose,
    ModelEntry,
    Name,
    RouterSettings,
    Strict,
    Usd,
    filled,
)
from proxy.app.settings.prompts import Prompts, WindowSettings
from proxy.protocol.prices import price_of
from proxy.teams import validation
from proxy.teams.authentication import digest_of

MOST_WORKERS = 64
_LONGEST_S = 86_400
ModeName = Literal["passthrough", "observe", "mark", "tier"]
ClientKeys = Literal["refuse", "forward"]
PerMinute = Annotated[int, Field(ge=1, le=10**12)]
Text = Annotated[str, AfterValidator(validation.text)]
Models = Annotated[list[str], AfterValidator(lambda value: list(validation.patterns(value)))]
Paths = Annotated[list[str], AfterValidator(lambda value: list(validation.paths(value)))]


def _webhook_url(url: SecretStr) -> SecretStr:
    validation.url(url.get_secret_value())
    return url


WebhookUrl = Annotated[SecretStr, AfterValidator(_webhook_url)]


class Key(Strict):
    """A key of a team. In the file it may also stand alone, as a string."""

    key: SecretStr | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{64}$", repr=False, description="instead of the key")
    user: Text = Field(default="", description="the user who has the key")
    models: Models = Field(default=[], description="the models that the key may use; empty: all")
    mode: ModeName | None = Field(default=None, description="the highest mode for this key's requests")
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    expires: datetime | date | None = None
    note: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, value: object) -> object:
        return {"key": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_of_both(self) -> "Key":
        if self.key is not None and not self.key.get_secret_value().strip():
            raise ValueError("is empty")
        if (self.key is None) == (self.sha256 is None):
            raise ValueError("must have either `key` or `sha256`")
        return self

    @property
    def digest(self) -> str:
        """The digest of the key, which is all that is kept of it."""
        if self.key is not None:
            return digest_of(self.key.get_secret_value())
        return (self.sha256 or "").lower()

    @property
    def expires_at(self) -> float | None:
        """Unix seconds. A date expires when it begins, and a time without a zone is UTC."""
        if self.expires is None:
            return None
        at = self.expires if isinstance(self.expires, datetime) else datetime.combine(self.expires, time())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


class BudgetEntry(Strict):
    """A limit on the spend of a team, or of each of its keys, users or models, in a window."""

    name: Name | None = Field(default=None, description="default: by scope, window and unit")
    scope: Literal["team", "key", "user", "model"] = "team"
    subject: Text = Field(
        default="*", min_length=1, description="the key's id, user or model; `*`: each has its own counter"
    )
    usd: float | None = Field(default=None, description="refuse requests that could raise the spend above this")
    soft_usd: float | None = Field(default=None, description="send a notice when the spend passes this")
    tokens: int | None = Field(default=None, ge=0, le=10**15, description="the same, in tokens of prompts and answers")
    soft_tokens: int | None = Field(default=None, ge=0, le=10**15)
    window: Annotated[str, AfterValidator(validation.window)] = "total"
    timezone: Annotated[str, AfterValidator(validation.timezone)] = "UTC"
    assumed_output_tokens: int | None = Field(
        default=None,
        gt=0,
        le=10**9,
        description="output reserved for a request that sets no limit of its own; by default the longest answer that "
        "LiteLLM's price map knows of the model, or 8192",
    )
    webhook: WebhookUrl | None = Field(default=None, description="the URL that gets the soft limit's notice")

    @field_validator("usd", "soft_usd")
    @classmethod
    def _is_money(cls, usd: float | None) -> float | None:
        if usd is not None:
            validation.nanos(usd)
        return usd

    @model_validator(mode="after")
    def _makes_sense(self) -> "BudgetEntry":
        validation.check_amounts(self.usd, self.soft_usd, self.tokens, self.soft_tokens)
        if self.scope == "team" and self.subject != "*":
            raise ValueError("has a subject, which holds for scope key, user or model: set the scope, too")
        return self

    @property
    def unit(self) -> Literal["usd", "tokens"]:
        return "tokens" if self.usd is None and self.soft_usd is None else "usd"

    @property
    def given_name(self) -> str:
        return validation.budget_name(self.name, self.scope, self.window, self.unit)


class Team(Strict):
    """A named group of keys, with its budgets and permissions."""

    name: Name
    keys: list[Key] = []
    mode: ModeName | None = Field(default=None, description="the highest mode for this team's requests")
    models: Models = Field(default=[], description="the models that the team may use; empty: all")
    requests_per_minute: PerMinute | None = Field(default=None, description="of all keys of the team together")
    tokens_per_minute: PerMinute | None = None
    paths: Paths = Field(
        default=[], description="paths that the team may use although they reach the whole account of the provider"
    )
    client_keys: ClientKeys = Field(
        default="refuse", description="forward: clients may send the provider's key as well"
    )
    budget: BudgetEntry | None = None
    budgets: list[BudgetEntry] = []

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name == "default":
            raise ValueError("`default` is the name for requests of no team; choose another")
        return name

    @property
    def all_budgets(self) -> list[BudgetEntry]:
        return [*([self.budget] if self.budget else []), *self.budgets]


class Webhook(Strict):
    """The URL to which notices of limits are sent, and the secret that signs them."""

    url: WebhookUrl
    secret: Annotated[SecretStr, AfterValidator(filled("send notices unsigned"))] | None = None


class BudgetBehaviour(Strict):
    """The behaviour of budgets."""

    on_store_error: Literal["allow", "deny"] = Field(
        default="allow", description="what happens to a team's requests while its spend cannot be read or written"
    )
    on_unknown_price: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="what happens to requests under a hard USD budget whose cost cannot be told",
    )
    webhook: Webhook | None = Field(default=None, description="where notices of limits go")


class Limits(Strict):
    """Limits on requests, times and memory."""

    max_body_mib: float = Field(default=64, gt=0, le=2048, description="the largest request body")
    max_header_kib: float = Field(
        default=64, ge=1, le=1024, description="the largest headers of a request, with its first line"
    )
    max_headers: int = Field(default=256, ge=16, le=65_536, description="how many headers a request may have")
    receive_s: float = Field(
        default=60,
        gt=0,
        le=_LONGEST_S,
        description="how long a request may take to arrive; a body gets another second for each 16 KiB",
    )
    send_s: float = Field(default=300, gt=0, le=_LONGEST_S, description="how long a client may leave an answer unread")
    state_mib: float = Field(
        default=512,
        ge=16,
        le=16_777_216,
        description="the most memory for what planning remembers of requests; other parts take up to 60 % on top",
    )
    drain_s: float = Field(
        default=60,
        ge=0,
        le=_LONGEST_S,
        description="how long running answers may take to end when the proxy is told to stop",
    )

    @property
    def state_bytes(self) -> int:
        return int(self.state_mib * (1 << 20))


class LedgerSettings(Strict):
    """The record that is kept of each exchange."""

    retention_days: float | None = Field(
        default=400, gt=0, le=36500, description="how long entries are kept; null: forever"
    )


class MetricsPage(Strict):
    """The protection of ``/metrics``."""

    key: Annotated[SecretStr, AfterValidator(filled("let everyone read /metrics"))] | None = Field(
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
    hosts: list[Annotated[str, AfterValidator(validation.host)]] = Field(
        default=[], description="names by which browsers reach the proxy, besides the address that it listens on"
    )
    show_text: bool = Field(
        default=False, description="show texts of prompts, from the memory of a worker; they are stored nowhere"
    )
    session_minutes: float = Field(
        default=60, gt=0, le=1440, description="how long somebody who has logged in may look and change"
    )


class Otel(Strict):
    """Spans for an OpenTelemetry collector (``proxy.engine.telemetry.spans``)."""

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


class PriceEntry(Strict):
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
    def _is_price(self) -> "PriceEntry":
        if (self.input_cost_per_token is None) != (self.output_cost_per_token is None):
            raise ValueError("input_cost_per_token and output_cost_per_token belong together")
        if price_of(self.model_dump(exclude_none=True)) is None:
            raise ValueError("has no price: set input_cost_per_token and output_cost_per_token")
        return self


class KeepAliveSettings(Strict):
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
    """The flags of policy ``classic`` for structured context (``proxy.planner.tiers.ClassicPolicy``)."""

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
    (``proxy.context.history``)."""

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


class CompactionSettings(Strict):
    """When the oldest part of a conversation makes room for a summary (``proxy.services.context_sessions``)."""

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
    compaction: CompactionSettings = CompactionSettings()


class CallbackSettings(Strict):
    """The behaviour of the callback inside a LiteLLM proxy (``proxy.app.inside``)."""

    injection_points: Literal["keep", "replace"] = Field(
        default="keep",
        description="keep: markers of LiteLLM's cache_control_injection_points stay, and ours take the slots that they "
        "leave; replace: a request that is laid out goes without them",
    )
    share_of_time: float = Field(
        default=0.25,
        gt=0.0,
        le=1.0,
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
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = Field(
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
    budgets: BudgetBehaviour = BudgetBehaviour()
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
        default=1024, ge=1, le=16_777_216, description="how much a worker keeps of settlements that wait for the store"
    )
    spool_fsync: bool = Field(default=True, description="make the spool survive a power cut")
    spool_fallback: str | None = Field(
        default=None,
        min_length=1,
        description="the folder for settlements that neither store nor spool take when the proxy ends",
    )
    ledger: LedgerSettings = LedgerSettings()
    metrics: MetricsPage = MetricsPage()
    ui: Ui = Ui()
    objects: Objects = Objects()
    keep_alive: KeepAliveSettings = KeepAliveSettings()
    structured: Structured = Structured()
    prompts: Prompts = Prompts()
    window: WindowSettings = WindowSettings()
    callback: CallbackSettings = CallbackSettings()
    prices: dict[str, PriceEntry] = Field(default={}, description="prices by model, which override LiteLLM's price map")

    @model_validator(mode="after")
    def _can_wait(self) -> "Stratiform":
        if self.keep_alive.enabled and self.clock == "header":
            raise ValueError("keep_alive needs clock: system; time that requests bring along does not pass by itself")
        return self

    @field_validator("store")
    @classmethod
    def _known_store(cls, store: str | None) -> str | None:
        if store is None or store == "memory":
            return store
        if store.startswith("sqlite://"):
            raise ValueError("is a path and no URL: write sqlite:PATH, as in sqlite:spend.sqlite")
        if store.startswith("sqlite:") and store != "sqlite:":
            return store
        if store.startswith(("redis://", "rediss://")):
            return redis_url(store)
        raise ValueError("must be memory, sqlite:PATH, redis://HOST:PORT/DB or rediss://HOST:PORT/DB")


class ConfigFile(Loose):
    """The whole file."""

    model_list: list[ModelEntry] = []
    credential_list: list[Credential] = []
    general_settings: GeneralSettings = GeneralSettings()
    litellm_settings: LiteLLMSettings = LiteLLMSettings()
    router_settings: RouterSettings = RouterSettings()
    environment_variables: dict[str, object] = Field(default={}, repr=False)
    stratiform: Stratiform = Stratiform()


def redis_url(url: str) -> str:
    """The URL of a Redis. Raises ValueError if it is not one. The message does not quote it, because it may hold a
    password."""
    parts = validation.parts_of_url(url, "redis", "rediss")
    if parts is None or not (parts.path.strip("/") or "0").isdecimal() or parts.query or parts.fragment:
        raise ValueError("must be redis://[USER:PASSWORD@]HOST[:PORT][/DB], or the same with rediss://")
    return url

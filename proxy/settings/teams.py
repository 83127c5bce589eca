"""Teams, their keys and their budgets, as pydantic models: parts of the ``stratiform`` section.

``proxy.access.validation`` has the checks of values, which the admin API and the command line use, too.
"""

from datetime import UTC, date, datetime, time
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from proxy.access import validation
from proxy.settings.litellm_schema import Section, filled

ModeName = Literal["passthrough", "observe", "mark", "tier"]
ClientKeys = Literal["refuse", "forward"]
PerMinute = Annotated[int, Field(ge=1, le=10**12)]
Text = Annotated[str, AfterValidator(validation.text)]
Models = Annotated[list[str], AfterValidator(lambda value: list(validation.patterns(value)))]
Paths = Annotated[list[str], AfterValidator(lambda value: list(validation.paths(value)))]
Name = Annotated[str, StringConstraints(pattern=validation.NAME_PATTERN)]


def _webhook_url(url: SecretStr) -> SecretStr:
    validation.url(url.get_secret_value())
    return url


WebhookUrl = Annotated[SecretStr, AfterValidator(_webhook_url)]


class Strict(Section):
    """A section in which every unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


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
    def expires_at(self) -> float | None:
        """Unix seconds. A date expires when it begins, and a time without a zone is UTC."""
        if self.expires is None:
            return None
        at = self.expires if isinstance(self.expires, datetime) else datetime.combine(self.expires, time())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


class Budget(Strict):
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
    def _makes_sense(self) -> "Budget":
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
    budget: Budget | None = None
    budgets: list[Budget] = []

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name == "default":
            raise ValueError("`default` is the name for requests of no team; choose another")
        return name

    @property
    def all_budgets(self) -> list[Budget]:
        return [*([self.budget] if self.budget else []), *self.budgets]


class Webhook(Strict):
    """The URL to which notices of limits are sent, and the secret that signs them."""

    url: WebhookUrl
    secret: Annotated[SecretStr, AfterValidator(filled("send notices unsigned"))] | None = None


class Budgets(Strict):
    """The behaviour of budgets."""

    on_store_error: Literal["allow", "deny"] = Field(
        default="allow", description="what happens to a team's requests while its spend cannot be read or written"
    )
    on_unknown_price: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="what happens to requests under a hard USD budget whose cost cannot be told",
    )
    webhook: Webhook | None = Field(default=None, description="where notices of limits go")

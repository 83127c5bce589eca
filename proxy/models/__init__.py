"""The deployments of models, what tokens cost there, and what a request may cost.

The model list, prices, usage and limits come in; deployments and amounts go out, in USD or in nano-dollars. An estimate
for a hard limit is never below the bill, and a saving is never overstated. This package reserves nothing: it only
computes.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from urllib.parse import urlsplit

from proxy.kit.modes import Mode
from proxy.kit.secrets import ACCOUNT_HEADERS, CREDENTIAL_HEADERS, canonical
from proxy.kit.value import dataclass, field
from proxy.protocol.prices import Price
from proxy.protocol.providers import CacheProfile

Headers = Sequence[tuple[str, str]]

_SECRET_NAME = re.compile(r"(?i)key|secret|token|password|credential|authorization|cookie")
_SECRET_HEADERS = CREDENTIAL_HEADERS | ACCOUNT_HEADERS
# Shorter values can occur in a message by chance.
_SECRET_CHARS = 8


class Transport(StrEnum):
    """Which upstream adapter serves a deployment."""

    HTTP = "http"
    LITELLM = "litellm"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How much ``holder`` (a key's id, a deployment, or empty for a team) may use in a minute. None: no limit."""

    holder: str
    requests: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTerms:
    """The settings that an entry of the model list gives to its deployments.

    ``base_url`` has no trailing slash. ``params`` are further litellm_params, passed to the litellm transport as they
    are. ``api_key`` is None if the client's own Authorization header is forwarded.
    """

    base_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    params: Mapping[str, object] = field(default_factory=dict, repr=False)
    price_key: str = ""
    mode: Mode = Mode.TIER
    reminder: str = ""
    timeout_s: float = 600.0
    weight: float = 1.0
    """A deployment's share of the sessions among equal deployments of one name."""
    max_input_tokens: int | None = None
    """The most tokens that the model reads, if the configuration states them."""
    session_header: str = ""
    """The header by which a router in front of the model's engines tells conversations apart."""
    salts_cache: bool = False
    """Requests of different teams never share an entry of the model's cache."""
    groups: tuple[str, ...] = ()
    """Names of groups. The model list of a key or a team may name a group to allow all of its models."""
    rates: RateLimit | None = None
    """The rate limit of the deployment for all clients together."""


@dataclass(frozen=True, slots=True)
class Deployment(ModelTerms):
    """One entry of the model list: where requests for a model name go.

    ``model`` is the name that the upstream knows (without the provider prefix on the http transport, with it on
    litellm).
    """

    name: str
    model: str
    transport: Transport
    profile: CacheProfile
    server: str = ""
    """The provider that is called (``proxy.protocol.providers.hosted``); empty if that is not known for sure."""
    entry: str = ""
    """The name of its entry in the model list, with a wildcard as it is written there. If it is empty, ``name`` is the
    name."""
    id: str = ""
    """Identifies it among the deployments of all names. It is the same on every worker."""
    price: Price | None = field(default=None, compare=False, repr=False)
    """What its tokens cost, if that is known."""
    header_names: frozenset[str] = field(init=False, default=frozenset(), compare=False, repr=False)
    """The names of its headers, as a server may read them."""
    uses_operators_key: bool = field(init=False, default=False, compare=False, repr=False)
    """Its calls are made with a credential of the configuration."""
    speaks_azure: bool = field(init=False, default=False, compare=False, repr=False)
    """It is called in the form of Azure's own API, because the LiteLLM configuration gives an API version for it."""

    secrets: tuple[str, ...] = field(init=False, default=(), compare=False, repr=False)
    """All secrets that a message about it could contain."""

    def __post_init__(self) -> None:
        names = frozenset(canonical(name.lower()) for name, _ in self.headers)
        has_key = self.api_key is not None or not names.isdisjoint(CREDENTIAL_HEADERS)
        is_azure = self.transport is Transport.HTTP and bool(self.params.get("api_version"))
        object.__setattr__(self, "header_names", names)
        object.__setattr__(self, "uses_operators_key", has_key)
        object.__setattr__(self, "speaks_azure", is_azure)
        object.__setattr__(self, "secrets", self._secrets())

    def _secrets(self) -> tuple[str, ...]:
        named = [value for name, value in self.params.items() if _SECRET_NAME.search(name)]
        named += [value for name, value in self.headers if _SECRET_NAME.search(name) or name.lower() in _SECRET_HEADERS]
        password = urlsplit(self.base_url).password if "@" in self.base_url else None
        values = (self.api_key, *named, password)
        return tuple(value for value in values if isinstance(value, str) and len(value) >= _SECRET_CHARS)

"""The model table, which finds the deployments that serve a model name, and the prices of deployments. Nothing here
calls a provider.

Exact names come first, then wildcards, the most specific pattern first. As in LiteLLM, the part that ``*`` matched in
``model_name`` replaces ``*`` in ``model``. Several deployments of one name are a group: sessions are distributed over
them by weight, and the deployments of a lower ``order`` come first. After the group come the fallbacks of its name.

If the configuration names no cache profile for a model, rules choose one. ``proxy.protocol.providers`` describes the
profiles and the particulars of single models. The rules only find out which provider's cache serves the model: by the
provider (litellm's name for it, or the host that is called), then by the model's name. The first rule that fits wins;
``model_info.cache_profile`` overrides all rules.

- No marker is sent to a server that may refuse it. Claude on the http transport has the profile ``none``, unless the
  host is OpenRouter's: most OpenAI-compatible gateways accept ``cache_control``, but not all, and only the operator
  knows which. Anthropic's own OpenAI-compatible endpoint does not cache (https://docs.claude.com/en/api/openai-sdk):
  use ``model: anthropic/...``.
- GPT-5.6 and newer accept breakpoints at OpenAI and OpenRouter, and on some plans of Azure (configure
  ``azure-explicit``). At an unknown host, every GPT has the profile of GPT-5.5 and older: a stable order of the prompt
  saves money there, and a marker might be refused.
- A cache belongs to the server, not to the model's weights: DeepSeek, Kimi or Qwen have the profile of the server.
- Groq caches only some models. MiniMax reads markers only on its Anthropic-compatible API (``minimax``).
- The embedded provider imitates the provider that the model's name suggests, or Claude.

The names of providers that the installed litellm knows are read from its files, because importing it takes seconds.
So is its bundled price map. Reading it took 25 ms on a 2-core machine with litellm 1.109 (3.2 MB, 4553 models), once at
start. Only the fields that ``proxy.protocol.prices`` reads are kept. For some models, litellm's own sum for an
exchange differs from ours, although both know the same price; ``deviation_of`` gives the reason (compared for every
chat model in ``tests/contract/test_litellm_costs.py``).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from proxy.kit.errors import UnknownModel
from proxy.kit.lru import LastUsed
from proxy.kit.value import dataclass, replace
from proxy.models import Deployment, ModelTerms, Transport
from proxy.protocol.access import captured
from proxy.protocol.prices import Entry, Price, PriceMap, needed, without_aliases
from proxy.protocol.prices import price_of as price_in
from proxy.protocol.providers import EMBEDDED, PRICES, PROFILES, CacheProfile, Family, Routing, fitted, provider_at

_ENUMERATION = re.compile(r"^class LlmProviders\b.*?(?=^\S)", re.DOTALL | re.MULTILINE)
_VALUE = re.compile(r"^ +[A-Z0-9_]+ *= *[\"']([^\"']+)[\"']", re.MULTILINE)


def provider_names() -> frozenset[str]:
    """The names of litellm's providers. The set is empty if litellm's files do not have the form that is known
    today."""
    source, data = litellm_file("types/utils.py"), litellm_file("llms/openai_like/providers.json")
    if source is None or data is None:
        return frozenset()
    try:
        found = _ENUMERATION.search(source.read_text(encoding="utf-8"))
        described = orjson.loads(data.read_bytes())
    except (OSError, ValueError):
        return frozenset()
    names = _VALUE.findall(found[0]) if found is not None else []
    return frozenset({*names, *described}) if names and isinstance(described, dict) else frozenset()


_GPT = re.compile(r"^(?:chatgpt|gpt|o[1-9]|codex)(?:-|$)")
_GPT_VERSION = re.compile(r"^gpt-(\d+)(?:\.(\d+))?(?!\d|o)")
_OPEN_WEIGHTS = "gpt-oss"
# These adapters of litellm also call other servers: if a host is given, the adapter's name says nothing about the
# provider.
_ANYONES = frozenset({"openai", "custom_openai", "deepseek"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """A profile, the model names to which it applies, and the providers that have it (empty: all providers)."""

    profile: str
    is_named: Callable[[str], bool]
    providers: tuple[str, ...] = ()
    transports: tuple[Transport, ...] = (Transport.HTTP, Transport.LITELLM)


def _named(*parts: str) -> Callable[[str], bool]:
    return lambda name: any(part in name for part in parts)


def _is_gpt(name: str) -> bool:
    return bool(_GPT.match(name)) and not name.startswith(_OPEN_WEIGHTS)


def _is_explicit(name: str) -> bool:
    match = _GPT_VERSION.match(name)
    return match is not None and (int(match[1]), int(match[2] or 0)) >= (5, 6)


_LITELLM, _EMBEDDED = (Transport.LITELLM,), (Transport.EMBEDDED,)
_VERTEX = ("vertex_ai", "vertex_ai_beta")
_CLAUDE, _ANYTHING = _named("claude"), _named("")

_RULES = (
    # litellm's adapters that translate ``cache_control`` into the provider's form.
    _Rule("anthropic", _CLAUDE, ("anthropic", "litellm_proxy"), _LITELLM),
    _Rule("bedrock", _CLAUDE, ("bedrock", "bedrock_converse"), _LITELLM),
    _Rule("vertex", _CLAUDE, _VERTEX, _LITELLM),
    _Rule("foundry", _CLAUDE, ("azure_ai",), _LITELLM),
    _Rule("openrouter-anthropic", _CLAUDE, ("openrouter",)),
    _Rule("none", _CLAUDE),
    _Rule("openai-explicit", _is_explicit, ("openai",)),
    _Rule("openrouter-openai-explicit", _is_explicit, ("openrouter",)),
    _Rule("openrouter-openai", _is_gpt, ("openrouter",)),
    _Rule("azure", _is_gpt, ("azure",)),
    _Rule("openai", _is_gpt),
    _Rule("openrouter-deepseek", _named("deepseek"), ("openrouter",)),
    _Rule("openrouter-gemini", _named("gemini"), ("openrouter",)),
    _Rule("openrouter-xai", _named("grok"), ("openrouter",)),
    _Rule("deepseek", _named("deepseek"), ("deepseek",)),
    _Rule("gemini", _named("gemini"), ("gemini",)),
    _Rule("vertex-gemini", _named("gemini"), _VERTEX),
    _Rule("xai", _named("grok"), ("xai",)),
    _Rule("mistral", _ANYTHING, ("mistral", "codestral")),
    _Rule("groq", _named(_OPEN_WEIGHTS, "kimi-k2"), ("groq",)),
    _Rule("kimi", _named("kimi"), ("moonshot",)),
    _Rule("glm", _named("glm"), ("zai",)),
    _Rule("qwen", _named("qwen"), ("dashscope",)),
    _Rule("qwen-implicit", _ANYTHING, ("dashscope",)),
    _Rule("minimax-passive", _ANYTHING, ("minimax",)),
    _Rule("fireworks", _ANYTHING, ("fireworks_ai",)),
    _Rule("together", _ANYTHING, ("together_ai",)),
    _Rule("vllm", _ANYTHING, ("hosted_vllm", "vllm")),
    _Rule("llamacpp", _ANYTHING, ("llamafile",)),
    _Rule("ollama", _ANYTHING, ("ollama", "ollama_chat")),
    # The providers that the embedded provider imitates.
    _Rule("openai-explicit", _is_explicit, (), _EMBEDDED),
    _Rule("openai", _is_gpt, (), _EMBEDDED),
    _Rule("deepseek", _named("deepseek"), (), _EMBEDDED),
    _Rule("gemini", _named("gemini"), (), _EMBEDDED),
    _Rule("xai", _named("grok"), (), _EMBEDDED),
    _Rule("mistral", _named("mistral", "ministral", "codestral", "devstral", "magistral"), (), _EMBEDDED),
    _Rule("kimi", _named("kimi"), (), _EMBEDDED),
    _Rule("glm", _named("glm"), (), _EMBEDDED),
    _Rule("qwen", _named("qwen"), (), _EMBEDDED),
    _Rule("minimax-passive", _named("minimax"), (), _EMBEDDED),
    _Rule("anthropic", _ANYTHING, (), _EMBEDDED),
)


def provider_of(model: str, given: str = "") -> tuple[str, str]:
    """The provider of a model as LiteLLM writes it, and its bare name: ``openai/gpt-5`` is ``("openai", "gpt-5")``.

    ``given`` is ``custom_llm_provider``. Without a prefix, the provider is guessed from the name; it is empty if the
    name does not show it.
    """
    prefix, slash, rest = model.partition("/")
    if given:
        return given, rest if slash and prefix == given else model
    if slash:
        return prefix, rest
    name = model.lower()
    if _GPT.match(name):
        return "openai", model
    return "anthropic" if name.startswith("claude") else "", model


def choose_profile(transport: Transport, provider: str, model: str, host: str) -> CacheProfile:
    """The profile of a model by its provider, bare name and host (empty: the provider's own)."""
    # The last part of ``anthropic/claude-x`` (OpenRouter). ``us.anthropic.claude-x`` (Bedrock) stays as it is.
    name = model.rpartition("/")[2].lower()
    server = _server(provider, host)
    fitting = (
        rule.profile
        for rule in _RULES
        if transport in rule.transports and (not rule.providers or server in rule.providers) and rule.is_named(name)
    )
    return PROFILES[next(fitting, "none")]


def _server(provider: str, host: str) -> str:
    """The provider whose server is called. A known host decides; for an unknown host, litellm's adapter decides."""
    at_host = provider_at(host)
    if at_host or not host:
        return at_host or provider
    return "" if provider in _ANYONES else provider


PriceOf = Callable[[Deployment], Price | None]
Levels = tuple[tuple[Deployment, ...], ...]

_CACHED_NAMES = 1024
# No model has a longer name, and the time to match several stars grows with the name.
_MAX_NAME_CHARS = 256
_NUMBERED = re.compile(r"^.+#[0-9]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListedModel(ModelTerms):
    """One entry of the model list. ``model`` is written as in LiteLLM: ``provider/name``. ``name`` and ``model`` may
    contain ``*``.

    ``transport`` and ``profile`` are None if the configuration does not set them. ``id`` is a further name, only for
    this entry. ``line`` is the number of the entry in the configuration; None if it has none.
    """

    name: str
    model: str
    provider: str = ""
    transport: Transport | None = None
    profile: CacheProfile | None = None
    order: int = 0
    id: str = ""
    line: int | None = None


def deployment_of(
    entry: ListedModel, price_of: PriceOf, name: str = "", model: str = "", suffix: str = ""
) -> Deployment:
    """The deployment that an entry describes. For a wildcard entry, ``name`` and ``model`` are those of the request.
    ``suffix`` tells its id from those of the other deployments of the name."""
    written = model or entry.model
    provider, bare = provider_of(written, entry.provider)
    transport = entry.transport or _default_transport(provider, entry.base_url)
    host = urlsplit(entry.base_url).hostname or ""
    at_host = provider_at(host) if host else provider
    server = EMBEDDED if transport is Transport.EMBEDDED else at_host
    deployment = Deployment(
        name=name or entry.name,
        model=written if transport is Transport.LITELLM else bare,
        transport=transport,
        profile=entry.profile or PROFILES["none"],
        base_url=entry.base_url,
        server=server,
        api_key=entry.api_key,
        headers=entry.headers,
        params=entry.params,
        price_key=entry.price_key or written,
        mode=entry.mode,
        reminder=entry.reminder,
        timeout_s=entry.timeout_s,
        entry=entry.name,
        id=(name or entry.name) + suffix,
        weight=entry.weight,
        max_input_tokens=entry.max_input_tokens,
        session_header=entry.session_header,
        salts_cache=entry.salts_cache,
        groups=entry.groups,
        # All names that match a wildcard share its limits, because clients choose the names.
        rates=entry.rates and replace(entry.rates, holder=entry.name + suffix),
    )
    price = price_of(deployment)
    served = provider_of(price.alias_of)[1] if price is not None and price.alias_of else bare
    profile = entry.profile or choose_profile(transport, provider, served, host)
    if entry.session_header:
        profile = replace(profile, routing=Routing("header", entry.session_header.lower(), servers=(server,)))
    return replace(deployment, profile=_fitted(profile, served, price), price=price)


def _fitted(profile: CacheProfile, model: str, price: Price | None) -> CacheProfile:
    """The profile with the particulars of the model. The price map's price of a read wins."""
    if profile.family is Family.NONE:
        return profile
    profile = fitted(profile, model)
    read = price.read / price.input if price and price.input and profile.listed_read else None
    # For an unknown read price, the price map holds the input price; that says nothing about the provider.
    return replace(profile, read=read) if read is not None and 0 < read < 1 else profile


def _default_transport(provider: str, base_url: str) -> Transport:
    """``http`` if the server is given and uses OpenAI's protocol. For all others, litellm translates."""
    if provider == Transport.EMBEDDED:
        return Transport.EMBEDDED
    return Transport.HTTP if provider == "openai" and base_url else Transport.LITELLM


class ModelTable:
    """Finds the deployments of a model name among the entries of a configuration. ``aliases`` are further names for
    names in it. ``fallbacks`` are the names that serve a name when all of its own deployments fail (``*``: any name).
    ``wider`` are the names that serve it when its context windows are too small. ``default`` is the name whose
    deployment serves paths that name no model. ``hidden`` are names that are served but not listed."""

    def __init__(
        self,
        entries: Iterable[ListedModel],
        price_of: PriceOf,
        aliases: Mapping[str, str] | None = None,
        fallbacks: Mapping[str, Sequence[str]] | None = None,
        default: str = "",
        wider: Mapping[str, Sequence[str]] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        self._price_of = price_of
        self._hidden = frozenset(hidden)
        self._aliases = dict(aliases or {})
        self._fallbacks = dict(fallbacks or {})
        self._default = default
        self._wider = dict(wider or {})
        named: dict[str, list[ListedModel]] = {}
        self._patterns: dict[str, list[ListedModel]] = {}
        for entry in entries:
            (self._patterns if "*" in entry.name else named).setdefault(entry.name, []).append(entry)
        self._exact: dict[str, Levels] = {}
        # A deployment whose entry has an id is also found alone. It keeps its number, and so its circuit breaker.
        self._by_id: dict[str, Levels] = {}
        for name, group in named.items():
            deployments = [deployment_of(entry, price_of, suffix=suffix) for entry, suffix in _numbered(group)]
            self._exact[name] = _levels(group, deployments)
            for entry, one in zip(group, deployments, strict=True):
                if entry.id:
                    self._by_id[entry.id] = (*self._by_id.get(entry.id, ()), (one,))
        # Longer patterns come first. Of equally long patterns, the pattern with fewer stars comes first.
        self._wildcards = sorted(self._patterns.items(), key=lambda item: (-len(item[0]), item[0].count("*")))
        # Clients choose the names that match a wildcard, so only a bounded number of them is remembered.
        self._matched: LastUsed[str, Levels] = LastUsed(_CACHED_NAMES)

    def replace(self, table: "ModelTable") -> None:
        """From now on, serve the models of another table. A running request keeps the deployments that it was given."""
        vars(self).update(vars(table))

    def resolve(self, name: str) -> Deployment:
        """The first deployment for that name. Raises UnknownModel."""
        return self._own(name)[0][0]

    def candidates(self, name: str) -> Sequence[Deployment]:
        """Every deployment for that name, without its fallbacks. Raises UnknownModel."""
        return [deployment for level in self._own(name) for deployment in level]

    def levels(self, name: str) -> Levels:
        """Every deployment for that name, the deployments of equal order together, then those of its fallbacks. Raises
        UnknownModel."""
        own = self._own(name)
        if not self._fallbacks:
            return own
        target = self._aliases.get(name, name)
        others = self._stand_ins(self._fallbacks, name)
        return (*own, *(level for other in others if other not in (name, target) for level in self._own(other)))

    def wider(self, name: str) -> Levels:
        """The deployments that serve that name if the context windows of its own deployments are too small: those of
        the names that the configuration gives for it, then those of the names that it gives for these in turn. Raises
        UnknownModel."""
        if not self._wider:
            return ()
        found: list[tuple[Deployment, ...]] = []
        names, seen = [name], {name, self._aliases.get(name, name)}
        for one in names:
            for other in self._stand_ins(self._wider, one):
                target = self._aliases.get(other, other)
                if other not in seen and target not in seen:
                    seen |= {other, target}
                    names.append(other)
                    found += self._own(other)
        return tuple(found)

    def _stand_ins(self, named: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
        return named.get(name) or named.get(self._aliases.get(name, name)) or named.get("*", ())

    def _own(self, name: str) -> Levels:
        target = self._aliases.get(name, name)
        found = self._exact.get(target) or self._by_id.get(target) or self._matched.find(target) or self._match(target)
        if not found:
            shown = name[:_MAX_NAME_CHARS]
            raise UnknownModel(
                f"The model '{shown}' is not in this proxy's model list; GET /v1/models shows it.", param="model"
            )
        return found

    def spellings(self, name: str) -> Sequence[str]:
        """Every name by which clients and the configuration may mean the deployments of ``name``: the entry's name, the
        name with its provider and without it, the target of an alias, and last the name itself."""
        target = self._aliases.get(name, name)
        provider, bare = provider_of(target)
        served = self._served(target)
        further = (f"{provider}/{bare}" if provider else bare, bare, target)
        same = [one for one in further if one == target or (served and self._served(one) == served)]
        general = dict.fromkeys([*(line for line, _ in served), *same])
        return [*(one for one in general if one != name), name]

    def _served(self, name: str) -> list[tuple[str, str]]:
        try:
            return [(one.entry, one.model) for one in self.candidates(name)]
        except UnknownModel:
            return []

    def listed(self) -> Iterator[tuple[str, Deployment]]:
        """Every name that is listed one by one, with each of its deployments."""
        return ((name, deployment) for name in self.names() for deployment in self.candidates(name))

    def _every(self) -> list[Deployment]:
        behind = [deployment_of(entry, self._price_of) for entry in self.wildcards()]
        return [*(deployment for _, deployment in self.listed()), *behind]

    def names(self) -> Sequence[str]:
        """The names that are listed one by one, aliases last; no wildcards."""
        return [name for name in dict.fromkeys([*self._exact, *self._aliases]) if name not in self._hidden]

    def wildcards(self) -> Sequence[ListedModel]:
        """The entries whose name has a star."""
        return [entry for entries in self._patterns.values() for entry in entries]

    def patterns(self) -> Sequence[str]:
        """The names with a star, in the order of the configuration."""
        return list(self._patterns)

    def transports(self) -> frozenset[Transport]:
        """The transports that the deployments use."""
        return frozenset(deployment.transport for deployment in self._every())

    def sole(self) -> Deployment | None:
        """The only upstream, if it is on the http transport and gets all names unchanged; None if there are others."""
        entries = self.wildcards()
        if self._exact or self._aliases or self._fallbacks or [entry.name for entry in entries] != ["*"]:
            return None
        only = deployment_of(entries[0], self._price_of)
        return only if only.transport is Transport.HTTP and only.model == "*" else None

    def known(self, deployment_id: str) -> Deployment | None:
        """The deployment of that id; the first of its group if it is gone; None if the group is also gone."""
        name = deployment_id.rpartition("#")[0] if _NUMBERED.fullmatch(deployment_id) else deployment_id
        found: list[Deployment] = []
        # An entry for any name also serves a model that is named like the number of a deployment.
        for asked in (name,) if name in self._exact else (name, deployment_id):
            with suppress(UnknownModel):
                found += self.candidates(asked)
        return next((one for one in found if one.id == deployment_id), found[0] if found else None)

    def unnamed(self) -> Sequence[Deployment]:
        """The deployments that may serve paths that name no model, one for each upstream: the default's deployment, or
        else those of the entry for every name, or else all. litellm has no such paths. Raises UnknownModel."""
        if self._default:
            return (self.resolve(self._default),)
        of_any_name = [deployment_of(entry, self._price_of) for entry in self._patterns.get("*", ())]
        for transport in (Transport.HTTP, Transport.EMBEDDED):
            for group in (of_any_name, self._every()):
                found: dict[tuple[object, ...], Deployment] = {}
                for one in group:
                    if one.transport is transport:
                        found.setdefault((one.base_url, one.api_key, tuple(one.headers)), one)
                if found:
                    return tuple(found.values())
        raise UnknownModel("This path names no model, and the proxy has no upstream that it could be passed on to.")

    def _match(self, name: str) -> Levels:
        """Find a wildcard that matches a form of the name."""
        for written in forms(name):
            for pattern, entries in self._wildcards:
                if (parts := captured(pattern, written)) is not None:
                    found = [
                        deployment_of(entry, self._price_of, name, _substituted(entry.model, written, parts), suffix)
                        for entry, suffix in _numbered(entries)
                    ]
                    levels = _levels(entries, found)
                    self._matched.put(name, levels)
                    return levels
        return ()


def forms(name: str) -> Sequence[str]:
    """The forms of a name that a wildcard may match: the name itself, or the name with its provider's prefix. So
    ``gpt-5`` is found under ``openai/*``."""
    if len(name) > _MAX_NAME_CHARS:
        return ()
    provider, _ = provider_of(name)
    return (name, f"{provider}/{name}") if provider and "/" not in name else (name,)


def _numbered(entries: Sequence[ListedModel]) -> Iterator[tuple[ListedModel, str]]:
    """The entries of one name, each with the suffix of its id: its number, if there are several."""
    return ((entry, f"#{number}" if len(entries) > 1 else "") for number, entry in enumerate(entries, start=1))


def _levels(entries: Sequence[ListedModel], deployments: Sequence[Deployment]) -> Levels:
    """The deployments of one name by the order of their entries."""
    orders = sorted({entry.order for entry in entries})
    pairs = list(zip(entries, deployments, strict=True))
    return tuple(tuple(one for entry, one in pairs if entry.order == order) for order in orders)


def _substituted(model: str, name: str, parts: Sequence[str]) -> str:
    """``model`` with its stars replaced in turn. If it has fewer stars than there are matched parts, the whole name is
    passed on."""
    if "*" not in model:
        return model
    if len(parts) > model.count("*"):
        return name
    for part in parts:
        model = model.replace("*", part, 1)
    return model


def litellm_file(name: str) -> Path | None:
    """A file of litellm's package; None if litellm or the file is missing."""
    spec = find_spec("litellm")
    found = [Path(folder, name) for folder in (spec.submodule_search_locations or () if spec is not None else ())]
    return next((path for path in found if path.is_file()), None)


# The map's keys of these providers, and of servers that are not known, have no prefix.
_UNPREFIXED = frozenset({"", "openai", "anthropic"})


def bundled_price_file() -> Path | None:
    """The path of the installed litellm's price map; None if litellm or the file is missing."""
    return litellm_file("model_prices_and_context_window_backup.json")


def bundled_prices() -> dict[str, Entry]:
    """The rows of the installed litellm's price map, by model; none if litellm or the file is missing. Raises OSError
    or ValueError if the file cannot be read."""
    source = bundled_price_file()
    loaded = orjson.loads(source.read_bytes()) if source is not None else {}
    if not isinstance(loaded, dict):
        raise ValueError("litellm's price map is none: an object of models is expected")
    return without_aliases({name: row for name, row in loaded.items() if isinstance(row, dict)})


def load_price_map(overrides: Mapping[str, Entry] | None = None) -> PriceMap:
    """The price map of the installed litellm, together with our own entries. Raises OSError or ValueError if its file
    cannot be read."""
    ours = {name: dict[str, object](row) for name, (row, _) in PRICES.items()}
    entries = {name: kept for name, entry in bundled_prices().items() if (kept := needed(entry))}
    return PriceMap({**ours, **entries}, overrides)


# https://developers.openai.com/api/docs/pricing, and for Vertex https://cloud.google.com/vertex-ai/generative-ai/pricing.
_REGIONAL_HOSTS = {"eu.api.openai.com": "eu", "us.api.openai.com": "us", "gov.api.openai.com": "fedramp"}
_VERTEX_PLACES = ("vertex_location", "vertex_ai_location")


def _region(deployment: Deployment) -> str:
    """The region by which the price map may have other prices for a deployment. Vertex's models are called in a region
    unless the configuration says ``global``."""
    if any(name.startswith("vertex_ai") for name in (deployment.server, deployment.model)):
        place = next(filter(None, map(deployment.params.get, _VERTEX_PLACES)), "")
        return "" if place == "global" else "vertex"
    return _REGIONAL_HOSTS.get(urlsplit(deployment.base_url).hostname or "", "")


def price_for(prices: PriceMap, deployment: Deployment) -> Price | None:
    """The price of a deployment's tokens.

    The configuration comes first: a price for the deployment's own name, prices among its litellm_params, its
    ``price_key``. Then the upstream's name of the model is looked up, with the provider's prefix (by its host) and
    without it. The deployment's own name is not looked up in the map: it is an alias, and may be the name of another
    model. The greatest lengths of prompt and answer come from the configuration, or else from the map, even if the
    configuration gives the price.
    """
    if (given := prices.given.get(deployment.name)) is None and "input_cost_per_token" in deployment.params:
        given = price_in(deployment.params)
    names = tuple(_names_in_map(deployment))
    known, alias_of = prices.price(*names), prices.alias_of(*names)
    found = given or (known and known.in_region(_region(deployment)))
    if found is None or (given is None and deployment.max_input_tokens is None and not alias_of):
        return found
    longest = found.max_output_tokens or (known.max_output_tokens if known is not None else None)
    window = deployment.max_input_tokens or (known.extras.max_input_tokens if known is not None else None)
    extras = replace(found.extras, max_input_tokens=window)
    return replace(found, max_output_tokens=longest, alias_of=alias_of, extras=extras)


def _names_in_map(deployment: Deployment) -> Iterator[str]:
    provider, model = deployment.server if deployment.base_url else "", deployment.model
    place = deployment.params.get("aws_region_name")
    if place and deployment.price_key == model and model.startswith("bedrock"):
        # As litellm does, if the entry itself names the region: some models have a row for each region.
        yield f"{model.partition('/')[0]}/{place}/{model.rpartition('/')[2]}"
    yield deployment.price_key
    yield model if provider in _UNPREFIXED else f"{provider}/{model}"
    yield model
    yield model.partition("/")[2]  # in litellm's names, a prefix tells the provider


def token_limits(deployment: Deployment) -> tuple[int | None, int | None]:
    """The most tokens that a deployment's model reads and writes. None if neither the configuration nor the price map
    knows a number."""
    if (price := deployment.price) is None:
        return deployment.max_input_tokens, None
    return price.extras.max_input_tokens, price.max_output_tokens


_TIER_PRICE = re.compile(r"input_cost_per_token(_above_\d+k_tokens)")
_CACHE_PRICES = ("cache_read_input_token_cost", "cache_creation_input_token_cost")
_PROVIDERS_SUMS = {
    "perplexity": "litellm bills reads and writes of the cache as plain input, or takes the provider's own sum",
    "together_ai": "litellm takes the price of a size that it finds in the name",
}


def deviation_of(name: str, entry: Mapping[str, object]) -> str:
    """Why litellm's sum for a model, by its name in the map, differs from ours; empty if it does not differ."""
    if "off_peak_pricing" in entry:
        return "litellm takes the price of the hour; ours is the one outside of its cheap hours"
    if name.startswith("gemini-exp"):
        return "litellm takes experimental models for free"
    tiers = [match[1] for match in map(_TIER_PRICE.fullmatch, entry) if match]
    if any(key in entry and key + tier not in entry for tier in tiers for key in _CACHE_PRICES):
        return "a longer prompt's missing price of a read or write keeps its proportion to the input price here"
    return _PROVIDERS_SUMS.get(str(entry.get("litellm_provider")), "")

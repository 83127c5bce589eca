"""Turns settings into the parts that the app is made of.

First, the store of earlier versions is looked for. Then come the fixed words of the proxy, read from the shipped files
of ``prompts/``. Each reader raises ValueError for a file that is missing, unreadable or empty.

Then come prices, the model table, the limits of what the proxy does by itself, and the store with its files. The
entries of the model list stand at the end.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from proxy.app.settings import (
    NO_BASE,
    ConfigError,
    Environment,
    ModelEntry,
    Settings,
    is_base,
    nearest,
    weights_of,
)
from proxy.context.assembly import AssemblyTexts, ContextTexts
from proxy.context.history import DetachTerms
from proxy.context.history.compaction import CompactionTerms, CompactionTexts
from proxy.context.panels import PanelTexts
from proxy.context.session import AssemblyOptions
from proxy.engine import BodyLimits, RequestRules
from proxy.kit.errors import StoreError, UnknownModel
from proxy.kit.modes import Mode
from proxy.models import RateLimit, Transport
from proxy.models.deployments import (
    ListedModel,
    ModelTable,
    forms,
    load_price_map,
    price_for,
    provider_names,
    provider_of,
    token_limits,
)
from proxy.planner.tiers import ClassicPolicy
from proxy.prompts.window import PartName, WindowTexts
from proxy.protocol.access import matches
from proxy.protocol.prices import PriceMap
from proxy.protocol.providers import PROFILES, provider_at
from proxy.services.own_exchanges import DailyTerms, RefreshTerms
from proxy.services.prompting.sources import SHIPPED
from proxy.storage import Store
from proxy.storage.database import SERVING_WAIT_S
from proxy.storage.sqlite import MemoryStore, SqliteStore
from proxy.teams.authentication import is_loopback
from proxy.teams.estimates import PriceOf

if TYPE_CHECKING:
    from proxy.engine.telemetry.spans import Spans


_store_log = logging.getLogger("stratiform.store")


def refuse_earlier_store(settings: Settings) -> None:
    """Refuse to begin a new store beside the file of earlier versions, which all configurations of a user shared: what
    was spent would be forgotten. Of settlements that an earlier version could not write to a Redis, the place is only
    logged, because they may be those of any Redis. Raises ConfigError."""
    before = replace(settings, state_folder=settings.state_folder.parent)
    old, new, spool = before.store_path, settings.store_path, before.spool_folder
    if settings.store_url is not None and spool != settings.spool_folder and any(spool.glob("*.spool")):
        _store_log.warning(
            "%s holds settlements of an earlier version: stratiform.spool with this folder books them", spool
        )
    if old is not None and new is not None and old != new and old.exists() and not new.exists():
        raise ConfigError([
            f"stratiform.store: {old} is the store of an earlier version, for all configurations: move it to {new} and "
            f"{spool} to {settings.spool_folder}, or name it (sqlite:{old})"
        ])  # fmt: skip


_FRONT_MATTER = re.compile(r"\A[ \t]*+---[ \t\r]*+\n.*?^[ \t]*+---[ \t\r]*+$\n?", re.DOTALL | re.MULTILINE)
_ACKNOWLEDGEMENTS = frozenset({"ok", "urls_ok", "review_ok"})
_IN_MESSAGE = (PartName.INSTRUCTION, PartName.SELECTION, PartName.PREFIX, PartName.SUFFIX)


def prompt_text(file: Path) -> str:
    """The text of a prompt's file without its front matter and without the blank lines around it. It is otherwise
    unchanged, byte for byte. Raises ValueError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read") from error
    front = _FRONT_MATTER.match(text)
    text = text[front.end() if front else 0 :].strip("\r\n")
    if not text.strip():
        raise ValueError(f"{file} holds no text")
    return text


def load_context_texts() -> ContextTexts:
    """The fixed words with which structured context is assembled. Raises ValueError."""
    return ContextTexts(load_assembly_texts(), load_panel_texts(), load_compaction_texts())


def load_assembly_texts() -> AssemblyTexts:
    """The texts of the files in ``prompts/tiered_assembly``, one for each field. A header is followed by a blank line.
    Raises ValueError."""
    names = [field.name for field in fields(AssemblyTexts)]
    ends = {name: "" if name in _ACKNOWLEDGEMENTS else "\n\n" for name in names}
    return AssemblyTexts(
        **{name: prompt_text(SHIPPED / "tiered_assembly" / f"{name}.md") + ends[name] for name in names}
    )


def load_compaction_texts() -> CompactionTexts:
    """The texts around a summary, and those that ask for one. Raises ValueError."""
    return CompactionTexts(
        prompt=prompt_text(SHIPPED / "compaction.md"),
        header=prompt_text(SHIPPED / "history_summary.md"),
        ok=prompt_text(SHIPPED / "history_summary_ok.md"),
    )


def load_panel_texts() -> PanelTexts:
    """The texts of ``panels.md``, one for each field, under a heading with the field's name. Raises ValueError."""
    parts = f"\n{prompt_text(SHIPPED / 'panels.md')}".split("\n## ")[1:]
    named = {name.strip(): text.strip("\r\n") for name, _, text in (part.partition("\n") for part in parts)}
    return PanelTexts(**named)


def load_window_texts() -> WindowTexts:
    """The words around the parts of a request. The words around a summary are the same as for a compaction. Raises
    ValueError."""
    summary = load_compaction_texts()
    above = {name: prompt_text(SHIPPED / "window" / f"{name}.md") for name in _IN_MESSAGE}
    return WindowTexts({**above, PartName.SUMMARY: summary.header}, summary.ok)


_log = logging.getLogger("stratiform")

# The addresses that `transport: http` calls if there is no api_base.
_HOMES = {
    "openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
}
_SALTED = ("vllm", "sglang")
_PROMPT_ID = re.compile(r"[a-z0-9_]{1,64}")
_PRICE_SUFFIXES = ("_cost_per_token", "_token_cost", "_token_cost_above_1hr")


def price_map(settings: Settings) -> PriceMap:
    """The prices of the configuration, and litellm's prices where the configuration has none."""
    return load_price_map(overrides=price_overrides(settings))


def price_overrides(settings: Settings) -> dict[str, dict[str, object]]:
    """The configuration's own prices, with the field names of litellm's map."""
    return {name: price.model_dump(exclude_none=True) for name, price in settings.stratiform.prices.items()}


def model_table(settings: Settings, prices: PriceMap) -> ModelTable:
    """The model table from the model list and ``--upstream``. Raises ConfigError."""
    table, problems = model_table_with(settings, prices)
    if problems:
        raise ConfigError(problems)
    return table


def model_table_with(settings: Settings, prices: PriceMap) -> tuple[ModelTable, list[str]]:
    """The model table from the valid part of the configuration, and the problems of the rest."""
    default = settings.stratiform.default_model or ""
    lines, problems = entries_with(settings)
    listed = _names(lines)
    table = ModelTable(
        lines,
        price_source(prices),
        {alias: target for alias, target in settings.aliases.items() if _is_served(target, listed)},
        settings.routing.fallbacks,
        default,
        settings.routing.context_window_fallbacks,
        settings.hidden,
    )
    try:
        if default and table.resolve(default).transport is Transport.LITELLM:
            problems.append(
                f"stratiform.default_model: `{default}` is served through litellm, which has none of the paths that "
                "name no model"
            )
    except UnknownModel:
        problems.append(f"stratiform.default_model: `{default}` is not in model_list")
    return table, problems


def entries_with(settings: Settings) -> tuple[list[ListedModel], list[str]]:
    """The lines of the model table from the valid part of the configuration, and the problems of the rest. The lines of
    the file come in their order, then ``--upstream``."""
    problems: list[str] = []
    lines = list(_entries(settings, problems))
    listed = _names(lines)
    problems += [
        f"router_settings.model_group_alias.{alias}: leads to `{target}`, which is not in model_list"
        for alias, target in settings.aliases.items()
        if not _is_served(target, listed)
    ]
    problems += [
        f"{path}: leads to `{target}`, which is not in model_list"
        for path, target in settings.routing.targets
        if not _is_served(target, listed | settings.aliases.keys())
    ]
    return lines, problems


def _names(lines: Sequence[ListedModel]) -> set[str]:
    return {name for line in lines for name in (line.name, line.id if "*" not in line.name else "") if name}


def _is_served(name: str, listed: Collection[str]) -> bool:
    """Whether the model table finds a name, by a name in it or by a wildcard."""
    is_exact = "*" not in name and name in listed
    return is_exact or any(matches(one, form) for one in listed if "*" in one for form in forms(name))


def keep_alive_terms(settings: Settings) -> RefreshTerms | None:
    """The cost limits of prefix refreshes; None if refreshes are off. Workers share a team's cap evenly."""
    given, workers = settings.stratiform.keep_alive, settings.stratiform.workers
    if not given.enabled:
        return None
    return RefreshTerms(
        usd_per_day=given.usd_per_day / workers,
        teams={team: usd / workers for team, usd in given.teams.items()},
        own_keys=given.own_keys,
        max_sessions=given.max_sessions,
        max_bytes=int(given.max_mib * (1 << 20)),
    )


def compaction_costs(settings: Settings) -> DailyTerms | None:
    """The cost limits of compactions; None if they are not allowed. Workers share a team's cap evenly."""
    given, workers = settings.stratiform.structured.compaction, settings.stratiform.workers
    return DailyTerms(given.usd_per_day / workers, own_keys=given.own_keys) if given.allowed else None


def is_watched(settings: Settings) -> bool:
    """Whether anybody may look at sessions: with the master key, or because the pages are for this machine alone."""
    ours = settings.stratiform
    return settings.master_key is not None or (ours.ui.enabled and is_loopback(ours.host))


def upstream_profile(settings: Settings) -> str:
    """The cache rules that hold at ``--upstream``, in words for the log."""
    provider = provider_at(urlsplit(settings.upstream).hostname or "")
    unknown = "openai for GPT models and none for others: --cache-profile NAME says which rules hold at this server"
    return settings.upstream_profile or (f"by the model's name at {provider}" if provider else unknown)


def request_rules(settings: Settings) -> RequestRules:
    """The limits of a request, and how often it is tried."""
    ours, routing = settings.stratiform, settings.routing
    return RequestRules(
        BodyLimits(body_bytes=int(ours.limits.max_body_mib * (1 << 20)), receive_s=ours.limits.receive_s),
        routing.retries,
        trust_time_header=ours.clock == "header",
        window_of=(lambda deployment: token_limits(deployment)[0]) if routing.checks_windows else None,
        tells_id=ours.request_id,
    )


def assembly_options(settings: Settings) -> AssemblyOptions:
    """How structured context is assembled."""
    ours, given = settings.stratiform, settings.stratiform.structured.classic
    detach, compaction = ours.structured.detach, ours.structured.compaction
    policy = ClassicPolicy(**given.model_dump(exclude={"cache_target_tokens"}))
    if given.cache_target_tokens is not None:
        policy = replace(policy, target_tokens=given.cache_target_tokens)
    return AssemblyOptions(
        policy=ours.policy,
        classic=policy,
        has_target=given.cache_target_tokens is not None,
        text_bytes=int(ours.structured.text_mib * (1 << 20)),
        session_bytes=ours.limits.state_bytes // 8,
        detach=DetachTerms(**detach.model_dump(exclude={"enabled"})) if detach.enabled else None,
        compaction=CompactionTerms(
            min_history_tokens=compaction.min_history_tokens,
            verbatim_tokens=compaction.verbatim_tokens,
            summary_tokens=compaction.summary_tokens,
            keep_exchanges=compaction.keep_exchanges,
        ),
        repeats_for=frozenset(ours.structured.panels.repeat_system_for),
        keeps_alive=keep_alive_terms(settings) is not None,
    )


def price_source(prices: PriceMap) -> PriceOf:
    """A function that gives the price of a deployment's tokens."""
    return partial(price_for, prices)


async def open_store(settings: Settings, busy_timeout_s: float = SERVING_WAIT_S, *, is_serving: bool = False) -> Store:
    """The store of the configuration. ``busy_timeout_s`` is how long to wait for a file that other processes write to.
    Raises ConfigError if the store cannot be used. A Redis is connected to by its first call. If requests are to be
    served, a file that is damaged or on a full disk counts as a store that is away."""
    refuse_earlier_store(settings)
    if settings.store_url is not None:
        # The import takes a third of the start time, so only configurations with a Redis do it.
        from proxy.storage.redis import RedisStore

        return RedisStore(settings.store_url.get_secret_value(), ca_file=settings.store_ca)
    if (path := settings.store_path) is None:
        return MemoryStore()
    try:
        opened = await SqliteStore.open(path, busy_timeout_s, is_patient=is_serving)
        if is_serving:
            await opened.check()
        return opened
    except (StoreError, OSError) as error:
        if settings.stratiform.store is None and not settings.stratiform.teams:
            # The configuration asks for no file: an existing LiteLLM configuration with a master key must start as it
            # is.
            _log.warning("%s cannot be used (%s): keys and spend are in memory and end with the process", path, error)
            return MemoryStore()
        advice = "choose another file (sqlite:PATH) or memory"
        raise ConfigError([f"stratiform.store: {path} cannot be used ({error}); {advice}"]) from error


def epoch_file(settings: Settings) -> Path:
    """The file that remembers the epoch of the configuration's store. Each address of a store has its own file, because
    an operator who configures another store wants another one."""
    return settings.spool_folder / f"epoch-{blake2b(settings.store_name.encode(), digest_size=8).hexdigest()}"


def refuse_without_otel(settings: Settings) -> None:
    """Refuse a collector if the library that sends to it is missing. Raises ConfigError."""
    if settings.stratiform.otel.endpoint is not None and not _is_installed("opentelemetry.exporter.otlp.proto.http"):
        raise ConfigError(["stratiform.otel.endpoint: needs more: pip install 'stratiform[otel]'"])


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def spans_of(settings: Settings) -> "Spans | None":
    """The maker of spans; None if no collector is configured. Raises ConfigError if the extra for it is missing."""
    given = settings.stratiform.otel
    if given.endpoint is None:
        return None
    refuse_without_otel(settings)
    # Only configurations with a collector import this.
    from proxy.engine.telemetry.spans import Spans

    headers = {name: value.get_secret_value() for name, value in given.headers.items()}
    has_sampler = Environment.of_process().get("OTEL_TRACES_SAMPLER") is not None
    return Spans(given.endpoint, headers, given.service, has_sampler=has_sampler)


def _entries(settings: Settings, problems: list[str]) -> Iterator[ListedModel]:
    weights, providers = weights_of(settings.models), provider_names()
    for index, (entry, weight) in enumerate(zip(settings.models, weights, strict=True)):
        path = f"model_list[{index}]"
        listed = replace(listed_model(entry, path, settings, problems), weight=weight, line=index)
        if not listed.base_url:  # by an address that it knows, litellm finds a provider that is not named
            problems += unknown_provider(listed, path, providers)
        organizations = entry.litellm_params.organization or []
        if isinstance(organizations, str):
            organizations = [organizations]
        shared = replace(listed, weight=weight / max(1, len(organizations)))
        # Each organization has its own deployment, as in LiteLLM. Header fields of the entry come last: they win.
        yield from (replace(shared, headers=(("openai-organization", one), *shared.headers)) for one in organizations)
        if not organizations:
            yield listed
    if settings.upstream:
        # The client's name of the model is passed on unchanged, whatever prefix it has.
        yield ListedModel(
            name="*",
            model="openai/*",
            transport=Transport.HTTP,
            profile=PROFILES[settings.upstream_profile] if settings.upstream_profile else None,
            base_url=settings.upstream,
            mode=Mode.parse(settings.stratiform.mode),
            timeout_s=settings.timeout_s,
        )


def unknown_provider(entry: ListedModel, path: str, providers: Collection[str]) -> Iterator[str]:
    """The problem of an entry whose provider litellm does not know. If ``providers`` is empty, nothing is reported."""
    provider, _ = provider_of(entry.model, entry.provider)
    is_ours = entry.transport in (Transport.HTTP, Transport.EMBEDDED) or provider == Transport.EMBEDDED
    if providers and provider and "*" not in provider and not is_ours and provider not in providers:
        close = nearest(provider, [*providers, Transport.EMBEDDED])
        advice = f"; did you mean `{close}`?" if close else ""
        key = "custom_llm_provider" if entry.provider else "model"
        yield f"{path}.litellm_params.{key}: names a provider that litellm does not know{advice}"


def listed_model(entry: ModelEntry, path: str, settings: Settings, problems: list[str]) -> ListedModel:
    """An entry of the model list as a line of the model table. ``path`` is the entry's place in the configuration. Its
    problems are added to ``problems``."""
    given, info = entry.litellm_params, entry.model_info
    provider, _ = provider_of(given.model, given.custom_llm_provider or "")
    transport = Transport(info.transport) if info.transport else None
    home = _HOMES.get(provider, "") if transport is Transport.HTTP else ""
    base_url = given.api_base or given.base_url or home
    if transport is Transport.HTTP and not base_url:
        problems.append(f"{path}.litellm_params.api_base: is required for the http transport")
    is_http = transport is Transport.HTTP or (transport is None and provider == "openai" and bool(base_url))
    if is_http and not is_base(base_url):
        problems.append(f"{path}.litellm_params.api_base: {NO_BASE}")
    if info.session_header and not is_http:
        problems.append(f"{path}.model_info.session_header: is sent on the http transport alone: use openai/NAME there")
    if info.cache_salt and info.cache_profile not in _SALTED:
        problems.append(f"{path}.model_info.cache_salt: needs cache_profile: {' or '.join(_SALTED)}")
    # As in LiteLLM, the rates of ``litellm_params`` come before those of ``model_info``.
    rpm, tpm = (
        next((int(rate) for part in (given, info) if (rate := getattr(part, name)) is not None), None)
        for name in ("rpm", "tpm")
    )
    is_limited = settings.routing.enforces_rates and not (rpm is None and tpm is None)
    # An entry's mode can lower the mode of the whole proxy, but never raise it.
    modes = [Mode.parse(name) for name in (settings.stratiform.mode, info.mode) if name]
    return ListedModel(
        name=entry.model_name,
        model=given.model,
        provider=given.custom_llm_provider or "",
        transport=transport,
        profile=PROFILES[info.cache_profile] if info.cache_profile else None,
        base_url=base_url,
        api_key=given.api_key.get_secret_value() if given.api_key else None,
        headers=tuple((name.lower(), value) for name, value in (given.extra_headers or {}).items()),
        params=_params(entry, settings),
        price_key=info.base_model or "",
        mode=min(modes),
        reminder=_reminder(info.system_reminder, settings.folder, path, problems),
        timeout_s=given.timeout or settings.timeout_s,
        order=given.order or 0,
        id=info.id or "",
        max_input_tokens=info.max_input_tokens,
        session_header=info.session_header or "",
        salts_cache=info.cache_salt is not None,
        groups=tuple(info.access_groups or ()),
        rates=RateLimit("", rpm, tpm) if is_limited else None,
    )


def _params(entry: ModelEntry, settings: Settings) -> Mapping[str, object]:
    """The further parameters of the deployment. The litellm transport gets them, and prices are found in them."""
    params: dict[str, object] = dict(entry.litellm_params.model_extra or {})
    if entry.litellm_params.custom_llm_provider:
        params["custom_llm_provider"] = entry.litellm_params.custom_llm_provider
    if settings.drop_params is not None:
        params.setdefault("drop_params", settings.drop_params)
    if settings.vertex_location and entry.litellm_params.model.startswith("vertex_ai"):
        params.setdefault("vertex_location", settings.vertex_location)
    for key, value in (entry.model_info.model_extra or {}).items():
        if key.endswith(_PRICE_SUFFIXES):
            params.setdefault(key, value)
    return params


def _reminder(wanted: bool | str, folder: Path, path: str, problems: list[str]) -> str:
    """The text of the reminder that a model's config asks for: the shipped text, a file of ``prompts/`` by its id, or
    any file by its path."""
    if wanted is False:
        return ""
    name = "system_reminder" if wanted is True else wanted
    shipped = SHIPPED / f"{name}.md"
    is_shipped = wanted is True or (_PROMPT_ID.fullmatch(name) is not None and shipped.is_file())
    try:
        return prompt_text(shipped if is_shipped else folder / Path(name).expanduser()).strip()
    except ValueError as error:
        problems.append(f"{path}.model_info.system_reminder: {error}")
        return ""

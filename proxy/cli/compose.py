"""Turns settings into the parts that the app is made of: model table, prices, admission, spend store."""

import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import proxy
from proxy.budget import Budgets, PriceOf
from proxy.core.budget import Limit
from proxy.core.modes import Mode
from proxy.core.prices import PriceMap
from proxy.core.profiles import PROFILES
from proxy.deployments import Entry, ModelTable, provider_of
from proxy.identity import DEFAULT_TEAM, Identity, KeyList
from proxy.ports import SpendStore, StoreError, Transport
from proxy.price_map import load_price_map, price_for
from proxy.settings import ConfigError, LiteLLMParams, ModelEntry, Settings
from proxy.state.memory import MemoryStore
from proxy.state.sqlite import SqliteStore

# Where `transport: http` goes without an api_base.
_HOMES = {
    "openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
}
_PRICE_SUFFIXES = ("_cost_per_token", "_token_cost", "_token_cost_above_1hr")


def price_map(settings: Settings) -> PriceMap:
    """litellm's prices under those of the configuration."""
    overrides = {name: price.model_dump(exclude_none=True) for name, price in settings.stratiform.prices.items()}
    return load_price_map(overrides=overrides)


def model_table(settings: Settings, prices: PriceMap) -> ModelTable:
    """The model list and ``--upstream``. Raises ConfigError."""
    return ModelTable(entries(settings), price_source(prices), settings.aliases)


def entries(settings: Settings) -> list[Entry]:
    """The lines of the model table: those of the file in their order, then ``--upstream``. Raises ConfigError."""
    problems: list[str] = []
    lines = list(_entries(settings, problems))
    listed = {entry.name for entry in lines}
    problems += [
        f"router_settings.model_group_alias.{alias}: leads to `{target}`, which is not in model_list"
        for alias, target in settings.aliases.items()
        if target not in listed and not any("*" in name for name in listed)
    ]
    if problems:
        raise ConfigError(problems)
    return lines


def price_source(prices: PriceMap) -> PriceOf:
    """What a deployment's tokens cost, as a function."""
    return partial(price_for, prices)


async def open_store(settings: Settings) -> SpendStore:
    """The spend store of the configuration. Raises ConfigError where its file cannot be used."""
    path = settings.store_path
    if path is None:
        return MemoryStore()
    try:
        return await SqliteStore.open(path)
    except StoreError as error:
        advice = "choose another file (sqlite:PATH) or memory"
        raise ConfigError([f"stratiform.store: {path} cannot be used ({error}); {advice}"]) from error


def identity(settings: Settings, salt: bytes | None = None) -> Identity:
    """Who may send requests. Keys are hashed with a salt of this process."""
    keys = [
        KeyList(
            team=team.name,
            keys=tuple(key.get_secret_value() for key in team.keys),
            mode=Mode.parse(team.mode) if team.mode else Mode.TIER,
        )
        for team in settings.stratiform.teams
    ]
    if settings.master_key is not None:
        keys.append(KeyList(team=DEFAULT_TEAM, keys=(settings.master_key.get_secret_value(),)))
    return Identity(keys, salt or secrets.token_bytes(32))


def budgets(settings: Settings, store: SpendStore, prices: PriceMap) -> Budgets:
    """What teams may spend."""
    ours = settings.stratiform
    limits = {
        team.name: Limit(team.budget.usd, team.budget.assumed_output_tokens) if team.budget else None
        for team in ours.teams
    }
    return Budgets(limits, store, price_source(prices), ours.budgets.on_store_error)


def _entries(settings: Settings, problems: list[str]) -> Iterator[Entry]:
    for index, entry in enumerate(settings.models):
        yield _entry(entry, f"model_list[{index}]", settings, problems)
    if settings.upstream:
        # What the client calls the model is passed on unchanged, whatever prefix it has.
        yield Entry(
            name="*",
            model="openai/*",
            transport=Transport.HTTP,
            base_url=settings.upstream,
            mode=Mode.parse(settings.stratiform.mode),
            timeout_s=settings.timeout_s,
        )


def _entry(entry: ModelEntry, path: str, settings: Settings, problems: list[str]) -> Entry:
    given, info = entry.litellm_params, entry.model_info
    provider, _ = provider_of(given.model, given.custom_llm_provider or "")
    transport = Transport(info.transport) if info.transport else None
    base_url = given.api_base or given.base_url or ""
    if transport is Transport.HTTP and not base_url:
        base_url = _HOMES.get(provider, "")
        if not base_url:
            problems.append(f"{path}.litellm_params.api_base: is required for the http transport")
    # An entry's mode lowers the mode of the whole, never raises it.
    modes = [Mode.parse(name) for name in (settings.stratiform.mode, info.mode) if name]
    return Entry(
        name=entry.model_name,
        model=given.model,
        provider=given.custom_llm_provider or "",
        transport=transport,
        profile=PROFILES[info.cache_profile] if info.cache_profile else None,
        base_url=base_url,
        api_key=given.api_key.get_secret_value() if given.api_key else None,
        headers=tuple(_headers(given)),
        params=_params(entry, settings),
        price_key=info.base_model or "",
        mode=min(modes),
        reminder=_reminder(info.system_reminder, settings.folder, path, problems),
        timeout_s=given.timeout or settings.timeout_s,
    )


def _headers(given: LiteLLMParams) -> Iterator[tuple[str, str]]:
    if given.organization:
        yield "openai-organization", given.organization
    for name, value in (given.extra_headers or {}).items():
        yield name.lower(), value


def _params(entry: ModelEntry, settings: Settings) -> Mapping[str, object]:
    """What else is said about the deployment; the litellm transport is handed it, prices are found in it."""
    params: dict[str, object] = dict(entry.litellm_params.model_extra or {})
    if entry.litellm_params.custom_llm_provider:
        params["custom_llm_provider"] = entry.litellm_params.custom_llm_provider
    if settings.drop_params is not None:
        params.setdefault("drop_params", settings.drop_params)
    for key, value in (entry.model_info.model_extra or {}).items():
        if key.endswith(_PRICE_SUFFIXES):
            params.setdefault(key, value)
    return params


def _reminder(wanted: bool | str, folder: Path, path: str, problems: list[str]) -> str:
    """The text of the reminder that a model's config asks for: the one that comes along, or a file's."""
    if wanted is False:
        return ""
    file = system_reminder_file() if wanted is True else folder / Path(wanted).expanduser()
    try:
        text = without_front_matter(file.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError):
        problems.append(f"{path}.model_info.system_reminder: {file} cannot be read")
        return ""
    if not text:
        problems.append(f"{path}.model_info.system_reminder: {file} holds no text")
    return text


def system_reminder_file() -> Path:
    """The reminder that comes along: ``prompts/system_reminder.md``, beside the package."""
    return Path(proxy.__file__).parent.parent / "prompts" / "system_reminder.md"


def without_front_matter(text: str) -> str:
    """A prompt file's text without the block between ``---`` lines at its head."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return text
    for index, line in enumerate(lines[1:], start=1):
        if line.strip() == "---":
            return "".join(lines[index + 1 :])
    return text

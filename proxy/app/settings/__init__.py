"""Reads the configuration: LiteLLM's config.yaml with its ``stratiform`` section, and the environment.

It is read once at the start and once for each reload. Checked, frozen settings come out, or ``ConfigError``. This
package never starts anything.

An existing LiteLLM file works as it is. All problems are reported at once, each with the path of its key. Keys that
LiteLLM would use and Stratiform does not are listed in ``Settings.unused``.

At the end, the operator's folders that have the name of one of our packages are found. They are reported or refused,
never imported silently. ``stratiform`` itself does not look for modules in the working folder. ``python -m``,
``PYTHONPATH`` and LiteLLM, which looks for callbacks beside its configuration, do.
"""

import os
import ssl
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, SecretStr, ValidationError

import proxy
from proxy.app.settings.litellm_schema import (
    NO_BASE,
    FailureRules,
    LiteLLMSettings,
    Loose,
    ModelEntry,
    ModelInfo,
    http_url,
    is_base,
    routing_of,
    weights_of,
)
from proxy.app.settings.prompts import AllowedPrompts, PromptLevel, profiles_of
from proxy.app.settings.schema import MOST_WORKERS, BudgetEntry, ConfigFile, Key, Limits, Stratiform, Team
from proxy.app.settings.unsupported import IGNORE_FLAG, Effect, Unused, unused, unused_on_http
from proxy.kit.messages import (
    ConfigError,
    Environment,
    Mistakes,
    Places,
    explain,
    export,
    nearest,
    own_folder,
    read_yaml,
    state_folder,
    without,
)
from proxy.kit.value import dataclass, field, replace
from proxy.prompts.window import BUILT_IN, CapabilityProfile
from proxy.teams.authentication import digest_of
from proxy.teams.validation import window_of

__all__ = [
    "NO_BASE",
    "is_base",
    "IGNORE_FLAG",
    "MOST_WORKERS",
    "NO_SHARED_STORE",
    "AllowedPrompts",
    "BudgetEntry",
    "ConfigError",
    "Effect",
    "Environment",
    "Key",
    "Limits",
    "Mistakes",
    "ModelEntry",
    "ModelInfo",
    "PromptLevel",
    "FailureRules",
    "Settings",
    "Stratiform",
    "Team",
    "Unused",
    "export",
    "load",
    "load_section",
    "nearest",
    "places",
    "read",
    "refuse_shadowed",
    "shadowing",
    "unused_on_http",
    "weights_of",
]

NO_SHARED_STORE = (
    "more than one worker needs a store that they share, or each would count budgets for itself: "
    "set stratiform.store to redis://HOST:PORT/DB"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration that was read and is valid. Its relative paths are relative to ``folder``. Its state is in
    ``state_folder``, which no other configuration uses."""

    stratiform: Stratiform = field(default_factory=Stratiform)
    models: tuple[ModelEntry, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    """The aliases that are not listed."""
    master_key: SecretStr | None = None
    upstream: str = ""
    upstream_profile: str = ""
    """The cache profile of ``upstream``, if the command line names one."""
    timeout_s: float = 600.0
    drop_params: bool | None = None
    budget: BudgetEntry | None = None
    """LiteLLM's ``max_budget``: the most that all requests without a team may cost together."""
    routing: FailureRules = field(default_factory=FailureRules)
    profiles: Mapping[str, CapabilityProfile] = field(default_factory=lambda: BUILT_IN)
    """The capability profiles, with the values that the environment sets."""
    folder: Path = Path()
    state_folder: Path = Path()
    allowed_ips: Sequence[IPv4Network | IPv6Network] = ()
    """The addresses from which clients may connect. If it is empty, all addresses are allowed."""
    exported: Mapping[str, str] = field(default_factory=dict, repr=False)
    vertex_location: str = ""
    """The location of Vertex models whose entry names none, as litellm reads it from the environment."""
    unused: tuple[Unused, ...] = ()
    """The keys that LiteLLM would use and Stratiform does not."""

    def path(self, text: str) -> Path:
        """A path of the configuration."""
        return self.folder / Path(text).expanduser()

    @property
    def prompt_folders(self) -> list[Path]:
        return [self.path(folder) for folder in self.stratiform.prompts.folders]

    @property
    def bounds_all(self) -> str:
        """LiteLLM's key that limits the requests of all clients together; empty if there is none."""
        key = "router_settings.optional_pre_call_checks" if self.routing.enforces_rates else ""
        return "litellm_settings.max_budget" if self.budget is not None else key

    @property
    def store_path(self) -> Path | None:
        """The file in which spend is kept; None for memory and Redis.

        If the configuration names no store, it is a file in its own state folder if there is a team, or a master key
        with which teams can be made. Otherwise spend is kept in memory.
        """
        if (store := self.stratiform.store) is None:
            is_used = self.stratiform.teams or self.master_key is not None or self.budget is not None
            return self.state_folder / "spend.sqlite" if is_used else None
        if store == "memory" or self.store_url is not None:
            return None
        return self.path(store.removeprefix("sqlite:"))

    @property
    def spool_folder(self) -> Path:
        """The folder in which settlements wait while the store is away: by default beside the store's file, else in the
        state folder of the configuration."""
        if self.stratiform.spool is not None:
            return self.path(self.stratiform.spool)
        path = self.store_path
        return path.with_name(f"{path.name}.spool") if path is not None else self.state_folder / "spool"

    @property
    def spool_fallback(self) -> Path:
        """The folder for settlements that neither the store nor the spool takes when the proxy ends. By default it is
        in the system's temporary folder, for this user and this spool alone."""
        if self.stratiform.spool_fallback is not None:
            return self.path(self.stratiform.spool_fallback)
        name = blake2b(os.fsencode(self.spool_folder.absolute()), digest_size=6).hexdigest()
        return Path(gettempdir()) / f"stratiform-{os.geteuid()}-{name}"

    @property
    def store_url(self) -> SecretStr | None:
        store = self.stratiform.store or ""
        return SecretStr(store) if store.startswith(("redis://", "rediss://")) else None

    @property
    def store_ca(self) -> Path | None:
        """The file of certificate authorities for a Redis with TLS, in addition to the system's authorities."""
        return self.path(given) if (given := self.stratiform.store_ca) is not None else None

    @property
    def store_name(self) -> str:
        """The store's name for people, without a password."""
        if self.store_url is not None:
            parts = urlsplit(self.store_url.get_secret_value())
            return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return str(self.store_path or "memory")


def load(path: Path | None, upstream: str = "", environment: Environment | None = None) -> Settings:
    """The settings of a file, of ``--upstream`` alone, or of both. Raises ConfigError."""
    mistakes = Mistakes()
    settings = read(path, mistakes, upstream, environment)
    if mistakes.lines:
        raise ConfigError(mistakes.lines)
    return settings


def read(path: Path | None, mistakes: Mistakes, upstream: str = "", environment: Environment | None = None) -> Settings:
    """The settings, as far as they can be read. Problems are added to ``mistakes``. Raises ConfigError if nothing can
    be read."""
    environment = environment or Environment.of_process()
    if path is None:
        if not upstream:
            raise ConfigError(["nothing to forward to: give --config FILE or --upstream URL"])
        return Settings(upstream=_upstream(upstream), state_folder=state_folder(environment))
    raw = {key: value for key, value in _read_with_includes(path).items() if value is not None}
    section = raw.get("environment_variables")
    environment = environment.with_section(section)
    names = section if isinstance(section, dict) else ()
    exported = {name: value for name in names if (value := environment.get(name)) is not None}
    known = ConfigFile.model_fields  # other unknown sections are LiteLLM's, or ignored
    problems = [
        f"{key}: unknown section; did you mean `{close}`?"
        for key in raw
        if key not in known and (close := nearest(key, known))
    ]
    raw = _expanded(raw, environment, problems)
    mistakes.add(problems)
    file = _validated(raw, mistakes)
    problems = []
    aliases = file.router_settings.model_group_alias
    master_key = environment.get("LITELLM_MASTER_KEY")  # as in LiteLLM, where the file has none
    settings = Settings(
        stratiform=file.stratiform,
        models=tuple(_with_credentials(file, problems)),
        aliases={name: to if isinstance(to, str) else to.model for name, to in aliases.items()},
        hidden=frozenset(name for name, to in aliases.items() if not isinstance(to, str) and to.hidden),
        master_key=file.general_settings.master_key or (SecretStr(master_key) if master_key else None),
        upstream=_upstream(upstream) if upstream else "",
        timeout_s=file.litellm_settings.request_timeout or file.router_settings.timeout or 600.0,
        drop_params=file.litellm_settings.drop_params,
        budget=_budget(file.litellm_settings, problems),
        routing=routing_of(file.router_settings, file.litellm_settings),
        profiles=profiles_of(file.stratiform.window, environment, problems),
        folder=path.parent.absolute(),
        state_folder=own_folder(state_folder(environment), path),
        allowed_ips=tuple(file.general_settings.allowed_ips or ()),
        exported=exported,
        vertex_location=environment.get("VERTEXAI_LOCATION") or environment.get("VERTEX_LOCATION") or "",
    )
    names_keys = settings.master_key is not None or bool(settings.stratiform.teams)
    settings = replace(settings, unused=tuple(unused(file, names_keys=names_keys)))
    mistakes.add([*problems, *_contradictions(settings)])
    return settings


def load_section(path: Path | None, environment: Environment | None = None) -> Settings:
    """The settings of the ``stratiform`` section alone, for a gateway that honours the rest of the file by itself. The
    section's teams are left out, because keys and budgets are the gateway's. None: all defaults. Raises ConfigError."""
    raw = _read_with_includes(path) if path is not None else {}
    environment = (environment or Environment.of_process()).with_section(raw.get("environment_variables"))
    mistakes, problems, base = Mistakes(), list[str](), state_folder(environment)
    given = _expanded({"stratiform": raw.get("stratiform") or {}}, environment, problems)
    mistakes.add(problems)
    ours = _validated(given, mistakes).stratiform
    settings = Settings(
        stratiform=ours.model_copy(update={"teams": []}) if ours.teams else ours,
        folder=path.parent.absolute() if path is not None else Path(),
        state_folder=own_folder(base, path) if path is not None else base,
    )
    if settings.store_ca is not None:
        mistakes.add(_store_ca(settings, settings.store_ca))
    if mistakes.lines:
        raise ConfigError(mistakes.lines)
    return settings


def places(path: Path) -> Places:
    """The places of the values of a file, and of the files that it includes. A file that cannot be read has no
    places."""
    found = Places(path)
    with suppress(ConfigError):
        _read_with_includes(path, found)
    return found


def _read_with_includes(path: Path, places: Places | None = None) -> dict[str, Any]:
    """The file and the files that it includes, merged as LiteLLM does. Lists are joined; other values of an included
    file replace those of the including file. ``places`` gets the lines."""
    places = Places(path) if places is None else places
    merged = _read(path, places, {})
    waiting = deque((entry, path) for entry in _includes(merged, path))
    seen = {path.absolute()}
    while waiting:
        entry, declared_in = waiting.popleft()
        location = (declared_in.parent / entry).absolute()
        if location in seen:
            continue
        seen.add(location)
        included = _read(location, places, {key: len(mine) for key, mine in merged.items() if isinstance(mine, list)})
        waiting += [(further, location) for further in _includes(included, location)]
        for key, value in included.items():
            mine = merged.get(key)
            if _opens(key, mine, value):
                raise ConfigError([f"{key}: also stands in {location}, which is included and would undo it; keep one"])
            merged[key] = [*mine, *value] if isinstance(mine, list) and isinstance(value, list) else value
    return merged


def _opens(section: str, mine: object, included: object) -> bool:
    """Whether an included section would remove the need for keys of clients."""
    if section == "stratiform":
        return mine is not None
    had_key = section == "general_settings" and isinstance(mine, dict) and "master_key" in mine
    return had_key and not (isinstance(included, dict) and "master_key" in included)


def _includes(raw: dict[str, Any], path: Path) -> list[str]:
    entries = raw.pop("include", None) or []
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigError([f"include: must be a list of file names (in {path})"])
    return entries


def _read(path: Path, places: Places, joined: Mapping[str, int]) -> dict[str, Any]:
    """The sections of one file. ``joined``: how many items a section that is a list already has."""
    lines: dict[str, int] = {}
    loaded = read_yaml(path, lines)
    places.merge(path, lines, joined)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise ConfigError([f"{path}: must be a mapping of sections (model_list, general_settings, stratiform, ...)"])
    return loaded


def _expanded(raw: dict[str, Any], environment: Environment, problems: list[str]) -> dict[str, Any]:
    """The sections with the values of the variables to which they refer. Of LiteLLM's settings, only those that are
    used are read, so that the variables of all others need not be set."""
    result = dict(raw)
    for section, told in ConfigFile.model_fields.items():
        given, used = raw.get(section), told.annotation
        if isinstance(used, type) and issubclass(used, Loose):
            for key, value in given.items() if isinstance(given, dict) else ():
                if key in used.model_fields:
                    result[section] = {**result[section], key: environment.expand(value, f"{section}.{key}", problems)}
        elif given is not None and section != "environment_variables":
            result[section] = environment.expand(given, section, problems)
    return result


def _validated(raw: dict[str, Any], mistakes: Mistakes) -> ConfigFile:
    """The file without its mistakes. Pydantic finds some mistakes only after others are removed."""
    while True:
        try:
            return ConfigFile.model_validate(raw)
        except ValidationError as error:
            mistakes.add(explain(error, ConfigFile))
            raw = without(raw, [problem["loc"] for problem in error.errors(include_url=False)], mistakes)


def _with_credentials(file: ConfigFile, problems: list[str]) -> Iterator[ModelEntry]:
    """The entries with the parameters that LiteLLM's ``credential_list`` adds."""
    credentials = {credential.credential_name: credential.credential_values for credential in file.credential_list}
    for index, entry in enumerate(file.model_list):
        if (name := entry.litellm_params.litellm_credential_name) is not None and name not in credentials:
            problems.append(
                f"model_list[{index}].litellm_params.litellm_credential_name: no such entry in credential_list"
            )
        if name in credentials:
            mine: BaseModel = entry.litellm_params
            given = {key: getattr(mine, key) for key in mine.model_fields_set - {"litellm_credential_name"}}
            whole = {"litellm_params": {**credentials[name], **given}, "model_info": entry.model_info}
            try:
                entry = ModelEntry.model_validate({"model_name": entry.model_name, **whole})
            except ValidationError as error:
                problems += [f"model_list[{index}].{line}" for line in explain(error, ModelEntry)]
        yield entry


def _budget(given: LiteLLMSettings, problems: list[str]) -> BudgetEntry | None:
    # As in LiteLLM, 0 means no limit.
    if not given.max_budget:
        return None
    try:
        return BudgetEntry(name="max_budget", usd=given.max_budget, window=window_of(given.budget_duration))
    except ValueError as error:
        problems.append(f"litellm_settings.budget_duration: {error}")
        return None


def _contradictions(settings: Settings) -> Iterator[str]:
    """Problems with values that are valid alone but not together."""
    if not settings.models and not settings.upstream:
        yield "model_list: is empty, and there is no --upstream: nothing to forward requests to"
    if settings.upstream and any(entry.model_name == "*" for entry in settings.models):
        yield "model_list: has an entry for `*`, so --upstream would serve nothing; drop one of the two"
    if settings.stratiform.workers > 1 and settings.store_url is None:
        yield f"stratiform.workers: {NO_SHARED_STORE}"
    if settings.store_ca is not None:
        yield from _store_ca(settings, settings.store_ca)
    if settings.stratiform.holdout and settings.stratiform.clock == "header":
        yield "stratiform.holdout: is for live traffic; a replay (clock: header) has no controls"
    yield from _shared_keys(settings)


def _store_ca(settings: Settings, path: Path) -> Iterator[str]:
    if not (settings.stratiform.store or "").startswith("rediss://"):
        yield "stratiform.store_ca: is for a store that is reached with TLS (rediss://)"
    try:
        ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        yield f"stratiform.store_ca: {path} holds no certificate in PEM form"
    except OSError as error:
        yield f"stratiform.store_ca: {path} cannot be read: {error.strerror}"


def _shared_keys(settings: Settings) -> Iterator[str]:
    owners: dict[str, str] = {}
    if settings.master_key is not None:
        owners[digest_of(settings.master_key.get_secret_value())] = "general_settings.master_key"
    names: set[str] = set()
    for team_index, team in enumerate(settings.stratiform.teams):
        path = f"stratiform.teams[{team_index}]"
        if team.name in names:
            yield f"{path}.name: another team has this name"
        names.add(team.name)
        for name, count in Counter(budget.given_name for budget in team.all_budgets).items():
            if count > 1:
                yield f"{path}.budgets: two are called `{name}`; give one a `name`"
        for index, key in enumerate(team.keys):
            here = f"{path}.keys[{index}]"
            other = owners.setdefault(key.digest, here)
            if other != here:
                yield f"{here}: is the same key as {other}"


def _upstream(url: str) -> str:
    """The base URL of ``--upstream``. A bare host gets ``/v1``, where OpenAI-compatible servers listen."""
    try:
        text = http_url(url)
    except ValueError as error:
        raise ConfigError([f"--upstream: {error}"]) from error
    if not is_base(text):
        raise ConfigError([f"--upstream: {NO_BASE}"])
    _, _, rest = text.partition("://")
    return text if "/" in rest else f"{text}/v1"


_HOME = Path(proxy.__file__).resolve().parents[1]
_PACKAGES = ("proxy", "plugins")


def refuse_shadowed() -> None:
    """Make sure that Python imports our own plugins. Raises ConfigError if it finds something else of that name
    first."""
    spec = find_spec("plugins")
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin or "nothing"]
    if not places or Path(places[0]).resolve() != _HOME / "plugins":
        found = places[0] if places else "nothing"
        raise ConfigError(
            [f"plugins: Python finds {found}, and not the package in {_HOME}: rename it, or see to PYTHONPATH"]
        )


def shadowing(folder: Path) -> Iterator[str]:
    """A warning for each package or module in ``folder``, the configuration's folder, that could be taken for one of
    ours."""
    for name in _PACKAGES:
        for path in (folder / name, folder / f"{name}.py"):
            if (path.is_file() or any(path.glob("*.py"))) and path.resolve() != _HOME / name:
                yield (
                    f"{path}: has the name of a package of Stratiform's: `python -m`, PYTHONPATH and LiteLLM's "
                    "`callbacks` would take it instead; rename it"
                )

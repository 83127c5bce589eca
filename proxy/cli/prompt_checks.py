"""The parts of ``check-config`` about prompts and context windows. Contexts and overrides are the operator's texts and
may hold secrets, so the output only says that they exist."""

from collections.abc import Iterable, Iterator, Mapping

from proxy.access.directory import CLIENT_KEYS_TEAM, DEFAULT_TEAM
from proxy.app import declared
from proxy.app.prompting import levels_of, missing_prompts, named_prompts, rules_of
from proxy.core.model_patterns import matches, matches_any
from proxy.core.window.profile import CapabilityProfile
from proxy.deployments import ModelTable
from proxy.errors import UnknownModel
from proxy.plugins import build_plugin_manager
from proxy.prompting.files import PromptFileError
from proxy.prompting.sources import Snapshot, Sources
from proxy.settings import ConfigError, PromptLevel, Settings
from proxy.settings.environment import shown

_SECTIONS = ("models", "teams", "keys")
_REMINDER = "system_reminder"
_LATER = "; one that is made while the proxy runs will have it"


def registered(settings: Settings) -> Snapshot | None:
    """The prompts of which requests may be composed. None if the configuration names none, or if no request gets one
    and they cannot be read. Raises ConfigError."""
    may_compose = rules_of(settings).may_compose
    if not (may_compose or any(named_prompts(settings))):
        return None
    is_shipped = settings.stratiform.prompts.shipped
    try:
        return Sources.of(settings.prompt_folders, is_shipped=is_shipped, manager=build_plugin_manager()).snapshot()
    except PromptFileError as error:
        if not may_compose:
            # The proxy starts without reading these prompts.
            return None
        raise ConfigError([f"stratiform.prompts: {error}"]) from error


def prompts_of(settings: Settings, snapshot: Snapshot | None) -> dict[str, object] | None:
    """The section ``stratiform.prompts`` as JSON values; None if no request gets a prompt."""
    given = settings.stratiform.prompts
    if snapshot is None or not rules_of(settings).may_compose:
        return None
    return {
        "version": snapshot.version,
        "registered": [prompt.id for prompt in snapshot.prompts],
        "folders": [str(folder) for folder in settings.prompt_folders],
        "shipped": given.shipped,
        "all": _level(given),
        **{part: {shown(name): _level(level) for name, level in getattr(given, part).items()} for part in _SECTIONS},
    }


def window_of(settings: Settings) -> dict[str, object] | None:
    """The section ``stratiform.window`` as JSON values, with the values of all profiles; None if no request has a
    profile."""
    given = settings.stratiform.window
    named = {part: {shown(name): profile for name, profile in getattr(given, part).items()} for part in _SECTIONS}
    if not (given.profile or given.allowed or any(named.values())):
        return None
    profiles = {name: _profile(profile) for name, profile in settings.profiles.items()}
    return {"profile": given.profile, **named, "allowed": list(given.allowed), "profiles": profiles}


def prompt_lines(report: Mapping[str, object]) -> Iterator[str]:
    """The sections of ``prompts_of`` and ``window_of``, as lines."""
    prompts, window = report["prompts"], report["window"]
    if isinstance(prompts, dict):
        where = f"folders {_joined(prompts['folders'])}, shipped {_word(prompts['shipped'])}"
        yield f"prompts: version {prompts['version']}, {where}, registered {_joined(prompts['registered'])}"
        yield f"prompts of all requests: {_words(prompts['all'])}"
        for section in _SECTIONS:
            named = prompts[section].items()
            yield from (f"prompts of {section[:-1]} {name}: {_words(level)}" for name, level in named)
    if isinstance(window, dict):
        yield f"window: profile {_word(window['profile'])}, clients may choose {_joined(window['allowed'])}"
        for section in _SECTIONS:
            named = window[section].items()
            yield from (f"window of {section[:-1]} {name}: {_word(profile)}" for name, profile in named)
        yield from (f"profile {name}: {_words(values)}" for name, values in window["profiles"].items())


def prompt_warnings(settings: Settings, table: ModelTable, snapshot: Snapshot | None) -> Iterator[str]:
    """Warnings about names of models, teams, keys, profiles and prompts that do not exist, and so have no effect."""
    ours = settings.stratiform
    known = declared.declared(settings)
    teams = {DEFAULT_TEAM, CLIENT_KEYS_TEAM, *(team.name for team in known.teams)}
    keys = {key.id for key in known.keys}
    for path, given in (("stratiform.prompts", ours.prompts), ("stratiform.window", ours.window)):
        for name in given.models:
            if not _is_served(name, table):
                yield f"{path}.models: `{shown(name)}` is no model of model_list"
        for what, names, there in (("team", given.teams, teams), ("key", given.keys, keys)):
            yield from (f"{path}.{what}s: `{shown(name)}` is no {what} of this file{_LATER}"
                        for name in names if name not in there)  # fmt: skip
    yield from (f"stratiform.keep_alive.teams: `{shown(name)}` is no team of this file{_LATER}"
                for name in ours.keep_alive.teams if name not in teams)  # fmt: skip
    if snapshot is not None:
        yield from missing_prompts(settings, [prompt.id for prompt in snapshot.prompts])
    yield from _sent_twice(settings, table)
    for path, level in levels_of(settings):
        if level.profile and level.profile not in settings.profiles:
            yield f"{path}.profile: `{shown(level.profile)}` is no profile of stratiform.window"


def _sent_twice(settings: Settings, table: ModelTable) -> Iterator[str]:
    rules = rules_of(settings, table.spellings).prompts
    for index, entry in enumerate(settings.models):
        given = entry.model_info.system_reminder
        reminder = _REMINDER if given is True else given
        used = rules.terms_for(entry.model_name, "", "").use
        if isinstance(reminder, str) and matches_any(used, reminder):
            path = f"model_list[{index}].model_info.system_reminder"
            yield f"{path}: stratiform.prompts composes this prompt, too: it would be sent twice"


def _is_served(name: str, table: ModelTable) -> bool:
    if "*" in name:
        return bool(table.patterns()) or any(matches(name, one) for one in table.names())
    try:
        return bool(table.candidates(name))
    except UnknownModel:
        return False


def _level(level: PromptLevel) -> dict[str, object]:
    """The values of a level. Texts are not shown."""
    allowed = level.allowed
    said: dict[str, object] = {
        "use": level.use,
        "persona": None if level.persona is None else shown(level.persona),
        "profile": None if level.profile is None else shown(level.profile),
        "override": None if level.override is None else bool(level.override),
        "tools": level.tools,
        "plugins": level.plugins,
        "agents": level.agents,
        "context": list(level.context) or None,
        "strict": level.strict,
        "on_failure": level.on_failure,
        "allowed": None if allowed is None else {what: found for what, found in allowed if found},
    }
    return {name: value for name, value in said.items() if value is not None}


def _profile(profile: CapabilityProfile) -> dict[str, object]:
    caps = profile.caps
    return {
        "capability": profile.capability.value,
        "window_tokens": profile.window_tokens,
        "output_tokens": profile.output_tokens,
        "margin_tokens": profile.margin_tokens,
        "caps": {name: getattr(caps, name) for name in caps.__slots__ if getattr(caps, name) is not None},
        "tail_messages": profile.tail_messages,
        "may_shorten_system": profile.may_shorten_system,
        "template": profile.template or None,
        "over_budget": profile.over_budget.value,
    }


def _words(values: Mapping[str, object]) -> str:
    """Names with their values: "use system, tools yes". An object is put in brackets."""
    shown = (f"{name} {_word(value)}" for name, value in values.items() if value is not None and value != {})
    return ", ".join(shown) or "nothing"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return f"({_words(value)})"
    return _joined(value) if isinstance(value, list) else shown(value) or "none"


def _joined(values: Iterable[object]) -> str:
    return " ".join(shown(value) for value in values) or "none"

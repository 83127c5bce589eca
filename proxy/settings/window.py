"""The section ``stratiform.window`` as pydantic models: capability profiles, and which requests have which profile."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from proxy.core.window.profile import BUILT_IN, Capability, CapabilityProfile, OverBudget
from proxy.settings.environment import Environment
from proxy.settings.messages import explain, nearest
from proxy.settings.prompts import KeyIds, ModelPattern, OptionalName, Patterns
from proxy.settings.teams import Name, Strict

_MOST_TOKENS = 1_000_000_000
Tokens = Annotated[int, Field(ge=0, le=_MOST_TOKENS)]
CapabilityName = Literal["completion", "edit", "chat", "chat_ops"]


class Caps(Strict):
    """The most tokens of single parts; null: the part has no cap of its own."""

    system: Tokens | None = None
    instruction: Tokens | None = None
    selection: Tokens | None = None
    prefix: Tokens | None = None
    suffix: Tokens | None = None
    summary: Tokens | None = None


class Profile(Strict):
    """The values of one profile in a configuration. A missing value is taken from the built-in profile of that name. In
    a profile that is not built in, a missing value is the default, never another profile's value."""

    capability: CapabilityName | None = Field(default=None, description="what its requests are")
    window_tokens: Annotated[int, Field(ge=1, le=_MOST_TOKENS)] | None = Field(
        default=None, description="the context window; null: the model's own"
    )
    output_tokens: Tokens | None = Field(
        default=None, description="kept free for the answer of a request that names no maximum"
    )
    margin_tokens: Tokens | None = Field(default=None, description="kept free because counts of tokens are estimates")
    caps: Caps = Caps()
    tail_messages: Annotated[int, Field(ge=1, le=_MOST_TOKENS)] | None = Field(
        default=None, description="the most messages of the conversation that are sent; null: as many as fit"
    )
    may_shorten_system: bool | None = Field(
        default=None, description="true: where nothing else is left, the system text is cut, too"
    )
    template: OptionalName | None = Field(default=None, description="the id of the prompt that is its system text")
    over_budget: OverBudget | None = Field(
        default=None,
        description="what becomes of a request that the upstream finds too large: empty (an empty answer), retry (sent "
        "again with a smaller budget) or error",
    )


class Window(Strict):
    """The section ``stratiform.window``."""

    profile: OptionalName = Field(default="", description="the profile of all requests; empty: none, and no budget")
    models: dict[ModelPattern, OptionalName] = Field(default={}, description="by model; `*`: any text")
    teams: dict[Name, OptionalName] = {}
    keys: Annotated[dict[str, OptionalName], KeyIds] = Field(default={}, description="by the id of a key")
    allowed: Patterns = Field(default=[], description="the profiles that clients may choose; `*`: any text")
    profiles: dict[Name, Profile] = Field(default={}, description="values of the built-in profiles, and own ones")


_PREFIX = "STRATIFORM_"
_NO_LETTER = re.compile(r"[^A-Z0-9]")
_NULL = "null"
_FIELDS: Mapping[str, tuple[str, ...]] = {
    **{name.upper(): (name,) for name in Profile.model_fields if name != "caps"},
    **{f"CAPS_{name.upper()}": ("caps", name) for name in Caps.model_fields},
}
"""The end of a variable's name, and the field that the variable sets."""
_NULLABLE = frozenset({"window_tokens", "tail_messages"})
"""Fields that may have the value null."""


def profiles_of(window: Window, environment: Environment, problems: list[str]) -> dict[str, CapabilityProfile]:
    """All profiles by name. Mistakes are added to ``problems``."""
    found: dict[str, CapabilityProfile] = {}
    stems = dict[str, str]()
    for name in dict.fromkeys((*BUILT_IN, *window.profiles)):
        path, stem = f"stratiform.window.profiles.{name}", _PREFIX + _NO_LETTER.sub("_", name.upper())
        if stem in stems:
            problems.append(f"{path}: has the variables of `{stems[stem]}` ({stem}_...); give one of them another name")
            continue
        stems[stem] = name
        levels = [window.profiles.get(name, Profile()), *_of_environment(stem, environment, problems)]
        if (base := BUILT_IN.get(name)) is None:
            capability = next((level.capability for level in reversed(levels) if level.capability), None)
            if capability is None:
                problems.append(f"{path}.capability: is required for a profile of your own")
                continue
            base = CapabilityProfile(name, Capability(capability))
        for level in levels:
            base = _over(base, level)
        found[name] = base
        problems += _contradictions(base, path)
    problems += _slips(stems, environment)
    problems += _unknown(window, found)
    return found


def _over(base: CapabilityProfile, level: Profile) -> CapabilityProfile:
    given = {name: getattr(level, name) for name in level.model_fields_set - {"caps"}}
    said = {name: value for name, value in given.items() if value is not None or name in _NULLABLE}
    if "capability" in said:
        said["capability"] = Capability(said["capability"])
    caps = {name: getattr(level.caps, name) for name in level.caps.model_fields_set}
    return replace(base, **said, caps=replace(base.caps, **caps))


def _of_environment(stem: str, environment: Environment, problems: list[str]) -> Iterator[Profile]:
    """The value of each variable of a profile. An empty variable is ignored."""
    for end, (field, *inner) in _FIELDS.items():
        variable = f"{stem}_{end}"
        if not (text := environment.get(variable)):
            continue
        value: object = None if text.lower() == _NULL else text
        try:
            yield Profile.model_validate({field: {inner[0]: value} if inner else value})
        except ValidationError as error:
            problems += [f"{variable}: {line.partition(': ')[2]}" for line in explain(error, Profile)]


def _slips(stems: Mapping[str, str], environment: Environment) -> Iterator[str]:
    """Variables that are probably misspelt, and would silently have no effect."""
    for variable in sorted(environment.names(_PREFIX) - {f"{stem}_{end}" for stem in stems for end in _FIELDS}):
        stem = max((stem for stem in stems if variable.startswith(f"{stem}_")), key=len, default="")
        close = nearest(variable.removeprefix(f"{stem}_"), _FIELDS) if stem else None
        if close:
            yield f"{variable}: is no variable of a profile; did you mean `{stem}_{close}`?"


def _contradictions(profile: CapabilityProfile, path: str) -> Iterator[str]:
    window = profile.window_tokens
    if window is not None and window <= profile.output_tokens + profile.margin_tokens:
        yield f"{path}: the output and the margin leave nothing of the window for a prompt"


def _unknown(window: Window, profiles: Mapping[str, CapabilityProfile]) -> Iterator[str]:
    """Places that name a profile which does not exist. A profile with another mistake does not count as missing."""
    known = profiles.keys() | window.profiles.keys()
    levels = {"models": window.models, "teams": window.teams, "keys": window.keys}
    places = [
        ("profile", window.profile),
        *((f"{section}.{name}", profile) for section, named in levels.items() for name, profile in named.items()),
        *((f"allowed[{index}]", name) for index, name in enumerate(window.allowed) if "*" not in name),
    ]
    for path, name in places:
        if name and name not in known:
            close = nearest(name, known)
            yield f"stratiform.window.{path}: is no profile; " + (
                f"did you mean `{close}`?" if close else f"there are {', '.join(sorted(known))}"
            )

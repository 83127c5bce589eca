"""The sections ``stratiform.prompts`` and ``stratiform.window`` as pydantic models.

The first one says which prompts are composed for which requests. The second one says which requests have which
capability profile, and sets the values of profiles, which variables of the environment may replace.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationError

from proxy.app.settings.litellm_schema import Name, Strict
from proxy.kit.messages import Environment, explain, nearest
from proxy.prompts import ROOTS, OnFailure, exceeded_bound, is_json
from proxy.prompts.window import BUILT_IN, Capability, CapabilityProfile, OverBudget
from proxy.teams import validation

MOST_TEXT_CHARS = 256 << 10
_KEY_ID = re.compile(r"key-[0-9a-z]{12}")

Root = Literal["mission", "target", "agent", "memory", "variables", "custom"]


def _roots(context: object) -> object:
    for name in context if isinstance(context, dict) else ():
        if name not in ROOTS:
            close = nearest(str(name), ROOTS)
            advice = f"did you mean `{close}`?" if close else f"there are {', '.join(ROOTS)}"
            raise ValueError(f"has a root that there is not; {advice}")
    return context


def _json_values(roots: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """A context that JSON can hold, and that is small enough to be handled for each request."""
    if exceeded := exceeded_bound(roots):  # type: ignore[arg-type]  # values of any type are counted
        raise ValueError(f"holds {exceeded}")
    if not is_json(roots):
        raise ValueError("holds what JSON does not have; write names, dates and times in quotes, and whole characters")
    return roots


def _key_ids(names: object) -> object:
    # This comes before all other checks: if somebody writes the keys themselves here, the paths of messages show them.
    if isinstance(names, dict) and not all(isinstance(name, str) and _KEY_ID.fullmatch(name) for name in names):
        raise ValueError(
            "names of keys are their ids, as `stratiform keys list` shows them: key- and 12 letters or digits"
        )
    return names


SendableText = Annotated[str, Field(max_length=MOST_TEXT_CHARS)]
Patterns = Annotated[list[str], AfterValidator(validation.patterns), AfterValidator(list)]
OptionalName = Annotated[str, StringConstraints(pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9_.:/-]{0,118})?$")]
Context = Annotated[dict[Root, dict[str, object]], BeforeValidator(_roots), AfterValidator(_json_values)]
ModelPattern = Annotated[str, StringConstraints(min_length=1, max_length=validation.MAX_LINE_CHARS)]
KeyIds = BeforeValidator(_key_ids)


class AllowedPrompts(Strict):
    """The permissions of clients."""

    override: bool = Field(default=False, description="put a text of their own in the place of the whole system text")
    extras: bool = Field(default=False, description="add prompts of their own, which are sent as they are")
    flags: bool = Field(default=False, description="switch tools, plugins and agents on and off")
    personas: Patterns = Field(default=[], description="the personas that they may choose; `*`: any text")
    profiles: Patterns = Field(default=[], description="the profiles that they may choose; `*`: any text")
    context: list[Root] = Field(default=[], description="the roots of the context that they may add to")


class PromptLevel(Strict):
    """One level of the rules for composing: all requests, a model, a team, a key. If a key is not given, the level
    before decides."""

    use: Patterns | None = Field(default=None, description="the ids of the prompts that are composed; `*`: any text")
    persona: OptionalName | None = Field(default=None, description="NAME of the prompt `persona:NAME`; empty: none")
    profile: OptionalName | None = Field(default=None, description="whose prompts are composed beside those of none")
    override: SendableText | None = Field(
        default=None, repr=False, description="the whole system text, in the place of all system prompts; empty: none"
    )
    tools: bool | None = Field(default=None, description="compose prompts at position tools")
    plugins: bool | None = Field(default=None, description="compose prompts at position plugins")
    agents: bool | None = Field(default=None, description="compose prompts at position agents")
    context: Context = Field(default={}, repr=False, description="what conditions and templates see, by root")
    strict: bool | None = Field(
        default=None, description="true: a prompt that cannot be composed is an error, and is not left out"
    )
    on_failure: OnFailure | None = Field(
        default=None, description="what happens to a request whose prompts cannot be composed: refuse, or send_without"
    )
    allowed: AllowedPrompts | None = Field(default=None, description="what clients may say; replaced as a whole")


class Prompts(PromptLevel):
    """The section ``stratiform.prompts``."""

    folders: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[], max_length=100, description="folders of Markdown files with prompts, relative to this file"
    )
    shipped: bool = Field(default=True, description="the prompts that come along can be used, too")
    look_s: float = Field(
        default=1.0, ge=0.1, le=3600, allow_inf_nan=False, description="how often the folders are looked at"
    )
    models: dict[ModelPattern, PromptLevel] = Field(default={}, description="by model; `*`: any text")
    teams: dict[Name, PromptLevel] = {}
    keys: Annotated[dict[str, PromptLevel], KeyIds] = Field(default={}, description="by the id of a key")


_MOST_TOKENS = 1_000_000_000
Tokens = Annotated[int, Field(ge=0, le=_MOST_TOKENS)]
CapabilityName = Literal["completion", "edit", "chat", "chat_ops"]


class ProfileCaps(Strict):
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
    caps: ProfileCaps = ProfileCaps()
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


class WindowSettings(Strict):
    """The section ``stratiform.window``."""

    profile: OptionalName = Field(default="", description="the profile of all requests; empty: none, and no budget")
    models: dict[ModelPattern, OptionalName] = Field(default={}, description="by model; `*`: any text")
    teams: dict[Name, OptionalName] = {}
    keys: Annotated[dict[str, OptionalName], KeyIds] = Field(default={}, description="by the id of a key")
    allowed: Patterns = Field(default=[], description="the profiles that clients may choose; `*`: any text")
    profiles: dict[Name, Profile] = Field(default={}, description="values of the built-in profiles, and own ones")


_PREFIX = "STRATIFORM_"
_NO_LETTER = re.compile(r"[^A-Z0-9]")
# The end of a variable's name, and the field that the variable sets.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    **{name.upper(): (name,) for name in Profile.model_fields if name != "caps"},
    **{f"CAPS_{name.upper()}": ("caps", name) for name in ProfileCaps.model_fields},
}
# Fields that may have the value null.
_NULLABLE = frozenset({"window_tokens", "tail_messages"})


def profiles_of(window: WindowSettings, environment: Environment, problems: list[str]) -> dict[str, CapabilityProfile]:
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
            given = {one: getattr(level, one) for one in level.model_fields_set - {"caps"}}
            said = {one: value for one, value in given.items() if value is not None or one in _NULLABLE}
            if "capability" in said:
                said["capability"] = Capability(said["capability"])
            caps = {one: getattr(level.caps, one) for one in level.caps.model_fields_set}
            base = replace(base, **said, caps=replace(base.caps, **caps))
        found[name] = base
        if base.window_tokens is not None and base.window_tokens <= base.output_tokens + base.margin_tokens:
            problems.append(f"{path}: the output and the margin leave nothing of the window for a prompt")
    problems += _misspelt(stems, environment)
    problems += _unknown(window, found)
    return found


def _of_environment(stem: str, environment: Environment, problems: list[str]) -> Iterator[Profile]:
    """The value of each variable of a profile. An empty variable is ignored."""
    for end, (field, *inner) in _FIELDS.items():
        variable = f"{stem}_{end}"
        if not (text := environment.get(variable)):
            continue
        value: object = None if text.lower() == "null" else text
        try:
            yield Profile.model_validate({field: {inner[0]: value} if inner else value})
        except ValidationError as error:
            problems += [f"{variable}: {line.partition(': ')[2]}" for line in explain(error, Profile)]


def _misspelt(stems: Mapping[str, str], environment: Environment) -> Iterator[str]:
    """Variables that are probably misspelt, and would silently have no effect."""
    for variable in sorted(environment.names(_PREFIX) - {f"{stem}_{end}" for stem in stems for end in _FIELDS}):
        stem = max((stem for stem in stems if variable.startswith(f"{stem}_")), key=len, default="")
        close = nearest(variable.removeprefix(f"{stem}_"), _FIELDS) if stem else None
        if close:
            yield f"{variable}: is no variable of a profile; did you mean `{stem}_{close}`?"


def _unknown(window: WindowSettings, profiles: Mapping[str, CapabilityProfile]) -> Iterator[str]:
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

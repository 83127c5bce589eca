"""The capability profiles of a configuration: the built-in ones, under what the file says, under the environment.

``STRATIFORM_<PROFILE>_<FIELD>`` sets one value (``STRATIFORM_COMPLETION_WINDOW_TOKENS``,
``STRATIFORM_CHAT_OPS_CAPS_SYSTEM``). No profile has a value of another one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import ValidationError

from proxy.core.window.built_in import BUILT_IN
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.settings.environment import Environment
from proxy.settings.messages import explain, nearest
from proxy.settings.window import Caps, Profile, Window

_PREFIX = "STRATIFORM_"
_NO_LETTER = re.compile(r"[^A-Z0-9]")
_NULL = "null"
_FIELDS: Mapping[str, tuple[str, ...]] = {
    **{name.upper(): (name,) for name in Profile.model_fields if name != "caps"},
    **{f"CAPS_{name.upper()}": ("caps", name) for name in Caps.model_fields},
}
"""The end of a variable's name, and the field that it is for."""
_NULLABLE = frozenset({"window_tokens", "tail_messages"})
"""Fields in which null is a value."""


def profiles_of(window: Window, environment: Environment, problems: list[str]) -> dict[str, CapabilityProfile]:
    """All profiles by name. What is wrong is added to ``problems``."""
    found: dict[str, CapabilityProfile] = {}
    stems = dict[str, str]()
    for name in dict.fromkeys((*BUILT_IN, *window.profiles)):
        path, stem = f"stratiform.window.profiles.{name}", _stem(name)
        if stem in stems:
            problems.append(f"{path}: has the variables of `{stems[stem]}` ({stem}_...); give one of them another name")
            continue
        stems[stem] = name
        levels = [window.profiles.get(name, Profile()), *_of_environment(stem, environment, problems)]
        base = BUILT_IN.get(name)
        if base is None:
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


def _stem(name: str) -> str:
    return _PREFIX + _NO_LETTER.sub("_", name.upper())


def _of_environment(stem: str, environment: Environment, problems: list[str]) -> Iterator[Profile]:
    """What each variable of a profile says. An empty variable says nothing."""
    for end, (field, *inner) in _FIELDS.items():
        variable = f"{stem}_{end}"
        text = environment.get(variable)
        if not text:
            continue
        value: object = None if text.lower() == _NULL else text
        try:
            yield Profile.model_validate({field: {inner[0]: value} if inner else value})
        except ValidationError as error:
            problems += [f"{variable}: {line.partition(': ')[2]}" for line in explain(error, Profile)]


def _slips(stems: Mapping[str, str], environment: Environment) -> Iterator[str]:
    """Variables that are probably misspelt, and would silently not hold."""
    known = {f"{stem}_{end}" for stem in stems for end in _FIELDS}
    for variable in sorted(environment.names(_PREFIX) - known):
        stem = max((stem for stem in stems if variable.startswith(f"{stem}_")), key=len, default="")
        close = nearest(variable.removeprefix(f"{stem}_"), _FIELDS) if stem else None
        if close:
            yield f"{variable}: is no variable of a profile; did you mean `{stem}_{close}`?"


def _contradictions(profile: CapabilityProfile, path: str) -> Iterator[str]:
    window = profile.window_tokens
    if window is not None and window <= profile.output_tokens + profile.margin_tokens:
        yield f"{path}: the output and the margin leave nothing of the window for a prompt"


def _unknown(window: Window, profiles: Mapping[str, CapabilityProfile]) -> Iterator[str]:
    """Places that name a profile which does not exist. A profile in which there is another mistake is not missed."""
    known = profiles.keys() | window.profiles.keys()
    places = [("stratiform.window.profile", window.profile)]
    for section in ("models", "teams", "keys"):
        named = getattr(window, section).items()
        places += [(f"stratiform.window.{section}.{name}", profile) for name, profile in named]
    places += [
        (f"stratiform.window.allowed[{index}]", name) for index, name in enumerate(window.allowed) if "*" not in name
    ]
    for path, name in places:
        if name and name not in known:
            close = nearest(name, known)
            yield f"{path}: is no profile; " + (
                f"did you mean `{close}`?" if close else f"there are {', '.join(sorted(known))}"
            )

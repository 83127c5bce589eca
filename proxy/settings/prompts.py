"""The section ``stratiform.prompts`` as pydantic models. It says which prompts are composed for which requests."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from proxy.access import validation
from proxy.core.prompts.context import exceeded_bound, is_json
from proxy.core.prompts.prompt import ROOTS
from proxy.core.prompts.terms import OnFailure
from proxy.settings.messages import nearest
from proxy.settings.teams import Name, Strict

MOST_TEXT_CHARS = 256 << 10
_KEY_ID = re.compile(r"key-[0-9a-z]{12}")
_ROOTS = f"there are {', '.join(ROOTS)}"
_NO_KEY_ID = "names of keys are their ids, as `stratiform keys list` shows them: key- and 12 letters or digits"

Root = Literal["mission", "target", "agent", "memory", "variables", "custom"]


def _roots(context: object) -> object:
    for name in context if isinstance(context, dict) else ():
        if name not in ROOTS:
            close = nearest(str(name), ROOTS)
            raise ValueError(f"has a root that there is not; {f'did you mean `{close}`?' if close else _ROOTS}")
    return context


def unicode_text(text: str) -> str:
    """A text that can be sent. Raises ValueError for half of a surrogate pair, which UTF-8 cannot represent."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("holds half of a surrogate pair, which cannot be sent") from None
    return text


def _json_values(roots: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """A context that JSON can hold, and that is small enough to be handled for each request."""
    exceeded = exceeded_bound(roots)  # type: ignore[arg-type]  # values of any type are counted
    if exceeded:
        raise ValueError(f"holds {exceeded}")
    if not is_json(roots):
        raise ValueError("holds what JSON does not have; write names, dates and times in quotes, and whole characters")
    return roots


def _key_ids(names: object) -> object:
    # This comes before all other checks: if somebody writes the keys themselves here, the paths of messages show them.
    if isinstance(names, dict) and not all(isinstance(name, str) and _KEY_ID.fullmatch(name) for name in names):
        raise ValueError(_NO_KEY_ID)
    return names


def _patterns(patterns: list[str]) -> list[str]:
    return [unicode_text(pattern) for pattern in validation.patterns(patterns)]


SendableText = Annotated[str, Field(max_length=MOST_TEXT_CHARS), AfterValidator(unicode_text)]
Patterns = Annotated[list[str], AfterValidator(_patterns)]
OptionalName = Annotated[str, StringConstraints(pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9_.:/-]{0,118})?$")]
Context = Annotated[dict[Root, dict[str, object]], BeforeValidator(_roots), AfterValidator(_json_values)]
ModelPattern = Annotated[str, StringConstraints(min_length=1, max_length=validation.MAX_TEXT_CHARS)]
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

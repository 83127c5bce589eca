"""The section ``stratiform.window`` as pydantic models: capability profiles, and whose requests have which."""

from typing import Annotated, Literal

from pydantic import Field

from proxy.core.window.profile import OverBudget
from proxy.settings.prompts import KeyIds, ModelPattern, OptionalName, Patterns, TeamName
from proxy.settings.teams import Strict

_MOST_TOKENS = 1_000_000_000
Tokens = Annotated[int, Field(ge=0, le=_MOST_TOKENS)]
CapabilityName = Literal["completion", "edit", "chat", "chat_ops"]


class Caps(Strict):
    """The most tokens of single parts; null: no cap of its own."""

    system: Tokens | None = None
    instruction: Tokens | None = None
    selection: Tokens | None = None
    prefix: Tokens | None = None
    suffix: Tokens | None = None
    summary: Tokens | None = None


class Profile(Strict):
    """What a configuration says about one profile. What it does not say is the built-in profile's of that name; of a
    profile of its own it is the default, never another profile's value."""

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
    teams: dict[TeamName, OptionalName] = {}
    keys: Annotated[dict[str, OptionalName], KeyIds] = Field(default={}, description="by the id of a key")
    allowed: Patterns = Field(default=[], description="the profiles that clients may choose; `*`: any text")
    profiles: dict[TeamName, Profile] = Field(default={}, description="values of the built-in profiles, and own ones")

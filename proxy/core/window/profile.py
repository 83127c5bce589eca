"""Capability profiles, and the parts of a request that they fit. Each profile has its own budget, and shares nothing
with another profile by accident.

``read_parts`` reads and validates a request's section ``stratiform.window``. Every mistake is an InvalidRequest (400)
that says which field to change. A field that is null counts as left out. Text is never quoted.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proxy.core.model_patterns import allows
from proxy.core.prompts.terms import Levels
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.refusals import check_fields, check_ids, decoded, invalid, names_within, unknown_name
from proxy.core.wire.scan import has_more_commas
from proxy.errors import Forbidden


class Capability(StrEnum):
    """The kind of a profile's requests, which decides what is shortened and in which order."""

    COMPLETION = "completion"
    EDIT = "edit"
    CHAT = "chat"
    CHAT_OPS = "chat_ops"


class OverBudget(StrEnum):
    """The treatment of a request that the upstream refuses as too large."""

    EMPTY = "empty"
    """The client gets an empty, valid completion."""
    RETRY = "retry"
    """The request is sent again with a smaller budget. If that does not help, it is an error."""
    ERROR = "error"
    """The client gets ``context_length_exceeded``."""


@dataclass(frozen=True, slots=True)
class PartCaps:
    """The most tokens of single parts. None: the part has no cap of its own."""

    system: int | None = None
    instruction: int | None = None
    selection: int | None = None
    prefix: int | None = None
    suffix: int | None = None
    summary: int | None = None


@dataclass(frozen=True, slots=True)
class CapabilityProfile:
    """The budget of one kind of request, in tokens. If ``window_tokens`` is None, it is the window of the model.
    ``output_tokens`` are reserved for the answer if the request names no maximum. ``tail_messages`` is how many
    messages of the conversation are sent at most; None: as many as fit. ``template`` is the id of the prompt that is
    composed as the system text of the profile ("": none)."""

    name: str
    capability: Capability
    window_tokens: int | None = None
    output_tokens: int = 4_096
    margin_tokens: int = 256
    caps: PartCaps = PartCaps()
    tail_messages: int | None = None
    may_shorten_system: bool = False
    template: str = ""
    over_budget: OverBudget = OverBudget.ERROR


BUILT_IN: Mapping[str, CapabilityProfile] = {
    profile.name: profile
    for profile in (
        CapabilityProfile(
            name="completion",
            capability=Capability.COMPLETION,
            window_tokens=4_096,
            output_tokens=256,
            caps=PartCaps(system=1_024, prefix=2_048, suffix=512),
            over_budget=OverBudget.EMPTY,
        ),
        CapabilityProfile(
            name="edit",
            capability=Capability.EDIT,
            window_tokens=4_096,
            output_tokens=512,
            caps=PartCaps(system=1_024, instruction=128, selection=896, prefix=1_024, suffix=256),
            over_budget=OverBudget.EMPTY,
        ),
        CapabilityProfile(
            name="chat",
            capability=Capability.CHAT,
            caps=PartCaps(system=8_192),
            tail_messages=60,
        ),
        CapabilityProfile(
            name="chat_ops",
            capability=Capability.CHAT_OPS,
            caps=PartCaps(system=8_192),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget in tokens, as the model counts them. ``prompt_tokens`` is what is left for the prompt: the window
    without the answer and the margin, and never less than 0."""

    window_tokens: int
    output_tokens: int
    margin_tokens: int
    prompt_tokens: int

    def scaled(self, scale: float) -> "Budget":
        """A smaller budget for the prompt, for a request that an upstream has refused as too large."""
        return replace(self, prompt_tokens=int(self.prompt_tokens * min(1.0, max(0.0, scale))))


def budget_of(profile: CapabilityProfile, model_window: int | None, wanted_output: int | None) -> Budget | None:
    """The budget under a profile. If both the profile and the model's data name a window, the smaller one counts. If
    neither does, the result is None and nothing is trimmed. ``wanted_output`` is the answer's maximum that the request
    names."""
    window = min((each for each in (profile.window_tokens, model_window) if each is not None), default=None)
    if window is None:
        return None
    output = profile.output_tokens if wanted_output is None else wanted_output
    return Budget(window, output, profile.margin_tokens, max(0, window - output - profile.margin_tokens))


_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class WindowRules(Levels[str]):
    """The rules of a configuration for context windows. ``profiles`` are all profiles by name. ``profile`` is the name
    for all requests; the names for models, teams and keys take precedence. The name "" stands for no profile.
    ``allowed`` are the names that clients may choose, with ``*`` for any text; by default there are none."""

    profiles: Mapping[str, CapabilityProfile] = field(default_factory=dict)
    profile: str = ""
    allowed: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no request has a profile, whatever it says."""
        return not (self.profile or self.has_levels or self.allowed)

    def profile_for(
        self, model: str, team: str, key_id: str, wished: str = "", param: str = "stratiform.window.profile"
    ) -> CapabilityProfile | None:
        """The profile of a request; None: it has no budget. ``wished`` is the name that the client chose, or "", and
        ``param`` is where the request says it. Raises Forbidden for a name that this client may not choose, whether or
        not there is such a profile. Raises InvalidRequest for a name that may be chosen and does not exist."""
        given = [self.profile, *self.said_for(model, team, key_id)][-1]
        if not wished or wished == given:
            return self.profiles.get(given)
        if not self.may_choose(wished):
            shown = wished.encode("utf-8", "replace").decode()[:_SHOWN_CHARS]
            names = ", ".join(sorted(filter(self.may_choose, self.profiles)))
            message = f"This key may not choose the profile '{shown}'{f'; it may choose {names}' if names else ''}."
            raise Forbidden(message, param=param, code="profile_not_allowed")
        if wished not in self.profiles:
            raise unknown_name("profile", wished, filter(self.may_choose, self.profiles))
        return self.profiles[wished]

    def may_choose(self, name: str) -> bool:
        """Whether clients may choose this name. It does not matter whether such a profile exists."""
        # For ``allows``, an empty list lets every name pass: it is the list of a team that may use all models.
        return bool(self.allowed) and allows([self.allowed], [name])


@dataclass(frozen=True, slots=True)
class VirtualFile:
    """A logical document of a ``chat_ops`` request. At most one of a request ``is_active``."""

    id: str
    content: str = field(repr=False)
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class WindowParts:
    """The parts that ``stratiform.window`` names. None: the request does not have the part."""

    profile: str = ""
    instruction: str | None = field(default=None, repr=False)
    selection: str | None = field(default=None, repr=False)
    prefix: str | None = field(default=None, repr=False)
    suffix: str | None = field(default=None, repr=False)
    summary: str | None = field(default=None, repr=False)
    virtual_files: tuple[VirtualFile, ...] = ()

    @property
    def has_any(self) -> bool:
        return bool(self.virtual_files) or any(getattr(self, name) is not None for name in _TEXTS)


NAME = "stratiform.window"
_TEXTS = ("instruction", "selection", "prefix", "suffix", "summary")
MOST_FILES = 1_000
_MOST_ID_CHARS = 512
_MOST_PROFILE_CHARS = 64
_MOST_COMMAS = 4 * MOST_FILES + 64


class _FileJson(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=_MOST_ID_CHARS)]
    content: str
    active: bool | None | UnsetType = UNSET


class _PartsJson(Struct, forbid_unknown_fields=True):
    profile: Annotated[str, Meta(max_length=_MOST_PROFILE_CHARS)] | None | UnsetType = UNSET
    instruction: str | None | UnsetType = UNSET
    selection: str | None | UnsetType = UNSET
    prefix: str | None | UnsetType = UNSET
    suffix: str | None | UnsetType = UNSET
    summary: str | None | UnsetType = UNSET
    virtual_files: Annotated[list[_FileJson], Meta(max_length=MOST_FILES)] | None | UnsetType = UNSET


_DECODER: msgspec.json.Decoder[_PartsJson | None] = msgspec.json.Decoder(_PartsJson | None)


def read_parts(raw: Raw | bytes) -> WindowParts:
    """The parts that a request names. A section that is null names none. Raises InvalidRequest. The time is that of
    decoding the texts; a large section is read beside the event loop."""
    text = bytes(raw)
    if has_more_commas(text, _MOST_COMMAS):
        raise invalid(NAME, f"has too many values: it may list at most {MOST_FILES} files", "too_many_items")
    found = decoded(_DECODER, text, NAME, {}) or _PartsJson()
    check_fields(text, names_within(found), NAME)
    return WindowParts(
        profile=found.profile or "",
        **{name: text for name in _TEXTS if isinstance(text := getattr(found, name), str)},
        virtual_files=_files(found.virtual_files or ()),
    )


def _files(found: Sequence[_FileJson]) -> tuple[VirtualFile, ...]:
    param = f"{NAME}.virtual_files"
    check_ids([each.id for each in found], param, "file")
    active = [number for number, each in enumerate(found) if each.active is True]
    if len(active) > 1:
        raise invalid(f"{param}[{active[1]}].active", "must be true for one file only")
    return tuple(VirtualFile(each.id, each.content, each.active is True) for each in found)

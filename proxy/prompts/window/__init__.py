"""Context window budgets. The messages and parts of a request and a capability profile come in; messages that do not
exceed the budget go out. Nothing here knows about upstreams or files. ``fitting`` fits the messages of a chat, of which
the oldest are left out, and the texts of a completion.

This file has the capability profiles, and the parts of a request that they fit. Each profile has its own budget, and
shares nothing with another profile by accident. ``read_parts`` reads and validates a request's section
``stratiform.window``. Every mistake is an InvalidRequest (400) that says which field to change. A field that is null
counts as left out. Text is never quoted.

Parts are shortened only if the whole does not fit: what one part does not use of its cap, another part may use. The
suffix is shortened first, and then the prefix. The tokens of both beyond their caps are removed before any tokens
within a cap. Then the conversation is trimmed (``proxy.prompts.window.fitting``). The rest is taken from the summary,
from the virtual files (the last one first), from the tokens of the instruction beyond its cap, and at last, if the
profile allows it, from the system text. The selection is never shortened. The JSON of messages that get parts of a
request is written here, too.

At the end, a prompt is counted before it is compared with a window. ``TokenFactor`` learns how a model's own count of a
prompt compares with the proxy's, from the provider's reports and refusals. ``ExactTokens`` counts tokens as the encoder
does, without estimates or samples. Each text is counted once. The planner's reader only estimates. That is enough to
compare layouts and far cheaper, but repetitive code may have half as many tokens again as the estimate.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec import field as json_field

from proxy.kit.errors import Forbidden
from proxy.kit.value import dataclass, digest, field, replace
from proxy.prompts import Levels
from proxy.protocol.access import allows
from proxy.protocol.request import parts_of
from proxy.protocol.request.element import Element, ToolReader
from proxy.protocol.request.message import Message, MessageReader, text_part
from proxy.protocol.request.tokens import Encode, TokenCounter
from proxy.protocol.wire import (
    check_fields,
    check_ids,
    decoded,
    has_more_commas,
    invalid,
    names_within,
    unknown_name,
)
from proxy.protocol.wire.json_body import (
    dumps,
    elements,
    join_members,
    members_of,
    string_of,
    text_json,
    utf8,
    value,
)


class Capability(StrEnum):
    """The kind of a profile's requests, which decides what is shortened and in which order."""

    COMPLETION = "completion"
    EDIT = "edit"
    CHAT = "chat"
    CHAT_OPS = "chat_ops"


class OverBudget(StrEnum):
    """The treatment of a request that the upstream refuses as too large: the client gets an empty, valid completion;
    the request is sent again with a smaller budget, and is an error if that does not help; or the client gets
    ``context_length_exceeded``."""

    EMPTY = "empty"
    RETRY = "retry"
    ERROR = "error"


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
class TokenBudget:
    """A budget in tokens, as the model counts them. ``prompt_tokens`` is what is left for the prompt: the window
    without the answer and the margin, and never less than 0."""

    window_tokens: int
    output_tokens: int
    margin_tokens: int
    prompt_tokens: int

    def scaled(self, scale: float) -> "TokenBudget":
        """A smaller budget for the prompt, for a request that an upstream has refused as too large."""
        return replace(self, prompt_tokens=int(self.prompt_tokens * min(1.0, max(0.0, scale))))


def budget_of(profile: CapabilityProfile, model_window: int | None, wanted_output: int | None) -> TokenBudget | None:
    """The budget under a profile. If both the profile and the model's data name a window, the smaller one counts. If
    neither does, the result is None and nothing is trimmed. ``wanted_output`` is the answer's maximum that the request
    names."""
    window = min((each for each in (profile.window_tokens, model_window) if each is not None), default=None)
    if window is None:
        return None
    output = profile.output_tokens if wanted_output is None else wanted_output
    return TokenBudget(window, output, profile.margin_tokens, max(0, window - output - profile.margin_tokens))


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


NAME = "stratiform.window"
MOST_FILES = 1_000
_TEXTS = ("instruction", "selection", "prefix", "suffix", "summary")
_MOST_ID_CHARS = 512
_MOST_PROFILE_CHARS = 64
_MOST_COMMAS = 4 * MOST_FILES + 64


class VirtualFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A logical document of a ``chat_ops`` request. At most one of a request ``is_active``."""

    id: Annotated[str, Meta(min_length=1, max_length=_MOST_ID_CHARS)]
    content: str
    is_active: bool | None | UnsetType = json_field(default=UNSET, name="active")


class WindowParts(Struct, frozen=True, forbid_unknown_fields=True):
    """The parts that ``stratiform.window`` names. A part that is null or UNSET is not there."""

    profile: Annotated[str, Meta(max_length=_MOST_PROFILE_CHARS)] | None | UnsetType = UNSET
    instruction: str | None | UnsetType = UNSET
    selection: str | None | UnsetType = UNSET
    prefix: str | None | UnsetType = UNSET
    suffix: str | None | UnsetType = UNSET
    summary: str | None | UnsetType = UNSET
    virtual_files: Annotated[tuple[VirtualFile, ...], Meta(max_length=MOST_FILES)] | None | UnsetType = UNSET

    @property
    def texts(self) -> dict[str, str]:
        """The parts that are texts, by their names."""
        return {name: text for name in _TEXTS if isinstance(text := getattr(self, name), str)}

    @property
    def has_any(self) -> bool:
        """Whether anything but a profile is named."""
        return bool(self.virtual_files or self.texts)


_DECODER: msgspec.json.Decoder[WindowParts | None] = msgspec.json.Decoder(WindowParts | None)


def read_parts(raw: Raw | bytes) -> WindowParts:
    """The parts that a request names. A section that is null names none. Raises InvalidRequest. The time is that of
    decoding the texts; a large section is read beside the event loop."""
    text = bytes(raw)
    if has_more_commas(text, _MOST_COMMAS):
        raise invalid(NAME, f"has too many values: it may list at most {MOST_FILES} files", "too_many_items")
    found = decoded(_DECODER, text, NAME, {}) or WindowParts()
    check_fields(text, names_within(found), NAME)
    files, param = found.virtual_files or (), f"{NAME}.virtual_files"
    check_ids([file.id for file in files], param, "file")
    active = [number for number, file in enumerate(files) if file.is_active]
    if len(active) > 1:
        raise invalid(f"{param}[{active[1]}].active", "must be true for one file only")
    return found


Count = Callable[[str], int]
"""Counts the tokens of a text."""

_NO_CONTENT = Raw(b"null")


class PartName(StrEnum):
    """The parts that can be shortened or must be counted."""

    SYSTEM = "system"
    INSTRUCTION = "instruction"
    SELECTION = "selection"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUMMARY = "summary"
    FILES = "virtual_files"


Sizes = Mapping[PartName, int]
"""Tokens by part. A part that does not exist may be left out."""


def beside_conversation(sizes: Sizes, caps: PartCaps, overflow_tokens: int) -> tuple[dict[PartName, int], int]:
    """The tokens that the suffix and the prefix may keep if there are ``overflow_tokens`` too many, and how many are
    still too many."""
    suffix, prefix = PartName.SUFFIX, PartName.PREFIX
    return _reduced(sizes, [(suffix, caps.suffix), (prefix, caps.prefix), (suffix, 0), (prefix, 0)], overflow_tokens)


def behind_conversation(
    sizes: Sizes, caps: PartCaps, overflow_tokens: int, *, may_shorten_system: bool = False
) -> tuple[dict[PartName, int], int]:
    """The tokens of the parts that are shortened only after the conversation, and how many are still too many. If this
    number is more than 0, the request does not fit."""
    order = [(PartName.SUMMARY, caps.summary), (PartName.SUMMARY, 0), (PartName.FILES, 0)]
    order += [(PartName.INSTRUCTION, caps.instruction), (PartName.SYSTEM, caps.system), (PartName.SYSTEM, 0)]
    return _reduced(sizes, order if may_shorten_system else order[:-2], overflow_tokens)


def _reduced(
    sizes: Sizes, order: Sequence[tuple[PartName, int | None]], overflow_tokens: int
) -> tuple[dict[PartName, int], int]:
    """The tokens of the parts after all steps. Each step takes the excess from a part, down to the step's floor; None:
    the step takes nothing."""
    kept = dict(sizes)
    left = max(0, overflow_tokens)
    for part, floor in order:
        if floor is not None and part in kept:
            taken = min(left, max(0, kept[part] - floor))
            kept[part] -= taken
            left -= taken
    return kept, left


@dataclass(frozen=True, slots=True)
class WindowTexts:
    """The texts around parts. ``above`` has the line above each part. A summary and its line are a user message of
    their own, and ``summary_ok`` is the assistant's answer to it. All other parts are in the newest user message."""

    above: Mapping[PartName, str]
    summary_ok: str


def own_text(raw: bytes) -> str:
    """The text of a message. If its content is a list, it is the text of its text parts, one line for each. Raises
    Unreadable."""
    return "\n".join([text for kind, text in parts_of(members_of(raw)) if kind == "text" and text is not None])


def with_text(raw: bytes, text: str, *, keeps_own: bool = True) -> bytes:
    """A message with a text in front of the client's own text, and a blank line between the two. Unless it
    ``keeps_own``, the text replaces the client's own. The rest of the content follows the text. Raises Unreadable."""
    members = members_of(raw)
    content = members.get("content", _NO_CONTENT)
    if bytes(content)[:1] == b"[":
        others = [bytes(part) for part in elements(content) if keeps_own or _part_text(part) is None]
        return join_members(members, {"content": b"[" + b",".join([text_part(text), *others]) + b"]"})
    own = own_text(raw) if keeps_own else ""
    return join_members(members, {"content": text_json(f"{text}\n\n{own}" if own.strip() else text)})


def _part_text(raw: Raw) -> str | None:
    members = members_of(raw)
    is_text = "text" in members and value(members.get("type", _NO_CONTENT)) == "text"
    return string_of(members["text"]) if is_text else None


@dataclass(frozen=True, slots=True)
class Payload:
    """The files of a request in the order of their priority. Each has its tokens, and the tokens of its id, which
    counts if the file is left out. ``frame_tokens`` are those of the object without files and without the message's
    text."""

    files: tuple[VirtualFile, ...]
    file_tokens: tuple[int, ...]
    id_tokens: tuple[int, ...]
    frame_tokens: int

    @classmethod
    def of(cls, files: Sequence[VirtualFile], message: str, count: Count) -> "Payload":
        """The payload with all files. If none is active, the first one is."""
        active = next((n for n, file in enumerate(files) if file.is_active), 0)
        ordered = (files[active], *files[:active], *files[active + 1 :])
        empty = cls(ordered, (0,) * len(ordered), (0,) * len(ordered), 0)
        ids = tuple(count(_json(file.id)) + 1 for file in ordered)
        # A file takes the tokens of its id in either case.
        sizes = tuple(max(count(_json(_entry(f))) + 1, own) for f, own in zip(ordered, ids, strict=True))
        frame = count(empty.text(message, 0)) - count(message) + 2
        return cls(ordered, sizes, ids, max(0, frame))

    @property
    def tokens(self) -> int:
        return self.frame_tokens + sum(self.file_tokens)

    @property
    def least_tokens(self) -> int:
        return self.frame_tokens + self.file_tokens[0] + sum(self.id_tokens[1:])

    def fitting(self, allowed_tokens: int) -> int:
        """The number of files that fit into ``allowed_tokens``, and at least one. The time is linear."""
        tokens, shown = self.tokens, len(self.files)
        while shown > 1 and tokens > allowed_tokens:
            shown -= 1
            tokens -= self.file_tokens[shown] - self.id_tokens[shown]
        return shown

    def text(self, message: str, shown: int) -> str:
        """The object with the first ``shown`` files, as compact JSON. Text that is not ASCII is written as it is."""
        return _json(
            {
                "kind": "virtual_files",
                "schema_version": 1,
                "message": message,
                "active_file": self.files[0].id,
                "virtual_files": [_entry(file) for file in self.files[:shown]],
                "omitted_virtual_file_ids": [file.id for file in self.files[shown:]] if shown else [],
            }
        )


def _entry(file: VirtualFile) -> dict[str, str]:
    return {"id": file.id, "content": file.content}


def _json(found: object) -> str:
    return dumps(found).decode()


LEAST_FACTOR, MOST_FACTOR = 0.7, 2.1
_STEP = 0.05
_LEAST_TOKENS = 500
_MILLION = 1_000_000
_MEMORY = 16
_Packed = tuple[int, bool, list[tuple[int, float]]]


class TokenFactor:
    """``value`` is the factor for the proxy's count, in steps. It is the largest ratio of the last reports. So it rises
    at once and falls late, and does not move a conversation's cut with every report. Only prompts that are at least
    half as long as the longest one count: nothing is left out of short prompts, and the tokens that a provider counts
    besides the messages are a larger share of them. Before the first report the value is 1.

    If a refusal does not name the prompt's tokens, the value is a guess until the next report. Processes share the
    factor under its ``name``. ``version`` grows with each change: the factor with the larger version knows more.
    """

    __slots__ = ("_reports", "is_guess", "name", "version")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_guess = False
        self.version = 0
        self._reports: deque[tuple[int, float]] = deque(maxlen=_MEMORY)

    @property
    def measured(self) -> float:
        longest = max(self._reports, default=(0, 1.0))[0]
        ratio = max((ratio for counted, ratio in self._reports if 2 * counted >= longest), default=1.0)
        return min(MOST_FACTOR, max(LEAST_FACTOR, round(math.ceil(round(ratio / _STEP, 6)) * _STEP, 2)))

    @property
    def value(self) -> float:
        return MOST_FACTOR if self.is_guess else self.measured

    def learn(self, counted_tokens: int, reported_tokens: int) -> None:
        """Learn from a prompt that the proxy and the provider have counted. A short prompt says little, and is skipped.
        If the counts differ by more than those of any tokenizer, it was another prompt, and counts as the bound."""
        if self.is_guess or counted_tokens >= _LEAST_TOKENS:
            self._take(counted_tokens, reported_tokens)

    def refused(self, counted_tokens: int, named_tokens: int | None) -> None:
        """Learn from a prompt that the provider has refused as too large. ``named_tokens`` are the prompt's tokens
        according to the provider; None: it does not name them."""
        if named_tokens is not None and named_tokens > self.value * counted_tokens:
            self._take(counted_tokens, named_tokens)
        elif named_tokens is None and counted_tokens:
            self.is_guess, self.version = True, self.version + 1

    def _take(self, counted: int, reported: int) -> None:
        if 0 < reported < _MILLION * counted:
            if self.is_guess:
                self._reports.clear()
            self._reports.append((counted, reported / counted))
            self.is_guess, self.version = False, self.version + 1

    def packed(self) -> Mapping[str, bytes]:
        return {self.name: msgspec.json.encode((self.version, self.is_guess, list(self._reports)))}

    def names(self) -> list[str]:
        return [self.name]

    def is_known(self) -> bool:
        return self.version > 0

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        """Take over what another process knows, if it is newer. Unreadable values are skipped."""
        with suppress(msgspec.DecodeError, KeyError):
            version, is_guess, reports = msgspec.json.decode(blobs[self.name], type=_Packed)
            if version > self.version:
                self.version, self.is_guess, self._reports = version, is_guess, deque(reports, _MEMORY)


# A text up to this length is not remembered, because it is counted about as fast as it is looked up.
_SHORT_CHARS = 256
_TEXT, _WRITTEN, _TOOLS = b"t", b"w", b"o"


class ExactTokens(TokenCounter):
    """Counts messages, tools and texts, and remembers at most ``capacity`` counts by digest, the least recently used
    out first. A count takes about 150 bytes of memory.

    A ``fork`` may be used in another thread. It has the counts of this one, and ``merge`` brings back its new counts.
    """

    def __init__(self, encode: Encode, *, capacity: int, base: "ExactTokens | None" = None) -> None:
        super().__init__(encode, capacity=capacity, base=base)
        # Counts are remembered for whole messages, so these readers remember next to nothing.
        counter = TokenCounter(encode, capacity=1)
        self._messages = MessageReader(counter, (), capacity_bytes=0)
        self._tools = ToolReader(counter, capacity_bytes=0)

    def fork(self) -> "ExactTokens":
        return ExactTokens(self._encode, capacity=self._capacity, base=self)

    def of_message(self, message: Message) -> int:
        return self.counted(message.digest, self._of, message.raw)

    def of_written(self, raw: bytes) -> int:
        """Tokens of a message that the proxy has written. Raises Unreadable."""
        return self.counted(_WRITTEN + digest(raw), self._of, raw)

    def _of(self, raw: bytes) -> int:
        return self._messages.read(Raw(raw)).tokens

    def of_tools(self, raw: Raw | bytes | None, read: Sequence[Element]) -> int:
        """Tokens of the tools, which the planner has ``read``. Raises Unreadable."""
        if not read:
            return 0
        key = _TOOLS + digest(*(element.digest for element in read))
        return self.counted(key, lambda: sum(element.tokens for element in self._tools.read(raw)))

    def of_text(self, text: str) -> int:
        return self._encode(text) if len(text) <= _SHORT_CHARS else self.count(_TEXT + digest(utf8(text)), text)

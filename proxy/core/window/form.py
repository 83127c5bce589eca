"""The parts of a request in its section ``stratiform.window``, read and validated.

Every mistake is an InvalidRequest (400) that says which field to change. A field that is null counts as left out. Text
is never quoted.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proxy.core.value import dataclass, field
from proxy.core.wire.refusals import check_fields, check_ids, decoded, invalid, names_within
from proxy.core.wire.scan import has_more_commas


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
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


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
    found = decoded(_DECODER, text, NAME, _CHOICES) or _PartsJson()
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

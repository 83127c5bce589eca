"""Reads and validates the section ``stratiform.prompts`` of a request. ``proxy.core.prompts.terms`` decides whether a
client may ask for it.

Every mistake is an InvalidRequest (400) that says which field to change. A field that is null counts as left out. The
texts of a client are literal: they are sent unchanged, and are never templates.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proxy.core.prompts.conditions import checked, compiled
from proxy.core.prompts.context import MOST_CONTEXT_BYTES, exceeded_bound
from proxy.core.prompts.prompt import (
    ID_PATTERN,
    ID_RULE,
    MOST_PRIORITY,
    ROOTS,
    Condition,
    ConditionError,
    Json,
    Position,
    Prompt,
)
from proxy.core.prompts.terms import FLAGS, ClientWish
from proxy.core.wire.refusals import check_fields, check_ids, decoded, invalid, names_within, unknown_field
from proxy.errors import InvalidRequest

NAME = "stratiform.prompts"
MOST_FORM_BYTES = 256 << 10
MOST_EXTRAS = 50
MOST_CONDITIONS = 20
"""The most conditions of one extra prompt."""
MOST_PATTERNS = 10
"""The most patterns of all extra prompts together: each may take 10 ms, if a text is made to be slow for it."""
MOST_CLIENT_PROGRAM_SIZE = 200
"""The most steps that a client's pattern may become."""
_PERSONA = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_NOTHING = Raw(b"")
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({"position": tuple(Position)})


class _ConditionJson(Struct, forbid_unknown_fields=True):
    field: Annotated[str, Meta(max_length=512)]
    operator: str
    value: Any = UNSET


class _ExtraJson(Struct, forbid_unknown_fields=True):
    id: str
    position: Position
    text: str
    priority: Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] | None | UnsetType = UNSET
    conditions: Annotated[list[_ConditionJson], Meta(max_length=MOST_CONDITIONS)] | None | UnsetType = UNSET


class _WishJson(Struct, forbid_unknown_fields=True):
    persona: str | None | UnsetType = UNSET
    override: str | None | UnsetType = UNSET
    tools: bool | None | UnsetType = UNSET
    plugins: bool | None | UnsetType = UNSET
    agents: bool | None | UnsetType = UNSET
    context: Raw = _NOTHING
    extra: Annotated[list[_ExtraJson], Meta(max_length=MOST_EXTRAS)] | None | UnsetType = UNSET


_DECODER: msgspec.json.Decoder[_WishJson | None] = msgspec.json.Decoder(_WishJson | None)
_CONTEXT_DECODER: msgspec.json.Decoder[dict[str, dict[str, Any]] | None] = msgspec.json.Decoder(
    dict[str, dict[str, Any]] | None
)


def read_wish(raw: Raw | bytes) -> ClientWish:
    """The wish of the client. A section that is null asks for nothing. Raises InvalidRequest. The time is bounded by
    ``MOST_FORM_BYTES``."""
    text = bytes(raw)
    if len(text) > MOST_FORM_BYTES:
        raise invalid(NAME, f"may have at most {MOST_FORM_BYTES} bytes", "too_long")
    form = decoded(_DECODER, text, NAME, _CHOICES) or _WishJson()
    flags: dict[str, Any] = {name: flag for name in FLAGS if isinstance(flag := getattr(form, name), bool)}
    wish = ClientWish(
        persona=checked_persona(form.persona, f"{NAME}.persona") if form.persona else None,
        override=form.override or None,
        **flags,
        context=_context(bytes(form.context)),
        extras=_extras(form.extra or ()),
    )
    check_fields(text, names_within(form) + names_within(wish.context), NAME)
    return wish


def checked_persona(name: str, param: str) -> str:
    """The name, after a check that a persona can have it. It follows ``persona:`` in an id, so that it may begin with
    any character of an id. Raises InvalidRequest that names ``param``."""
    if not _PERSONA.fullmatch(name):
        raise invalid(param, "must be 1 to 128 letters, digits and . _ : / -")
    return name


def _context(text: bytes) -> Mapping[str, Mapping[str, Json]]:
    param = f"{NAME}.context"
    if len(text) > MOST_CONTEXT_BYTES:
        raise invalid(param, f"may have at most {MOST_CONTEXT_BYTES} bytes", "too_long")
    context = (decoded(_CONTEXT_DECODER, text, param, _CHOICES) if text else None) or {}
    for root in context:
        if root not in ROOTS:
            raise unknown_field(root, param)
    _check_bounds(context, param)
    return context


def _extras(found: Sequence[_ExtraJson]) -> tuple[Prompt, ...]:
    check_ids([each.id for each in found], f"{NAME}.extra", "prompt")
    extras = tuple(_extra(each, f"{NAME}.extra[{number}]") for number, each in enumerate(found))
    if sum(one.operator == "matches" for extra in extras for one in extra.conditions) > MOST_PATTERNS:
        raise invalid(f"{NAME}.extra", f"may have at most {MOST_PATTERNS} conditions with patterns", "too_many_items")
    return extras


def _extra(found: _ExtraJson, param: str) -> Prompt:
    if not ID_PATTERN.fullmatch(found.id):
        raise invalid(f"{param}.id", f"must be {ID_RULE}")
    return Prompt(
        id=found.id,
        position=found.position,
        text=found.text,
        priority=found.priority or 0,
        conditions=tuple(_condition(each, f"{param}.conditions[{n}]") for n, each in enumerate(found.conditions or ())),
        is_literal=True,
        origin="the request",
    )


def _condition(found: _ConditionJson, param: str) -> Condition:
    value = None if found.value is UNSET else found.value
    _check_bounds({"value": {"value": value}}, f"{param}.value")
    condition = Condition(found.field, found.operator, value)
    try:
        checked(condition)
        if condition.operator == "matches" and isinstance(condition.value, str):
            compiled(condition.value, MOST_CLIENT_PROGRAM_SIZE)
    except ConditionError as error:
        raise InvalidRequest(f"'{param}': {error}", param=param, code=error.code) from error
    return condition


def _check_bounds(context: Mapping[str, Mapping[str, Json]], param: str) -> None:
    if exceeded := exceeded_bound(context):
        raise invalid(param, f"is too large: it has {exceeded}", "too_many_items")

"""Chooses and orders the prompts of the registry for a request, and puts together the texts that are added to it.

Conditions say whether a prompt is composed in a context. A field that is missing makes every condition false, except
``not_exists``. Strings, numbers, booleans and null are never converted into each other. Whole numbers and other numbers
are compared by their value. ``contradiction`` finds conditions of one prompt that can never hold together, so that the
prompt is never composed.

At the end, the section ``stratiform.prompts`` of a request is read. ``proxy.prompts`` decides whether a client may
ask for it. Every mistake is an InvalidRequest (400) that says which field to change. A field that is null counts as
left out. The texts of a client are literal: they are sent unchanged, and are never templates.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import inf
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Annotated, Any, TypeGuard

import msgspec
import re2
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import digest, replace
from proxy.prompts import (
    AFTER_USER,
    BEFORE_USER,
    FLAGS,
    ID_PATTERN,
    ID_RULE,
    MOST_CONTEXT_BYTES,
    MOST_PRIORITY,
    ROOTS,
    SYSTEM_POSITIONS,
    ClientWish,
    Composition,
    Condition,
    ConditionError,
    Json,
    Position,
    Prompt,
    PromptContext,
    PromptFailure,
    PromptTerms,
    RenderError,
    exceeded_bound,
    merged,
    resolved,
    value_at,
)
from proxy.protocol.access import matches_any
from proxy.protocol.request import Inset
from proxy.protocol.wire import check_fields, check_ids, decoded, invalid, names_within, unknown_field
from proxy.protocol.wire.json_body import utf8

_ORDER: Mapping[Position, int] = MappingProxyType({position: rank for rank, position in enumerate(Position)})
PERSONA_PREFIX = "persona:"
"""A prompt whose id begins with this is composed only if the terms choose its persona."""


def chosen(prompts: Sequence[Prompt], terms: PromptTerms) -> tuple[Prompt, ...]:
    """The prompts that the terms choose, in the order in which they are composed: by position, then by descending
    priority, then by registration. An extra prompt replaces the registered one with the same id, but it never replaces
    the registered prompt of the chosen persona."""
    persona = PERSONA_PREFIX + terms.persona if terms.persona else ""
    names, wide = {persona, *terms.use}, [pattern for pattern in terms.use if "*" in pattern]
    found = {prompt.id: prompt for prompt in prompts if prompt.id in names or matches_any(wide, prompt.id)}
    ranks = {prompt.id: rank for rank, prompt in enumerate(prompts)}
    for extra in terms.extras:
        if extra.id != persona or persona not in found:
            found[extra.id] = extra
        ranks.setdefault(extra.id, len(ranks))
    registered = sorted(found.values(), key=lambda prompt: ranks[prompt.id])
    return in_order(prompt for prompt in registered if _fits(prompt, persona, terms))


def in_order(prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    """The prompts by position, then by descending priority, then in their present order."""
    return tuple(sorted(prompts, key=lambda prompt: (_ORDER[prompt.position], -prompt.priority)))


def _fits(prompt: Prompt, persona: str, terms: PromptTerms) -> bool:
    return (
        prompt.profile in ("", terms.profile)
        and (prompt.id == persona or not prompt.id.startswith(PERSONA_PREFIX))
        and not (terms.override and prompt.position.is_system)
        and (prompt.position not in FLAGS or bool(getattr(terms, prompt.position)))
    )


Render = Callable[[Prompt, PromptContext, Mapping[str, Json]], str]
"""The text of a prompt, from its template, the context and its variables. Raises RenderError."""


def assemble(prompts: Sequence[Prompt], terms: PromptTerms, context: PromptContext, render: Render) -> Composition:
    """The composition of these prompts, which are in the order of their registration. If a prompt's condition cannot be
    evaluated or its template cannot be rendered, the prompt is left out; in strict mode, PromptFailure is raised. It is
    raised in any mode if a registered prompt fails because of what the client adds to the context: a client must not be
    able to leave out a prompt in this way."""
    parts: list[Prompt] = []
    persona = PERSONA_PREFIX + terms.persona
    has_persona = not terms.persona or any(prompt.id == persona for prompt in (*prompts, *terms.extras))
    skipped = {} if has_persona else {persona: "missing"}
    for prompt in chosen(prompts, terms):
        try:
            text, reason = _text(prompt, context, render)
        except (ConditionError, RenderError) as error:
            is_extra = any(prompt is extra for extra in terms.extras)
            is_broken = not is_extra and _is_broken(prompt, terms, render)
            if terms.strict or is_broken:
                raise PromptFailure(prompt.id, is_client=is_extra or is_broken, why=str(error)) from error
            text, reason = "", "bad_condition" if isinstance(error, ConditionError) else "render_error"
        if text:
            parts.append(replace(prompt, text=text))
        else:
            skipped[prompt.id] = reason
    return Composition(
        system=terms.override or _joined(parts, SYSTEM_POSITIONS),
        inset=Inset(_joined(parts, BEFORE_USER), _joined(parts, AFTER_USER)),
        parts=tuple(parts),
        skipped=skipped,
        prints={part.id: digest(utf8(part.text)) for part in parts if part.position.is_system},
    )


def _text(prompt: Prompt, context: PromptContext, render: Render) -> tuple[str, str]:
    """The trimmed text of the prompt, or "" and the reason why there is none."""
    if not all(holds(condition, context) for condition in prompt.conditions):
        return "", "condition"
    text = prompt.text if prompt.is_literal else render(prompt, context, resolved(prompt.variables, context))
    return text.strip(), "blank"


def _is_broken(prompt: Prompt, terms: PromptTerms, render: Render) -> bool:
    """Whether a prompt that fails would not fail without what the client adds to the context."""
    if terms.own_context is None:
        return False
    try:
        _text(prompt, merged(terms.own_context), render)
    except (ConditionError, RenderError):
        return False
    return True


def _joined(parts: Sequence[Prompt], positions: Sequence[Position]) -> str:
    return "\n\n".join(part.text for part in parts if part.position in positions)


def is_number(value: Json) -> TypeGuard[int | float]:
    """Whether the value is a number. A boolean is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal(one: Json, other: Json) -> bool:
    """Whether the values are the same, or numbers of the same value."""
    return one == other if is_number(one) and is_number(other) else same(one, other)


def same(one: Json, other: Json) -> bool:
    """Whether the values have the same type and the same content. A whole number is not the same as a float of its
    value. The time is linear in the smaller value. The depth is that of a context, which is bounded."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return type(one) is type(other) and one == other


MOST_PATTERN_CHARS = 500
MOST_PROGRAM_SIZE = 2_000
"""The most steps that a pattern may become."""
# The most steps of the program times bytes of the text: 10 ms of processor time for a text that is made to be slow.
_MOST_STEPS = 1_000_000
# The memory of a pattern. The library keeps the 128 patterns that were used last.
_MEMORY_BYTES = 256 << 10


def _options() -> "re2.Options":
    options = re2.Options()
    options.log_errors = False  # otherwise it writes the pattern to stderr
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    return options


_OPTIONS = _options()


def compiled(pattern: str, most_program_size: int = MOST_PROGRAM_SIZE) -> "re2._Regexp":
    """The pattern, ready to use. Raises ConditionError if it is not a pattern, or is too large."""
    if len(pattern) > MOST_PATTERN_CHARS:
        raise ConditionError("invalid_pattern", f"a pattern may have at most {MOST_PATTERN_CHARS} characters")
    try:
        program = re2.compile(pattern.encode("utf-8", "surrogatepass"), _OPTIONS)
    except re2.error as error:
        raise ConditionError("invalid_pattern", "the pattern is none of RE2's, or it is too large") from error
    if program.programsize > most_program_size:
        raise ConditionError("invalid_pattern", "the pattern is too large: it repeats too much")
    return program


Operator = Callable[[Json, Json], bool]

_EXISTS = "exists"
_NOT_EXISTS = "not_exists"


def holds(condition: Condition, context: PromptContext) -> bool:
    """Whether the condition holds. Raises ConditionError if its operator is unknown, or cannot be applied to these
    values. Neither is noticed if the field is missing."""
    is_there, found = value_at(context, condition.field)
    if condition.operator in (_EXISTS, _NOT_EXISTS):
        return is_there is (condition.operator == _EXISTS)
    return is_there and _operator(condition.operator)(found, condition.value)


def checked(condition: Condition) -> Condition:
    """The condition, after a check for mistakes that do not depend on the context. Raises ConditionError."""
    root, *names = condition.field.split(".")
    if root not in ROOTS or "" in names:
        raise ConditionError("invalid_path", f"the field must be a path that begins with one of {', '.join(ROOTS)}")
    if condition.operator in (_EXISTS, _NOT_EXISTS):
        return condition
    _operator(condition.operator)
    if condition.operator in _ORDERS and not is_number(condition.value):
        raise _not_numbers(condition.operator)
    if condition.operator == "in":
        _list(condition.value)
    if condition.operator == "matches":
        compiled(_pattern(condition.value))
    return condition


def _operator(name: str) -> Operator:
    if (operator := _OPERATORS.get(name)) is None:
        raise ConditionError("invalid_operator", f"an operator must be one of {', '.join(sorted(OPERATORS))}")
    return operator


def _compared(name: str, found: Json, value: Json) -> bool:
    if not (is_number(found) and is_number(value)):
        raise _not_numbers(name)
    return _ORDERS[name](found, value)


def _contains(found: Json, value: Json) -> bool:
    if isinstance(found, str):
        if not isinstance(value, str):
            raise ConditionError("invalid_type", "a string can only contain a string")
        return value in found
    if isinstance(found, list):
        return any(same(each, value) for each in found)
    raise ConditionError("invalid_type", "'contains' needs a field that is a string or a list")


def _matches(found: Json, value: Json) -> bool:
    pattern = _pattern(value)
    if not isinstance(found, str):
        raise ConditionError("invalid_type", "'matches' needs a field that is a string")
    program, raw = compiled(pattern), found.encode("utf-8", "surrogatepass")
    if len(raw) * program.programsize > _MOST_STEPS:
        raise ConditionError("too_long", "the text is too long for this pattern")
    return program.search(raw) is not None


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise ConditionError("invalid_type", "'in' needs a value that is a list")
    return value


def _pattern(value: Json) -> str:
    if not isinstance(value, str):
        raise ConditionError("invalid_type", "'matches' needs a value that is a pattern")
    return value


def _not_numbers(name: str) -> ConditionError:
    return ConditionError("invalid_type", f"'{name}' needs a field and a value that are numbers")


_ORDERS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType({"gt": gt, "lt": lt, "gte": ge, "lte": le})
_OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "eq": equal,
        "ne": lambda found, value: not equal(found, value),
        **{name: partial(_compared, name) for name in _ORDERS},
        "contains": _contains,
        "in": lambda found, value: any(equal(found, each) for each in _list(value)),
        "matches": _matches,
    }
)
OPERATORS = frozenset((*_OPERATORS, _EXISTS, _NOT_EXISTS))
"""The names of all operators."""


_ABOVE, _BELOW = ("gt", "gte"), ("lt", "lte")


def contradiction(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions that contradict each other: one that can never hold, or else two of them, or else all. Empty if
    the prompt may be composed. Regular expressions that exclude each other are not found, and neither are operators
    that need different types of values."""
    for few in (*combinations(conditions, 1), *combinations(conditions, 2), tuple(conditions)):
        if any(_is_impossible(field, few) for field in {condition.field for condition in few}):
            return few
    return ()


def _is_impossible(field: str, conditions: Sequence[Condition]) -> bool:
    """Whether neither any value of the field nor its absence satisfies all conditions on the field and on what is in
    it."""
    own = [condition for condition in conditions if condition.field == field]
    inner = [condition for condition in conditions if condition.field.startswith(f"{field}.")]
    if field not in ROOTS and all(condition.operator == _NOT_EXISTS for condition in (*own, *inner)):
        return False
    if any(condition.operator == _NOT_EXISTS for condition in own):
        return True
    for condition in own:  # the first one that names the values of which the field must have one
        if condition.operator == "eq" or (condition.operator == "in" and isinstance(condition.value, list)):
            values = [condition.value] if condition.operator == "eq" else _list(condition.value)
            return not any(_agrees(field, value, (*own, *inner)) for value in values)
    low = max((each.value for each in own if each.operator in _ABOVE and is_number(each.value)), default=-inf)
    high = min((each.value for each in own if each.operator in _BELOW and is_number(each.value)), default=inf)
    return low > high or (low == high and not _agrees(field, low, own))


def _agrees(field: str, value: Json, conditions: Sequence[Condition]) -> bool:
    root, *names = field.split(".")
    for name in reversed(names):
        value = {name: value}
    context = {**{name: {} for name in ROOTS}, root: value if isinstance(value, dict) else {}}
    try:
        return all(holds(condition, context) for condition in conditions)
    except ConditionError:
        return False


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
    context: Raw = Raw(b"")
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

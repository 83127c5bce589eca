"""The filters and tests of templates, under Jinja's names and under those that templates of Go know.

Each of them counts the work that it is going to do before it does it. None of them knows the time, chance, files or the
network.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context, Undefined

from proxy.core.prompts.failures import RenderError
from proxy.prompting.language import text_of, work_of
from proxy.prompting.work import MOST_CHARS, Work

_Filter = Callable[..., Any]


def _counted(function: Callable[..., Any]) -> _Filter:
    """The filter, called with the ``Work`` in front of its value, whose size is counted."""

    @pass_context
    def counted(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        work = work_of(context)
        work.weighed(value)
        for arg in args:
            work.weighed(arg)
        for arg in kwargs.values():
            work.weighed(arg)
        return function(work, value, *args, **kwargs)

    return counted


def _of_text(function: Callable[[str], str]) -> _Filter:
    """A filter that makes one text of another one, of about the same length."""
    return _counted(lambda work, value: work.made(function(text_of(value))))


def _title(text: str) -> str:
    return " ".join(word[0].upper() + word[1:] for word in text.split())


def _trim_prefix(work: Work, value: Any, prefix: str) -> str:
    return text_of(value).removeprefix(text_of(prefix))


def _trim_suffix(work: Work, value: Any, suffix: str) -> str:
    return text_of(value).removesuffix(text_of(suffix))


def _replace(work: Work, value: Any, old: Any, new: Any) -> str:
    text, before, after = text_of(value), text_of(old), text_of(new)
    work.making(len(text) + text.count(before) * max(len(after) - len(before), 0))
    return text.replace(before, after)


def _contains(work: Work, value: Any, wanted: Any) -> bool:
    return wanted in value if isinstance(value, list | tuple) else text_of(wanted) in text_of(value)


def _split(work: Work, value: Any, separator: Any = None) -> list[str]:
    text = text_of(value)
    by = None if separator is None else text_of(separator)
    found = list(text) if by == "" else text.split(by)
    work.listing(len(found))
    return found


def _join(work: Work, value: Any, separator: Any = "", attribute: str = "") -> str:
    by, texts = text_of(separator), [text_of(_of(item, attribute)) for item in _items(value)]
    work.making(sum(map(len, texts)) + len(by) * len(texts))
    return by.join(texts)


def _indent(work: Work, value: Any, width: Any = 4, first: bool = True) -> str:
    """Spaces in front of each line that is not empty; the first one, too, unless ``first`` is false."""
    lines, space = text_of(value).split("\n"), _whole(width, 1_000)
    work.making(sum(map(len, lines)) + len(lines) * (space + 1))
    head = " " * space
    return "\n".join(head + line if line and (first or index) else line for index, line in enumerate(lines))


def _nindent(work: Work, value: Any, width: Any = 4) -> str:
    return "\n" + _indent(work, value, width)


def _truncate(work: Work, value: Any, length: Any = 255, end: Any = "...") -> str:
    text, most, tail = text_of(value), _whole(length, MOST_CHARS), text_of(end)
    return text if len(text) <= most else work.made(text[: max(most - len(tail), 0)] + tail)


def _quote(work: Work, value: Any) -> str:
    return work.made(json.dumps(text_of(value), ensure_ascii=False))


def _squote(work: Work, value: Any) -> str:
    return work.made(f"'{text_of(value)}'")


def _to_json(work: Work, value: Any, indent: Any = None) -> str:
    """JSON with the order of its names as it is given. ``indent`` sets each value on a line of its own."""
    step = None if indent is None else _whole(indent, 8)
    separators = (",", ":") if step is None else (",", ": ")
    return work.made(json.dumps(_plain(value), ensure_ascii=False, indent=step, separators=separators))


def _from_json(work: Work, value: Any) -> Any:
    """The value of a JSON text; null where it is none."""
    try:
        found = json.loads(text_of(value))
    except (ValueError, RecursionError):
        return None
    return work.weighed(found)


def _default(work: Work, value: Any, other: Any = "", blank: bool = False) -> Any:
    """``other`` for what is undefined or null; with ``blank`` for every empty value."""
    is_missing = isinstance(value, Undefined) or value is None or (blank and _is_empty(value))
    return other if is_missing else value


def _required(work: Work, value: Any) -> Any:
    if _is_empty(value):
        raise RenderError("a value that is required is empty")
    return value


def _coalesce(work: Work, value: Any, *others: Any) -> Any:
    return next((one for one in (value, *others) if not _is_empty(one)), None)


def _ternary(work: Work, value: Any, yes: Any, no: Any) -> Any:
    return yes if value else no


def _first(work: Work, value: Any) -> Any:
    return next(iter(_items(value)), None)


def _last(work: Work, value: Any) -> Any:
    items = _items(value)
    return items[-1] if items else None


def _length(work: Work, value: Any) -> int:
    if not isinstance(value, str | list | tuple | range | Mapping):
        raise RenderError("length takes a text, a list or an object")
    return len(value)


def _listed(work: Work, value: Any) -> list[Any]:
    items = list(value) if isinstance(value, str) else _items(value)
    work.listing(len(items))
    return items


def _sort(work: Work, value: Any, reverse: bool = False, attribute: str = "") -> list[Any]:
    items = _items(value)
    work.listing(len(items))
    work.spend(len(items) * len(items).bit_length())
    return sorted(items, key=lambda item: _of(item, attribute), reverse=bool(reverse))


def _unique(work: Work, value: Any, attribute: str = "") -> list[Any]:
    """The first of each, in their order."""
    items = _items(value)
    work.listing(len(items))
    found: dict[str, Any] = {}
    for item in items:
        found.setdefault(json.dumps(_plain(_of(item, attribute)), sort_keys=True), item)
    return list(found.values())


def _reverse(work: Work, value: Any) -> Any:
    return text_of(value)[::-1] if isinstance(value, str) else _listed(work, value)[::-1]


def _pairs(work: Work, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise RenderError("items and dictsort take an object")
    work.listing(len(value))
    return list(value.items())


def _dictsort(work: Work, value: Any) -> list[tuple[str, Any]]:
    return sorted(_pairs(work, value), key=lambda pair: pair[0])


def _map(work: Work, value: Any, *, attribute: str) -> list[Any]:
    items = _items(value)
    work.listing(len(items))
    return [_of(item, attribute) for item in items]


def _select(work: Work, value: Any, attribute: str = "", equal_to: Any = ...) -> list[Any]:
    items = _items(value)
    work.listing(len(items))
    return [item for item in items if _holds(_of(item, attribute), equal_to)]


def _reject(work: Work, value: Any, attribute: str = "", equal_to: Any = ...) -> list[Any]:
    items = _items(value)
    work.listing(len(items))
    return [item for item in items if not _holds(_of(item, attribute), equal_to)]


def _holds(value: Any, equal_to: Any) -> bool:
    return bool(value) if equal_to is ... else bool(value == equal_to)


def _of(item: Any, attribute: str) -> Any:
    """The item, or its field of that name; null where it has none."""
    if not attribute:
        return item
    return item.get(attribute) if isinstance(item, Mapping) else None


def _items(value: Any) -> list[Any]:
    if isinstance(value, list | tuple | range | Mapping):
        return list(value)
    if isinstance(value, Undefined):
        return list(value)
    raise RenderError("a filter takes a list")


def _plain(value: Any) -> Any:
    """The value as JSON's own types. It was weighed before, so it is not nested deeply."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Undefined) else value


def _is_empty(value: Any) -> bool:
    if isinstance(value, Undefined) or value is None:
        return True
    return not value


def _whole(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RenderError(f"a filter takes a whole number from 0 to {most}")
    return value


def _number(value: Any) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RenderError("a filter takes a number")
    return value


def _int(work: Work, value: Any, default: int = 0) -> int:
    try:
        return int(value)
    except (ValueError, OverflowError):
        return default


def _float(work: Work, value: Any, default: float = 0.0) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return default


def _round(work: Work, value: Any, precision: int = 0) -> Any:
    digits = _whole(precision, 15)
    return round(float(_number(value)), digits) if digits else round(_number(value))


def _sum(work: Work, value: Any, attribute: str = "") -> Any:
    return sum(_number(_of(item, attribute)) for item in _items(value))


def _least(work: Work, value: Any) -> Any:
    return min(_items(value), default=None)


def _most(work: Work, value: Any) -> Any:
    return max(_items(value), default=None)


_JINJA: Mapping[str, _Filter] = {
    "abs": _counted(lambda work, value: abs(_number(value))),
    "capitalize": _of_text(str.capitalize),
    "coalesce": _counted(_coalesce),
    "contains": _counted(_contains),
    "count": _counted(_length),
    "default": _counted(_default),
    "dictsort": _counted(_dictsort),
    "first": _counted(_first),
    "float": _counted(_float),
    "fromjson": _counted(_from_json),
    "indent": _counted(_indent),
    "int": _counted(_int),
    "items": _counted(_pairs),
    "join": _counted(_join),
    "last": _counted(_last),
    "length": _counted(_length),
    "list": _counted(_listed),
    "lower": _of_text(str.lower),
    "map": _counted(_map),
    "max": _counted(_most),
    "min": _counted(_least),
    "nindent": _counted(_nindent),
    "quote": _counted(_quote),
    "reject": _counted(_reject),
    "replace": _counted(_replace),
    "required": _counted(_required),
    "reverse": _counted(_reverse),
    "round": _counted(_round),
    "select": _counted(_select),
    "sort": _counted(_sort),
    "split": _counted(_split),
    "squote": _counted(_squote),
    "string": _of_text(str),
    "sum": _counted(_sum),
    "ternary": _counted(_ternary),
    "title": _of_text(_title),
    "tojson": _counted(_to_json),
    "trim": _of_text(str.strip),
    "truncate": _counted(_truncate),
    "unique": _counted(_unique),
    "upper": _of_text(str.upper),
}
FILTERS: Mapping[str, _Filter] = {
    **_JINJA,
    "fromJSON": _JINJA["fromjson"],
    "hasPrefix": _counted(lambda work, value, prefix: text_of(value).startswith(text_of(prefix))),
    "hasSuffix": _counted(lambda work, value, suffix: text_of(value).endswith(text_of(suffix))),
    "toJSON": _JINJA["tojson"],
    "toLower": _JINJA["lower"],
    "toPrettyJSON": _counted(lambda work, value: _to_json(work, value, 2)),
    "toUpper": _JINJA["upper"],
    "trimPrefix": _counted(_trim_prefix),
    "trimSuffix": _counted(_trim_suffix),
}
"""Every filter, by its names."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TESTS: Mapping[str, _Filter] = {
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "divisibleby": _counted(lambda work, value, by: _number(value) % _number(by) == 0),
    "empty": _is_empty,
    "eq": _counted(lambda work, value, other: bool(value == other)),
    "equalto": _counted(lambda work, value, other: bool(value == other)),
    "even": lambda value: _number(value) % 2 == 0,
    "false": lambda value: value is False,
    "ge": _counted(lambda work, value, other: value >= other),
    "gt": _counted(lambda work, value, other: value > other),
    "in": _counted(lambda work, value, others: value in others),
    "le": _counted(lambda work, value, other: value <= other),
    "lt": _counted(lambda work, value, other: value < other),
    "mapping": lambda value: isinstance(value, Mapping),
    "ne": _counted(lambda work, value, other: bool(value != other)),
    "none": lambda value: value is None,
    "number": _is_number,
    "odd": lambda value: _number(value) % 2 == 1,
    "sequence": lambda value: isinstance(value, list | tuple | range),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
}
"""Every test, by its name."""

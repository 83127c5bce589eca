"""The filters and tests of templates, under Jinja's names and under those that templates of Go know.

Each of them counts the work that it is going to do before it does it. None of them knows the time, chance, files or the
network.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context, Undefined

from proxy.core.prompts.failures import RenderError
from proxy.prompting.language import number_of, text_of, work_of
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


def _chosen(*, keeps: bool) -> _Filter:
    """A filter of the items that are true, or equal to a value; or of the others, where it does not keep them."""

    def choose(work: Work, value: Any, attribute: str = "", equal_to: Any = ...) -> list[Any]:
        items = _items(value)
        work.listing(len(items))
        found = [(item, _of(item, attribute)) for item in items]
        return [item for item, own in found if bool(own if equal_to is ... else own == equal_to) is keeps]

    return _counted(choose)


def _of(item: Any, attribute: str) -> Any:
    """The item, or its field of that name; null where it has none."""
    if not attribute:
        return item
    return item.get(attribute) if isinstance(item, Mapping) else None


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple | range | Mapping | Undefined):
        raise RenderError("a filter takes a list")
    return list(value)


def _plain(value: Any) -> Any:
    """The value as JSON's own types. It was weighed before, so it is not nested deeply."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Undefined) else value


def _is_empty(value: Any) -> bool:
    return isinstance(value, Undefined) or not value


def _whole(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RenderError(f"a filter takes a whole number from 0 to {most}")
    return value


def _converted(kind: Callable[[Any], Any], default: Any) -> _Filter:
    """A filter that makes a number of a value, or another one where it cannot."""

    def convert(work: Work, value: Any, default: Any = default) -> Any:
        try:
            return kind(value)
        except (ValueError, OverflowError):
            return default

    return _counted(convert)


def _round(work: Work, value: Any, precision: int = 0) -> Any:
    digits = _whole(precision, 15)
    return round(float(number_of(value)), digits) if digits else round(number_of(value))


def _sum(work: Work, value: Any, attribute: str = "") -> Any:
    return sum(number_of(_of(item, attribute)) for item in _items(value))


_JINJA: Mapping[str, _Filter] = {
    "abs": _counted(lambda work, value: abs(number_of(value))),
    "capitalize": _of_text(str.capitalize),
    "coalesce": _counted(_coalesce),
    "contains": _counted(_contains),
    "count": _counted(_length),
    "default": _counted(_default),
    "dictsort": _counted(_dictsort),
    "first": _counted(lambda work, value: next(iter(_items(value)), None)),
    "float": _converted(float, 0.0),
    "fromjson": _counted(_from_json),
    "indent": _counted(_indent),
    "int": _converted(int, 0),
    "items": _counted(_pairs),
    "join": _counted(_join),
    "last": _counted(lambda work, value: next(reversed(_items(value)), None)),
    "length": _counted(_length),
    "list": _counted(_listed),
    "lower": _of_text(str.lower),
    "map": _counted(_map),
    "max": _counted(lambda work, value: max(_items(value), default=None)),
    "min": _counted(lambda work, value: min(_items(value), default=None)),
    "nindent": _counted(_nindent),
    "quote": _of_text(partial(json.dumps, ensure_ascii=False)),
    "reject": _chosen(keeps=False),
    "replace": _counted(_replace),
    "required": _counted(_required),
    "reverse": _counted(_reverse),
    "round": _counted(_round),
    "select": _chosen(keeps=True),
    "sort": _counted(_sort),
    "split": _counted(_split),
    "squote": _of_text("'{}'".format),
    "string": _of_text(str),
    "sum": _counted(_sum),
    "ternary": _counted(lambda work, value, yes, no: yes if value else no),
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
    "trimPrefix": _counted(lambda work, value, prefix: text_of(value).removeprefix(text_of(prefix))),
    "trimSuffix": _counted(lambda work, value, suffix: text_of(value).removesuffix(text_of(suffix))),
}
"""Every filter, by its names."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TESTS: Mapping[str, _Filter] = {
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "divisibleby": _counted(lambda work, value, by: number_of(value) % number_of(by) == 0),
    "empty": _is_empty,
    "eq": _counted(lambda work, value, other: bool(value == other)),
    "equalto": _counted(lambda work, value, other: bool(value == other)),
    "even": lambda value: number_of(value) % 2 == 0,
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
    "odd": lambda value: number_of(value) % 2 == 1,
    "sequence": lambda value: isinstance(value, list | tuple | range),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
}
"""Every test, by its name."""

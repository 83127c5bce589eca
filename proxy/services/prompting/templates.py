"""Templates of prompts: their filters and tests, and the templates, which are compiled once for each text and rendered
within bounds.

Filters and tests have Jinja's names and those that templates of Go know. The input and the output of each are counted
and bounded here, so that a filter need not do so. A filter whose output may be much longer than its input checks the
length first. None of them uses the time, chance, files or the network.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from traceback import walk_tb
from types import TracebackType
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, nodes, pass_context
from jinja2.filters import do_float, do_int
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context, Undefined

from proxy.kit.value import dataclass
from proxy.prompts import ROOTS, Json, Prompt, PromptContext, RenderError
from proxy.services.prompting.language import (
    MOST_CHARS,
    WORK,
    PromptEnvironment,
    Work,
    bounded,
    check,
    counted,
    items_of,
    number_of,
    text_of,
    work_of,
)

_Filter = Callable[..., Any]


def _counted(function: _Filter) -> _Filter:
    """The filter, with the size of its input and of its output counted."""

    @pass_context
    def counted(context: Context, *args: Any, **kwargs: Any) -> Any:
        work = work_of(context)
        work.weighed((*args, *kwargs.values()))
        return work.weighed(function(*args, **kwargs))

    return counted


def _of_text(function: Callable[[str], str]) -> _Filter:
    return lambda value: function(text_of(value))


def _replace(value: Any, old: Any, new: Any) -> str:
    text, before, after = text_of(value), text_of(old), text_of(new)
    bounded(len(text) + text.count(before) * (len(after) - len(before)))
    return text.replace(before, after)


def _contains(value: Any, wanted: Any) -> bool:
    return wanted in value if isinstance(value, list | tuple) else text_of(wanted) in text_of(value)


def _split(value: Any, separator: Any = None) -> list[str]:
    text = text_of(value)
    return list(text) if separator == "" else text.split(None if separator is None else text_of(separator))


def _join(value: Any, separator: Any = "", attribute: str = "") -> str:
    by, texts = text_of(separator), [text_of(item) for item in _map(value, attribute=attribute)]
    bounded(sum(map(len, texts)) + len(by) * len(texts))
    return by.join(texts)


def _indent(value: Any, width: Any = 4, first: bool = True) -> str:
    """Spaces in front of each line that is not empty. This includes the first line, unless ``first`` is false."""
    lines, space = text_of(value).split("\n"), " " * _whole(width, 1_000)
    bounded(sum(map(len, lines)) + len(lines) * (len(space) + 1))
    return "\n".join(space + line if line and (first or index) else line for index, line in enumerate(lines))


def _truncate(value: Any, length: Any = 255, end: Any = "...") -> str:
    text, most, tail = text_of(value), _whole(length, MOST_CHARS), text_of(end)
    return text if len(text) <= most else text[: max(most - len(tail), 0)] + tail


def _to_json(value: Any, indent: Any = None) -> str:
    """JSON that keeps the given order of names. ``indent`` puts each value on a line of its own."""
    step = None if indent is None else _whole(indent, 8)
    separators = (",", ":") if step is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, indent=step, separators=separators, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


def _from_json(value: Any) -> Any:
    try:
        return json.loads(text_of(value))
    except (ValueError, RecursionError):
        return None


def _default(value: Any, other: Any = "", blank: bool = False) -> Any:
    """``other`` for an undefined value or null, and with ``blank`` for every empty value."""
    return other if isinstance(value, Undefined) or value is None or (blank and not value) else value


def _is_empty(value: Any) -> bool:
    return isinstance(value, Undefined) or not value


def _required(value: Any) -> Any:
    if _is_empty(value):
        raise RenderError("a value that is required is empty")
    return value


def _length(value: Any) -> int:
    if not isinstance(value, str | list | tuple | range | Mapping):
        raise RenderError("length takes a text, a list or an object")
    return len(value)


def _unique(value: Any, attribute: str = "") -> list[Any]:
    found: dict[str, Any] = {}
    for item in items_of(value):
        found.setdefault(json.dumps(_of(item, attribute), sort_keys=True, default=_plain), item)
    return list(found.values())


def _pairs(value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise RenderError("items and dictsort take an object")
    return list(value.items())


def _map(value: Any, *, attribute: str) -> list[Any]:
    return [_of(item, attribute) for item in items_of(value)]


def _chosen(*, keeps: bool) -> _Filter:
    """A filter for the items that are true, or equal to a value. If not ``keeps``, it gives the other items."""

    def choose(value: Any, attribute: str = "", equal_to: Any = ...) -> list[Any]:
        found = zip(items_of(value), _map(value, attribute=attribute), strict=True)
        return [item for item, own in found if bool(own if equal_to is ... else own == equal_to) is keeps]

    return choose


def _of(item: Any, attribute: str) -> Any:
    if not attribute:
        return item
    return item.get(attribute) if isinstance(item, Mapping) else None


def _whole(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RenderError(f"a filter takes a whole number from 0 to {most}")
    return value


def _round(value: Any, precision: int = 0) -> Any:
    digits = _whole(precision, 15)
    return round(float(number_of(value)), digits) if digits else round(number_of(value))


_JINJA: dict[str, _Filter] = {
    "abs": lambda value: abs(number_of(value)),
    "capitalize": _of_text(str.capitalize),
    "coalesce": lambda *values: next((value for value in values if not _is_empty(value)), None),
    "contains": _contains,
    "count": _length,
    "default": _default,
    "dictsort": lambda value: sorted(_pairs(value), key=lambda pair: pair[0]),
    "first": lambda value: next(iter(items_of(value)), None),
    "float": do_float,
    "fromjson": _from_json,
    "indent": _indent,
    "int": do_int,
    "items": _pairs,
    "join": _join,
    "last": lambda value: next(reversed(items_of(value)), None),
    "length": _length,
    "list": lambda value: list(value) if isinstance(value, str) else items_of(value),
    "lower": _of_text(str.lower),
    "map": _map,
    "max": lambda value: max(items_of(value), default=None),
    "min": lambda value: min(items_of(value), default=None),
    "nindent": lambda value, width=4: "\n" + _indent(value, width),
    "quote": _of_text(lambda text: json.dumps(text, ensure_ascii=False)),
    "reject": _chosen(keeps=False),
    "replace": _replace,
    "required": _required,
    "reverse": lambda value: value[::-1] if isinstance(value, str) else items_of(value)[::-1],
    "round": _round,
    "select": _chosen(keeps=True),
    "sort": lambda value, reverse=False, attribute="": sorted(
        items_of(value), key=lambda item: _of(item, attribute), reverse=bool(reverse)
    ),
    "split": _split,
    "squote": _of_text("'{}'".format),
    "string": _of_text(str),
    "sum": lambda value, attribute="": sum(map(number_of, _map(value, attribute=attribute))),
    "ternary": lambda value, yes, no: yes if value else no,
    "title": _of_text(lambda text: " ".join(word[0].upper() + word[1:] for word in text.split())),
    "tojson": _to_json,
    "trim": _of_text(str.strip),
    "truncate": _truncate,
    "unique": _unique,
    "upper": _of_text(str.upper),
}
_GO: dict[str, _Filter] = {
    "fromJSON": _JINJA["fromjson"],
    "hasPrefix": lambda value, prefix: text_of(value).startswith(text_of(prefix)),
    "hasSuffix": lambda value, suffix: text_of(value).endswith(text_of(suffix)),
    "toJSON": _JINJA["tojson"],
    "toLower": _JINJA["lower"],
    "toPrettyJSON": lambda value: _to_json(value, 2),
    "toUpper": _JINJA["upper"],
    "trimPrefix": lambda value, prefix: text_of(value).removeprefix(text_of(prefix)),
    "trimSuffix": lambda value, suffix: text_of(value).removesuffix(text_of(suffix)),
}
FILTERS: Mapping[str, _Filter] = {name: _counted(function) for name, function in (_JINJA | _GO).items()}
"""Every filter, by its names."""


TESTS: Mapping[str, _Filter] = {
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "divisibleby": _counted(lambda value, by: number_of(value) % number_of(by) == 0),
    "empty": _is_empty,
    "eq": _counted(lambda value, other: bool(value == other)),
    "equalto": _counted(lambda value, other: bool(value == other)),
    "even": lambda value: number_of(value) % 2 == 0,
    "false": lambda value: value is False,
    "ge": _counted(lambda value, other: value >= other),
    "gt": _counted(lambda value, other: value > other),
    "in": _counted(lambda value, others: value in others),
    "le": _counted(lambda value, other: value <= other),
    "lt": _counted(lambda value, other: value < other),
    "mapping": lambda value: isinstance(value, Mapping),
    "ne": _counted(lambda value, other: bool(value != other)),
    "none": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "odd": lambda value: number_of(value) % 2 == 1,
    "sequence": lambda value: isinstance(value, list | tuple | range),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
}
"""Every test, by its name."""


_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_ENVIRONMENT = PromptEnvironment(FILTERS, TESTS)
_FILE = "<template>"
_LINE = re.compile(r"\Aline \d+")


@dataclass(frozen=True, slots=True)
class Uses:
    """The references of a template: the ``names`` that it does not set itself, the dotted ``paths`` below them that it
    writes out, and the ``fragments`` that it names."""

    names: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    fragments: frozenset[str] = frozenset()


def _paths(tree: nodes.Template) -> list[list[str]]:
    """Every path that a template writes out, also below names of its own."""
    inner: set[int] = set()
    # A path comes before the shorter paths with which it begins.
    found = tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Name))
    return [path for node in found if id(node) not in inner and (path := _path(node, inner))]


def _path(node: nodes.Node, inner: set[int]) -> list[str]:
    """The names of a path. Names after a number, or after a name that is not written out, are left out."""
    steps: list[str] = []
    while not isinstance(node, nodes.Name):
        if isinstance(node, nodes.Getattr):
            steps.append(node.attr)
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            steps.append(node.arg.value)
        elif isinstance(node, nodes.Getitem):
            steps.clear()
        else:
            return []
        node = node.node
        inner.add(id(node))
    return [node.name, *reversed(steps)]


def compiled(text: str) -> tuple[Template, Uses]:
    """The template of a text, and its references. Raises RenderError if it cannot be read."""
    try:
        tree = _ENVIRONMENT.parse(text)
        check(tree, _ENVIRONMENT)
        names = frozenset(find_undeclared_variables(tree))
        paths = frozenset(".".join(path) for path in _paths(tree) if path[0] in names)
        calls = (call.args for call in tree.find_all(nodes.Call) if getattr(call.node, "name", "") == "fragment")
        fragments = frozenset(str(arg.value) for args in calls for arg in args if isinstance(arg, nodes.Const))
        uses = Uses(names, paths, fragments)
        counted(tree)
        tree.set_environment(_ENVIRONMENT)
        code = _ENVIRONMENT.compile(tree)
    except TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from error
    except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise RenderError("the template cannot be read: it is nested too deeply, or a number is too long") from error
    return Template.from_code(_ENVIRONMENT, code, _ENVIRONMENT.globals), uses


class Templates:
    """The compiled templates of a set of prompts, by their texts. So a changed text is never confused with the earlier
    text of the same id. Nothing here changes, so that any thread may render."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        fragments: Mapping[str, str] | None = None,
        earlier: "Templates | None" = None,
    ) -> None:
        """``fragments`` are the texts that templates may include, by name. Templates that ``earlier`` has compiled are
        not compiled again. Raises RenderError, which begins with the prompt's origin or its id."""
        self.fragments: Mapping[str, str] = dict(fragments or {})
        known = earlier._compiled if earlier is not None else {}
        self._compiled: dict[str, tuple[Template, Uses]] = {}
        for prompt in prompts:
            if prompt.is_literal:
                continue
            try:
                found = known.get(prompt.text) or compiled(prompt.text)
                for _, why in unknown_names(prompt, found[1], self.fragments):
                    raise RenderError(why)
                self._compiled[prompt.text] = found
            except RenderError as error:
                raise RenderError(f"{prompt.origin or prompt.id}: {in_file(error, prompt)}") from error

    def render(self, prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
        """The text of a prompt that is not literal. The values of the context and of the prompt's own variables are
        texts and never templates. Raises RenderError."""
        template, _ = self._compiled.get(prompt.text) or compiled(prompt.text)
        try:
            rendering = template.new_context({**variables, **context, WORK: Work(self.fragments)})
            text = "".join(template.root_render_func(rendering))
            bounded(len(text))
        except (RenderError, *_FAILURES) as error:
            # A message of Python's own, or of the sandbox, may quote a value.
            why = str(error) if isinstance(error, RenderError | UndefinedError) else type(error).__name__
            raise RenderError(in_file(f"{_line(template, error.__traceback__)}{why}", prompt)) from error
        return text


def in_file(error: object, prompt: Prompt) -> str:
    """The error of a template, with the line in the prompt's file instead of the line in the text."""
    return _LINE.sub(lambda found: f"line {int(found[0][5:]) + prompt.first_line - 1}", str(error), 1)


def unknown_names(prompt: Prompt, uses: Uses, fragments: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The references of a template that are not defined anywhere, sorted: the kind of mistake, and a message."""
    known = {*ROOTS, *(variable.name for variable in prompt.variables)}
    for name in sorted(uses.names - known):
        yield (
            "undefined-variable",
            f"{_where(name, prompt)}'{name}' is neither a root of the context nor a variable of the prompt",
        )
    for name in sorted(uses.fragments - fragments.keys()):
        yield "unknown-fragment", f"{_where(name, prompt)}there is no fragment '{name}'"


def _where(name: str, prompt: Prompt) -> str:
    """The first line in which a tag has the name, as the beginning of a message."""
    found = re.search(rf"\{{[{{%][^{{}}]*?\b{re.escape(name)}\b", prompt.text)
    return f"line {prompt.text.count(chr(10), 0, found.end()) + 1}: " if found is not None else ""


def _line(template: Template, trace: TracebackType | None) -> str:
    """The line of the template in which an error was raised, as the beginning of a message."""
    lines = [number for frame, number in walk_tb(trace) if frame.f_code.co_filename == _FILE]
    return f"line {template.get_corresponding_lineno(lines[-1])}: " if lines else ""

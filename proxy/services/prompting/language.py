"""The language of templates: Jinja2's sandbox, without the parts that could reach beyond a template's context or its
share of work.

Nodes that are not listed here are refused when a template is read. Constructs that may do much work count it before
they do it: a loop for each of its rounds, a macro for each of its calls, a comparison by the size of its sides. Names
are looked up in objects of the context and nowhere else, so there is no way to Python's own.

Filters and tests have Jinja's names and those that templates of Go know. The input and the output of each are counted
and bounded here, so that a filter need not do so. A filter whose output may be much longer than its input checks the
length first. None of them uses the time, chance, files or the network. At the end, a text is compiled.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.filters import do_float, do_int
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from proxy.kit.value import dataclass
from proxy.prompts import RenderError

MOST_STEPS = 50_000
"""The most work of one rendering."""
MOST_CHARS = 256 << 10
"""The longest text that a template may make, as a result or in between."""
MOST_CALLS_DEEP = 16
"""The most calls of macros within each other."""
STEP_CHARS = 64
"""The characters that one step reads or writes."""

T = TypeVar("T")
_MOST_ITEMS = 10_000
_MOST_DEPTH = 32


def bounded(chars: int) -> int:
    """The length of a text. Raises RenderError if it is too long."""
    if chars > MOST_CHARS:
        raise RenderError(f"the template makes a text of more than {MOST_CHARS} characters")
    return chars


@dataclass(slots=True)
class RenderingWork:
    """The work that one rendering has left, and the fragments that it may include."""

    fragments: Mapping[str, str]
    steps: int = MOST_STEPS
    calls: int = 0

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise RenderError(f"the template does more than {MOST_STEPS} steps")

    def weighed(self, value: T) -> T:
        """The value, with everything in it counted. Raises RenderError if it is too large or no JSON value."""
        level: list[object] = [value]
        for _ in range(_MOST_DEPTH):
            self.spend(len(level) + sum(map(_steps, level)))
            level = [
                inner
                for each in level
                if isinstance(each, (Mapping, list, tuple))
                for inner in (each.values() if isinstance(each, Mapping) else each)
            ]
            if not level:
                return value
        raise RenderError(f"a value is nested deeper than {_MOST_DEPTH} levels")


def _steps(value: object) -> int:
    if isinstance(value, str):
        return bounded(len(value)) // STEP_CHARS
    if isinstance(value, (Mapping, list, tuple, range)):
        if len(value) > _MOST_ITEMS:
            raise RenderError(f"the template makes a list of more than {_MOST_ITEMS} items")
        return len(value)
    if value is None or isinstance(value, (int, float, Undefined)):
        return 0
    raise RenderError("a macro or a loop is used as if it were a value")


WORK = " work"
"""The name under which a context holds its ``RenderingWork``. No template can write it."""
GLOBALS = frozenset({"fragment", "range"})

_EACH, _WEIGHED = " each", " weighed"
_MOST_NODES = 4_000
_MOST_LEVELS = 60
_MOST_NUMBER = 1 << 63
_MOST_EXPONENT = 64
_LOOP = frozenset(
    {"index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem", "cycle"}
)
_ALLOWED = frozenset({
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict,
    nodes.Pair, nodes.Keyword, nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Getattr, nodes.Getitem,
    nodes.Slice, nodes.Concat, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos,
    nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.If, nodes.For, nodes.Macro,
    nodes.Assign, nodes.AssignBlock, nodes.FilterBlock, nodes.With,
})  # fmt: skip


def work_of(context: Context) -> RenderingWork:
    """The work that is left to a rendering."""
    work: RenderingWork = context.parent[WORK]
    return work


def text_of(value: object) -> str:
    """The printed form of a value: a text as it is, a number, ``true`` or ``false``, nothing for null. Raises
    RenderError for a list or an object, and UndefinedError for an undefined value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float, Undefined)):
        return str(value)
    raise RenderError("a list or an object is printed: use a loop, join or tojson")


def number_of(value: Any) -> Any:
    """The value, after a check that it is a number and no whole number of more than 64 bits. Raises RenderError, and
    UndefinedError for an undefined value."""
    if isinstance(value, Undefined):
        return iter(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RenderError("an operator or a filter takes numbers")
    if isinstance(value, int) and abs(value) >= _MOST_NUMBER:
        raise RenderError("a whole number is too large")
    return value


def items_of(value: Any) -> list[Any]:
    """The items of a list, or the names of an object. Raises RenderError, and UndefinedError for an undefined value."""
    if not isinstance(value, list | tuple | range | Mapping | Undefined):
        raise RenderError("a loop or a filter takes a list or an object")
    return list(value)


@pass_context
def _printed(context: Context, value: object) -> str:
    return work_of(context).weighed(text_of(value))


@pass_context
def _each(context: Context, value: object, weight: int) -> list[Any]:
    """The items of a loop, with the work of all of its rounds counted."""
    items = items_of(value)
    work_of(context).spend(len(items) * weight)
    return items


@pass_context
def _weighed(context: Context, value: object) -> object:
    return work_of(context).weighed(value)


@pass_context
def _fragment(context: Context, name: object) -> str:
    fragments = work_of(context).fragments
    if not isinstance(name, str) or name not in fragments:
        raise RenderError("a fragment is included that is not registered")
    return fragments[name]


@pass_context
def _range(context: Context, *bounds: int) -> range:
    return work_of(context).weighed(range(*bounds))


class PromptEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2 for prompts. It has only the given ``filters`` and ``tests``."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, filters: Mapping[str, Callable[..., Any]], tests: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(undefined=StrictUndefined, finalize=_printed, optimized=False, cache_size=0)
        self.filters = {**filters, _EACH: _each, _WEIGHED: _weighed}
        self.tests = dict(tests)
        self.globals = {"fragment": _fragment, "range": _range}

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        if not isinstance(obj, Mapping | Undefined):
            raise RenderError(f"'{attribute}' is asked of something that is no object")
        return obj[attribute] if attribute in obj else self.undefined(name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(obj, Mapping | list | tuple | range | Undefined):
            raise RenderError("[] is asked of something that is neither an object nor a list")
        try:
            return obj[argument]
        except LookupError:
            return self.undefined("a field or an item that is asked for is not there")

    def call(self, context: Context, called: Any, *args: Any, **kwargs: Any) -> Any:
        is_known = called is _fragment or called is _range or isinstance(called, Macro | Undefined)
        if not is_known and not isinstance(getattr(called, "__self__", None), LoopContext):
            raise RenderError("something is called that is no macro")
        work = work_of(context)
        if work.calls >= MOST_CALLS_DEEP:
            raise RenderError(f"macros call each other more than {MOST_CALLS_DEEP} levels deep")
        work.calls += 1
        try:
            return context.call(called, *args, **kwargs)
        finally:
            work.calls -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The result of an operator on numbers. + also joins two texts or two lists, and * repeats a text."""
        is_repeated = operator == "*" and isinstance(left, str) and isinstance(right, int)
        if is_repeated:
            bounded(len(left) * right)
        elif not (operator == "+" and isinstance(left, str | list) and type(left) is type(right)):
            left, right = number_of(left), number_of(right)
            if operator == "**" and abs(right) > _MOST_EXPONENT:
                raise RenderError(f"an exponent is larger than {_MOST_EXPONENT}")
            return number_of(super().call_binop(context, operator, left, right))
        return work_of(context).weighed(super().call_binop(context, operator, left, right))


def check(tree: nodes.Template, environment: PromptEnvironment) -> None:
    """Refuse constructs outside of the language, and templates with too many parts, because no step counts a part that
    is passed once. Raises RenderError."""
    level: list[nodes.Node] = [tree]
    count = 0
    for _ in range(_MOST_LEVELS):
        count += len(level)
        if count > _MOST_NODES:
            raise RenderError(f"the template has more than {_MOST_NODES} parts")
        for node in level:
            _check_node(node, environment)
        level = [inner for node in level for inner in node.iter_child_nodes()]
        if not level:
            return
    raise RenderError(f"the template is nested deeper than {_MOST_LEVELS} levels")


def _check_node(node: nodes.Node, environment: PromptEnvironment) -> None:
    where = f"line {node.lineno}: " if node.lineno else ""
    name = getattr(node, "name", None)
    mistakes = {
        f"'{type(node).__name__.lower()}' is not available in prompts": type(node) not in _ALLOWED,
        "* and ** are not available in calls": getattr(node, "dyn_args", None) or getattr(node, "dyn_kwargs", None),
        # Jinja notices missing filters and tests only when their branch is rendered.
        f"there is no filter '{name}'": isinstance(node, nodes.Filter) and name not in environment.filters,
        f"there is no test '{name}'": isinstance(node, nodes.Test) and name not in environment.tests,
        "recursive loops are not available in prompts": isinstance(node, nodes.For) and node.recursive,
        f"'{name}' cannot be set": isinstance(node, nodes.Name) and node.ctx != "load" and name in GLOBALS,
    }
    for what, is_made in mistakes.items():
        if is_made:
            raise RenderError(f"{where}{what}")


def counted(node: nodes.Node) -> int:
    """Change a node and those below it so that they count their work. Returns how many steps they take once."""
    weight = 1 + sum(map(counted, list(node.iter_child_nodes())))
    if isinstance(node, nodes.TemplateData):
        weight += len(node.data) // STEP_CHARS
    elif isinstance(node, nodes.For):
        node.iter = _filtered(cast(nodes.Expr, node.iter), _EACH, weight)
    elif isinstance(node, nodes.Macro):
        # A call counts like a loop of one round.
        node.body.insert(0, nodes.ExprStmt(_filtered(nodes.List([nodes.Const(None)]), _EACH, weight)))
    elif isinstance(node, nodes.Compare | nodes.Operand):
        node.expr = _filtered(node.expr, _WEIGHED)
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        node.node = _filtered(node.node, _WEIGHED)
    elif isinstance(node, nodes.Concat):
        node.nodes = [_filtered(nodes.List(node.nodes), "join")]
    return weight


def _filtered(node: nodes.Expr, name: str, *args: int) -> nodes.Filter:
    return nodes.Filter(node, name, [nodes.Const(arg) for arg in args], [], None, None)


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


_ENVIRONMENT = PromptEnvironment(FILTERS, TESTS)


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

"""The language of templates: what Jinja2 reads, without everything that could reach beyond a template's context or
beyond its share of work.

Nodes that are not listed here are refused when a template is read. Those that may do much work are changed so that they
count it before they do it: a loop for each of its items, a macro for each of its calls, a comparison by the size of its
sides. Attributes are looked up in objects of the context and nowhere else, so there is no way to Python's own.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import SandboxedEnvironment

from proxy.core.prompts.failures import RenderError
from proxy.prompting.work import MOST_CALLS_DEEP, MOST_CHARS, Work, steps_of

WORK = " work"
"""Under this name a context holds its ``Work``. No template can write it."""
GLOBALS = frozenset({"fragment", "range"})

_EACH, _SPEND, _WEIGHED, _JOINED = " each", " spend", " weighed", " joined"
_MOST_NODES = 4_000
_MOST_DEPTH = 60
_MOST_NUMBER = 1 << 63
_MOST_EXPONENT = 64
_LOOPED = (list, tuple, range, Mapping)
_PRINTED = (int, float, Undefined)
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
_NUMERIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def work_of(context: Context) -> Work:
    """The work that is left to a rendering."""
    work: Work = context.parent[WORK]
    return work


def text_of(value: object) -> str:
    """How a value is printed: a text as it is, a number, ``true`` or ``false``, nothing for null. Raises RenderError
    for a list or an object, and UndefinedError for what is undefined."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _PRINTED):
        return str(value)
    raise RenderError("a list or an object is printed: use a loop, join or tojson")


@pass_context
def _printed(context: Context, value: object) -> str:
    return work_of(context).made(text_of(value))


@pass_context
def _each(context: Context, value: object, weight: int) -> object:
    """What a loop goes over, with the work of all of its rounds counted."""
    if isinstance(value, Undefined):
        return iter(value)
    if not isinstance(value, _LOOPED):
        raise RenderError("a loop goes over something that is neither a list nor an object")
    work_of(context).spend(len(value) * weight)
    return value


@pass_context
def _spend(context: Context, weight: int) -> str:
    work_of(context).spend(weight)
    return ""


@pass_context
def _weighed(context: Context, value: object) -> object:
    return work_of(context).weighed(value)


@pass_context
def _joined(context: Context, values: list[object]) -> str:
    work, texts = work_of(context), [text_of(value) for value in values]
    work.making(sum(map(len, texts)))
    return "".join(texts)


@pass_context
def _fragment(context: Context, name: object) -> str:
    """The text of a fragment. Raises RenderError where there is none of that name."""
    work = work_of(context)
    if not isinstance(name, str) or name not in work.fragments:
        raise RenderError("a fragment is included that is not registered")
    return work.made(work.fragments[name])


@pass_context
def _range(context: Context, *bounds: object) -> range:
    numbers = [number_of(bound) for bound in bounds]
    if not all(isinstance(number, int) for number in numbers):
        raise RenderError("range takes whole numbers")
    found = range(*numbers)
    work_of(context).listing(len(found))
    return found


class PromptEnvironment(SandboxedEnvironment):
    """Jinja2 for prompts. ``filters`` and ``tests`` are the only ones that there are."""

    intercepted_binops = frozenset(_NUMERIC)
    intercepted_unops = frozenset({"+", "-"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]], tests: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            undefined=StrictUndefined, finalize=_printed, autoescape=False, optimized=False, cache_size=0, loader=None
        )
        self.filters = {**filters, _EACH: _each, _SPEND: _spend, _WEIGHED: _weighed, _JOINED: _joined}
        self.tests = dict(tests)
        self.globals = {"fragment": _fragment, "range": _range}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A field of an object of the context, or of a loop."""
        if isinstance(obj, Mapping):
            return obj[attribute] if attribute in obj else self.undefined(name=attribute)
        if isinstance(obj, Undefined):
            return iter(obj)
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        raise RenderError(f"'{attribute}' is asked of something that is no object")

    def getitem(self, obj: Any, argument: Any) -> Any:
        """A field of an object, or an item of a list."""
        if isinstance(obj, Undefined):
            return iter(obj)
        if isinstance(obj, Mapping) and isinstance(argument, str):
            return obj[argument] if argument in obj else self.undefined("a field that is asked for is not there")
        if isinstance(obj, list | tuple | range) and isinstance(argument, int):
            there = -len(obj) <= argument < len(obj)
            return obj[argument] if there else self.undefined("an item that is asked for is not there")
        raise RenderError("[] takes a name of an object's field, or the number of a list's item")

    def call(self, context: Context, called: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a macro of the template, ``fragment``, ``range`` or ``loop.cycle``."""
        if isinstance(called, Undefined):
            return iter(called)
        work = work_of(context)
        work.spend(1 + len(args) + len(kwargs))
        is_known = called is _fragment or called is _range or isinstance(called, Macro)
        if not is_known and not isinstance(getattr(called, "__self__", None), LoopContext):
            raise RenderError("something is called that is no macro")
        if work.calls >= MOST_CALLS_DEEP:
            raise RenderError(f"macros call each other more than {MOST_CALLS_DEEP} levels deep")
        work.calls += 1
        try:
            return context.call(called, *args, **kwargs)
        finally:
            work.calls -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Numbers; + also joins two texts or two lists, and * repeats a text."""
        work = work_of(context)
        if isinstance(left, str) and isinstance(right, str) and operator == "+":
            work.making(len(left) + len(right))
            return left + right
        if isinstance(left, list) and isinstance(right, list) and operator == "+":
            work.listing(len(left) + len(right))
            return left + right
        if isinstance(left, str) and isinstance(right, int) and operator == "*":
            work.making(len(left) * min(max(right, 0), MOST_CHARS + 1))
            return left * right
        first, second = number_of(left), number_of(right)
        if operator == "**" and abs(second) > _MOST_EXPONENT:
            raise RenderError(f"an exponent is larger than {_MOST_EXPONENT}")
        return number_of(_NUMERIC[operator](first, second))

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Numbers."""
        return -number_of(arg) if operator == "-" else number_of(arg)


def number_of(value: Any) -> Any:
    """The value, where it is a number and no whole number of more than 64 bits. Raises RenderError, and UndefinedError
    for what is undefined."""
    if isinstance(value, Undefined):
        return iter(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RenderError("an operator or a filter takes numbers")
    if isinstance(value, int) and abs(value) >= _MOST_NUMBER:
        raise RenderError("a whole number is too large")
    return value


def check(tree: nodes.Template, environment: PromptEnvironment) -> None:
    """Refuse what is not of the language. Raises RenderError."""
    level: list[nodes.Node] = [tree]
    count = 0
    for _ in range(_MOST_DEPTH):
        count += len(level)
        if count > _MOST_NODES:
            raise RenderError(f"the template has more than {_MOST_NODES} parts")
        for node in level:
            _check_node(node, environment)
        level = [inner for node in level for inner in node.iter_child_nodes()]
        if not level:
            return
    raise RenderError(f"the template is nested deeper than {_MOST_DEPTH} levels")


def _check_node(node: nodes.Node, environment: PromptEnvironment) -> None:
    where = f"line {node.lineno}: " if node.lineno else ""
    if type(node) not in _ALLOWED:
        raise RenderError(f"{where}'{type(node).__name__.lower()}' is not available in prompts")
    if isinstance(node, nodes.Filter | nodes.Test | nodes.Call) and (node.dyn_args or node.dyn_kwargs):
        raise RenderError(f"{where}* and ** are not available in calls")
    if isinstance(node, nodes.Filter) and node.name not in environment.filters:
        raise RenderError(f"{where}there is no filter '{node.name}'")
    if isinstance(node, nodes.Test) and node.name not in environment.tests:
        raise RenderError(f"{where}there is no test '{node.name}'")
    if isinstance(node, nodes.For) and node.recursive:
        raise RenderError(f"{where}recursive loops are not available in prompts")
    if isinstance(node, nodes.Name) and node.ctx != "load" and node.name in GLOBALS:
        raise RenderError(f"{where}'{node.name}' cannot be set")


def counted(tree: nodes.Template, environment: PromptEnvironment) -> nodes.Template:
    """The tree, changed so that it counts its work when it is rendered."""
    _counted(tree)
    tree.set_environment(environment)
    return tree


def _counted(node: nodes.Node) -> int:
    """Change a node and those below it; returns how many steps they take once."""
    weight = 1 + sum(_counted(inner) for inner in list(node.iter_child_nodes()))
    if isinstance(node, nodes.TemplateData):
        weight += steps_of(len(node.data))
    elif isinstance(node, nodes.For):
        node.iter = _filtered(cast(nodes.Expr, node.iter), _EACH, weight)
    elif isinstance(node, nodes.Macro):
        node.body.insert(0, nodes.ExprStmt(_filtered(nodes.Const(weight), _SPEND), lineno=node.lineno))
    elif isinstance(node, nodes.Compare):
        node.expr = _filtered(node.expr, _WEIGHED)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _WEIGHED)
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        node.node = _filtered(node.node, _WEIGHED)
    elif isinstance(node, nodes.Concat):
        node.nodes = [_filtered(nodes.List(node.nodes), _JOINED)]
    return weight


def _filtered(node: nodes.Expr, name: str, *args: int) -> nodes.Filter:
    return nodes.Filter(node, name, [nodes.Const(arg) for arg in args], [], None, None)

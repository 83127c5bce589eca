"""The language of templates: Jinja2's sandbox, without the parts that could reach beyond a template's context or its
share of work.

Nodes that are not listed here are refused when a template is read. Constructs that may do much work count it before
they do it: a loop for each of its rounds, a macro for each of its calls, a comparison by the size of its sides. Names
are looked up in objects of the context and nowhere else, so there is no way to Python's own.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from jinja2 import StrictUndefined, nodes, pass_context
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
class Work:
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
"""The name under which a context holds its ``Work``. No template can write it."""
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


def work_of(context: Context) -> Work:
    """The work that is left to a rendering."""
    work: Work = context.parent[WORK]
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

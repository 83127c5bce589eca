"""What is changed in a source file, one small change for each mutant.

The changes keep the types where they can: a comparison moves its boundary, a condition is turned round, a number
becomes its neighbour or its double, a statement disappears. A change that no test could notice is not made:
docstrings, annotations, decorators, assertions, log lines, ``__repr__`` and the words of an error stay as they are.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS = frozenset({"_log", "log", "logger", "logging", "warnings"})
_TYPING = frozenset({"cast", "TypeVar", "NewType", "ParamSpec"})
# Keywords of calls that guard against errors of the programmer alone.
_GUARDS = frozenset({"strict", "repr", "slots", "frozen", "gc", "stacklevel"})
_SMALL = 10
_UNSEEN = frozenset({"__repr__", "__str__", "__slots__", "__all__", "__match_args__"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: in the file at ``path``, the bytes from ``start`` to ``end`` become ``new``."""

    path: str
    line: int
    start: int
    end: int
    new: str

    def applied(self, source: bytes) -> bytes:
        """The changed file."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def shown(self, source: bytes) -> tuple[str, str]:
        """The source line before and after the change."""
        start, new = source.rfind(b"\n", 0, self.start) + 1, self.new.encode()
        before, rest = source[start:].split(b"\n", 1)[0], source[self.end :].split(b"\n", 1)[0]
        return before.decode().strip(), (source[start : self.start] + new + rest).decode().strip()


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of the file."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = {}
    for node, new in _changes(ast.parse(source)):
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        found[start, end, new] = Mutant(path, node.lineno, start, end, new)
    return [found[place] for place in sorted(found)]


_Place = ast.expr | ast.stmt


def _changes(node: ast.AST) -> Iterator[tuple[_Place, str]]:
    """Each place below ``node`` that can be changed, and what stands there instead."""
    if _is_unseen(node):
        return
    if isinstance(node, ast.stmt):
        yield from _changes_of_statement(node)
    elif isinstance(node, ast.expr):
        yield from _changes_of_expression(node)
    for child in _children(node):
        yield from _changes(child)


def _is_unseen(node: ast.AST) -> bool:
    """Whether no test can notice a change here. Python 3.11 does not say where the parts of an f-string stand."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Expr(value=ast.Constant()):
            return True
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name in _UNSEEN
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in _UNSEEN
        case ast.ClassDef(bases=bases):
            return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases)
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGS or name.endswith("_log"):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _TYPING
        case ast.keyword(arg=str(name)):
            return name in _GUARDS
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What stands below a node, but for decorators, annotations, type parameters and the words of an error."""
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.Raise) and isinstance(child, ast.Call):
                yield from (argument for argument in child.args if not isinstance(argument, ast.Constant))
            elif isinstance(child, ast.AST):
                yield child


def _changes_of_statement(node: ast.stmt) -> Iterator[tuple[_Place, str]]:
    match node:
        case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
            if not _is_unseen(call):
                yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete() | ast.Raise():
            yield node, "pass"
        case ast.AugAssign(target=target, op=op, value=value):
            yield node, "pass"
            if other := _ARITHMETIC.get(type(op)):
                yield node, ast.unparse(ast.AugAssign(target, other(), value))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Return(value=None):
            yield node, "pass"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.If(test=test) | ast.While(test=test):
            yield test, f"(not ({ast.unparse(test)}))"


def _changes_of_expression(node: ast.expr) -> Iterator[tuple[_Place, str]]:
    match node:
        case ast.Constant(value=value):
            yield from ((node, new) for new in _other_constants(value))
        case ast.Compare(left=left, ops=ops, comparators=right):
            for at, op in enumerate(ops):
                changed = [*ops[:at], _COMPARISONS[type(op)](), *ops[at + 1 :]]
                yield _instead(node, ast.Compare(left, changed, right))
        case ast.BoolOp(op=op, values=values):
            yield _instead(node, ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield _instead(node, operand)
        case ast.BinOp(left=left, op=op, right=last) if other := _ARITHMETIC.get(type(op)):
            yield _instead(node, ast.BinOp(left, other(), last))
        case ast.Call(func=ast.Name(id=name) as function) if name in _FUNCTIONS:
            yield function, _FUNCTIONS[name]
        case ast.IfExp(test=test):
            yield _instead(test, ast.UnaryOp(ast.Not(), test))
        case ast.ListComp(generators=loops) | ast.SetComp(generators=loops) | ast.GeneratorExp(generators=loops):
            for test in (test for loop in loops for test in loop.ifs):
                yield _instead(test, ast.UnaryOp(ast.Not(), test))


def _other_constants(value: object) -> Iterator[str]:
    match value:
        case bool():
            yield str(not value)
        case int() | float():
            # One more than an hour of seconds is an hour still.
            yield repr(value + 1 if value < _SMALL else 2 * value)
            if value:
                yield "0"
        case str():
            yield repr(value + "?")
        case bytes():
            yield repr(value + b"?")


def _instead(node: ast.expr, new: ast.expr) -> tuple[_Place, str]:
    return node, f"({ast.unparse(new)})"

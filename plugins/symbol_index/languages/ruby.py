"""Ruby: classes, modules, methods, attributes and constants."""

from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import bases, first_named, leading_name, named, parameters

_ATTRIBUTES = frozenset({"attr_reader", "attr_accessor", "attr_writer"})
_REQUIRES = frozenset({"require", "require_relative", "load"})


def _bases(node: Node, source: Source) -> str:
    return bases(source.field(node, "superclass").removeprefix("<").strip())


def _method(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    taken = node.child_by_field_name("parameters")
    owner = source.field(node, "object")
    name = "" if place.wrapper == "private" else source.field(node, "name")
    shown = f"{owner}.{name}" if owner and name else name
    signature = parameters(taken, source, leading_name) if taken is not None else ""
    yield Symbol("m" if place.container else "f", shown, signature, is_closed=True)


def _assignment(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    left = node.child_by_field_name("left")
    if left is not None and left.type == "constant":
        yield Symbol(VALUE, source.text(left))


def _attributes(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    arguments = node.child_by_field_name("arguments")
    if arguments is not None and source.field(node, "method") in _ATTRIBUTES:
        for one in arguments.named_children:
            if one.type == "simple_symbol":
                yield Symbol(VALUE, source.text(one).removeprefix(":"))


def _called(node: Node, source: Source) -> str:
    return source.field(node, "method") or "call"


def _require(node: Node, source: Source) -> Iterator[Import]:
    method, arguments = source.field(node, "method"), node.child_by_field_name("arguments")
    first = first_named(arguments) if method in _REQUIRES else None
    if first is not None and first.type == "string":
        target = source.text(first, 300).strip("'\"")
        yield Import(f"./{target}" if method == "require_relative" and not target.startswith(".") else target)


def _hides(node: Node, source: Source, place: Place) -> bool | None:
    """A ``private`` that stands alone is for all methods behind it."""
    if place.wrapper or place.container not in ("c", "n") or node.end_byte - node.start_byte > 9:
        return None
    return {"private": True, "protected": True, "public": False}.get(source.text(node))


RULES = Rules(
    definitions={
        "class": named("c", _bases, is_closed=False),
        "module": named("n", _bases, is_closed=False),
        "method": _method,
        "singleton_method": _method,
        "assignment": _assignment,
        "call": _attributes,
    },
    imports={"call": _require},
    names=frozenset({"constant"}),
    wrappers={"call": _called},
    switches={"identifier": _hides},
)

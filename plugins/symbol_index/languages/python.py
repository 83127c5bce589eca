"""Python: classes, functions, methods, properties, annotated fields and constants in capitals."""

from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import bases, is_constant, leading_name, named, signature

_signature = signature(leading_name, left_out=frozenset({"self", "cls", "*", "/"}))
_SHOWN_DUNDERS = frozenset({"__init__", "__call__", "__enter__", "__aenter__", "__iter__", "__getitem__"})
_PROPERTIES = frozenset({"property", "cached_property", "functools.cached_property", "abstractproperty"})


def _class(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    heirs = source.field(node, "superclasses").removeprefix("(").removesuffix(")")
    yield Symbol("c", name, bases(heirs), is_public=not name.startswith("_"))


def _function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    is_method = place.container == "c"
    is_dunder = name.startswith("__") and name.endswith("__")
    if is_method and name.startswith("_") and not (is_dunder and name in _SHOWN_DUNDERS):
        yield Symbol("", "", is_closed=True)
    elif is_method and place.wrapper:
        yield Symbol(VALUE, name, is_closed=True)
    elif name.startswith("_") and not is_dunder:
        yield Symbol("f", name, is_closed=True, is_public=False)
    else:
        yield Symbol("m" if is_method else "f", name, _signature(node, source), is_closed=True)


def _decorators(node: Node, source: Source) -> str:
    texts = [source.text(child).removeprefix("@") for child in node.named_children if child.type == "decorator"]
    return next((text for text in texts if text in _PROPERTIES), "")


def _assignment(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    left = node.child_by_field_name("left")
    if left is None or left.type != "identifier":
        return
    name = source.text(left)
    is_field = place.container == "c" and node.child_by_field_name("type") is not None
    if not name.startswith("_") and (is_field or is_constant(name)):
        yield Symbol(VALUE, name)


def _import(node: Node, source: Source) -> Iterator[Import]:
    for name in node.children_by_field_name("name"):
        yield Import(_plain(name, source))


def _import_from(node: Node, source: Source) -> Iterator[Import]:
    names = tuple(_plain(name, source) for name in node.children_by_field_name("name"))
    yield Import(source.field(node, "module_name").replace(" ", ""), names)


def _plain(node: Node, source: Source) -> str:
    """The name of ``name as other``."""
    return source.field(node, "name") if node.type == "aliased_import" else source.text(node)


RULES = Rules(
    definitions={
        "class_definition": _class,
        "function_definition": _function,
        "assignment": _assignment,
        "type_alias_statement": named("t", field="left"),
    },
    imports={"import_statement": _import, "import_from_statement": _import_from},
    names=frozenset({"identifier"}),
    wrappers={"decorated_definition": _decorators},
)

"""JavaScript and TypeScript: classes, interfaces, types, enums, functions, methods, exported values and constants."""

from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Define, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import (
    bases,
    first_named,
    is_constant,
    leading_name,
    named,
    signature,
)

_FUNCTIONS = frozenset({"arrow_function", "function_expression", "function", "generator_function"})
_HERITAGE = frozenset({"class_heritage", "extends_type_clause", "extends_clause"})
_several = signature(leading_name, frozenset({"this"}))


def _type(mark: str, is_closed: bool = False) -> Define:
    def define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
        heirs = next((source.text(child) for child in node.named_children if child.type in _HERITAGE), "")
        heirs = heirs.replace("extends ", "", 1).replace(" implements ", ", ").replace("implements ", "")
        yield Symbol(mark, source.field(node, "name") or "default", bases(heirs), is_closed)

    return define


def _signature(node: Node, source: Source) -> str:
    single = node.child_by_field_name("parameter")
    if single is not None:
        return f"({source.text(single)})"
    return _several(node, source)


_function = named("f", _signature)


def _method(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    words = source.text(node, 60)
    if place.container == "" or name.startswith(("#", "_")) or words.startswith("private "):
        yield Symbol("", "", is_closed=True)
    elif words.startswith(("get ", "static get ")):
        yield Symbol(VALUE, name, is_closed=True)
    else:
        yield Symbol("m", name, _signature(node, source), is_closed=True)


def _member(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    """A field of a class, or a property of an interface; a field that holds a function is a method."""
    name = source.field(node, "name") or source.field(node, "property")
    value = node.child_by_field_name("value")
    if place.container == "" or name.startswith(("#", "_")) or source.text(node, 60).startswith("private "):
        return
    if value is not None and value.type in _FUNCTIONS:
        yield Symbol("m", name, _signature(value, source), is_closed=True)
    else:
        yield Symbol(VALUE, name)


def _variable(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or name.type != "identifier":
        return
    words = source.text(name)
    if value is not None and value.type in _FUNCTIONS:
        yield Symbol("f", words, _signature(value, source), is_closed=True)
    elif is_constant(words) or place.wrapper:
        yield Symbol(VALUE, words, is_closed=True)


def _assigned(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """``exports.name = function ...`` and ``Type.prototype.name = function ...``."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is not None and right is not None and left.type == "member_expression" and right.type in _FUNCTIONS:
        name = source.text(left).removeprefix("module.").removeprefix("exports.").replace(".prototype.", ".")
        yield Symbol("f", name, _signature(right, source), is_closed=True)


def _enum_body(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    for child in node.named_children:
        if child.type == "property_identifier":
            yield Symbol(VALUE, source.text(child))
        elif child.type == "enum_assignment":
            yield Symbol(VALUE, source.field(child, "name"))


def _import(node: Node, source: Source) -> Iterator[Import]:
    """``import ... from "x"`` and ``export ... from "x"``."""
    target = node.child_by_field_name("source")
    if target is None:
        return
    names = []
    for clause in node.named_children:
        for group in (clause, *clause.named_children):
            if group.type in ("named_imports", "export_clause"):
                names += [source.field(one, "name") for one in group.named_children]
            elif group.type == "identifier" and clause.type == "import_clause":
                names.append(source.text(group))
    yield Import(source.text(target).strip("'\"`"), tuple(dict.fromkeys(name for name in names if name)))


def _call(node: Node, source: Source) -> Iterator[Import]:
    """``require("x")`` and ``import("x")``."""
    called = node.child_by_field_name("function")
    if called is None or called.end_byte - called.start_byte > 7 or source.text(called) not in ("require", "import"):
        return
    arguments = node.child_by_field_name("arguments")
    first = first_named(arguments)
    if first is not None and first.type == "string":
        yield Import(source.text(first).strip("'\"`"))


RULES = Rules(
    definitions={
        "class_declaration": _type("c"),
        "abstract_class_declaration": _type("c"),
        "class": _type("c"),
        "interface_declaration": _type("i"),
        "enum_declaration": _type("e"),
        "enum_body": _enum_body,
        "type_alias_declaration": _type("t", is_closed=True),
        "internal_module": _type("n"),
        "module": _type("n"),
        "function_declaration": _function,
        "generator_function_declaration": _function,
        "function_signature": _function,
        "method_definition": _method,
        "method_signature": _method,
        "abstract_method_signature": _method,
        "public_field_definition": _member,
        "field_definition": _member,
        "property_signature": _member,
        "variable_declarator": _variable,
        "assignment_expression": _assigned,
    },
    imports={"import_statement": _import, "export_statement": _import, "call_expression": _call},
    names=frozenset({"identifier", "type_identifier", "shorthand_property_identifier"}),
    wrappers={"export_statement": lambda _node, _source: "export"},
)

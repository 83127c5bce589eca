"""Go: types with their exported fields, interfaces, functions, exported methods, constants and variables."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import parameters, returned

_NAMES = re.compile(r"\A(\w++(?:\s*+,\s*+\w++)*+)\s++\S")
_MARKS = {"struct_type": "t", "interface_type": "i"}
_BLANK = frozenset({"_"})


def _name(text: str) -> str:
    found = _NAMES.match(text)
    return found[1].replace(" ", "") if found else text


def _signature(node: Node, source: Source) -> str:
    taken = parameters(node.child_by_field_name("parameters"), source, _name, _BLANK)
    return taken + returned(source.field(node, "result"))


def _type(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    kind = node.child_by_field_name("type")
    mark = _MARKS.get(kind.type) if kind is not None else None
    yield Symbol(mark or "t", source.field(node, "name"), is_closed=mark is None)


def _field(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    names = [source.text(name) for name in node.children_by_field_name("name")] if place.container == "t" else []
    yield from (Symbol(VALUE, name) for name in names if name[:1].isupper())


def _method_of_interface(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    yield Symbol("m", source.field(node, "name"), _signature(node, source), is_closed=True)


def _function(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    yield Symbol("f", name, _signature(node, source) if name[:1].isupper() else "", is_closed=True)


def _method(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    receiver = source.field(node, "receiver").strip("()").rpartition(" ")[2].lstrip("*")
    shown = f"{receiver}.{name}" if name[:1].isupper() else ""
    yield Symbol("m", shown, _signature(node, source), is_closed=True, is_public=False)


def _values(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    names = [source.text(name) for name in node.children_by_field_name("name")]
    yield from (Symbol(VALUE, name, is_closed=True) for name in names if name[:1].isupper())


def _import(node: Node, source: Source) -> Iterator[Import]:
    yield Import(source.field(node, "path", 300).strip('"`'))


RULES = Rules(
    definitions={
        "type_spec": _type,
        "type_alias": _type,
        "field_declaration": _field,
        "method_elem": _method_of_interface,
        "function_declaration": _function,
        "method_declaration": _method,
        "const_spec": _values,
        "var_spec": _values,
    },
    imports={"import_spec": _import},
    names=frozenset({"identifier", "type_identifier", "field_identifier"}),
)

"""Go: types with their exported fields, interfaces, functions, exported methods, constants and variables."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import imported_path, named, signature

_NAMES = re.compile(r"\A(\w++(?:\s*+,\s*+\w++)*+)\s++\S")
_MARKS = {"struct_type": "t", "interface_type": "i"}


def _name(text: str) -> str:
    found = _NAMES.match(text)
    return found[1].replace(" ", "") if found else text


_signature = signature(_name, frozenset({"_"}), result="result")


def _type(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    kind = node.child_by_field_name("type")
    mark = _MARKS.get(kind.type) if kind is not None else None
    yield Symbol(mark or "t", source.field(node, "name"), is_closed=mark is None)


def _field(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    names = [source.text(name) for name in node.children_by_field_name("name")] if place.container == "t" else []
    yield from (Symbol(VALUE, name) for name in names if name[:1].isupper())


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


RULES = Rules(
    definitions={
        "type_spec": _type,
        "type_alias": _type,
        "field_declaration": _field,
        "method_elem": named("m", _signature),
        "function_declaration": _function,
        "method_declaration": _method,
        "const_spec": _values,
        "var_spec": _values,
    },
    imports={"import_spec": imported_path},
    names=frozenset({"identifier", "type_identifier", "field_identifier"}),
)

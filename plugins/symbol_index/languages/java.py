"""Java: classes, interfaces, enums, records, their methods, and fields that are not private."""

from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Define, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import bases, first_named, last_name, named, signature

_signature = signature(last_name, result="type")


def _is_private(node: Node) -> bool:
    first = first_named(node)
    return first is not None and first.type == "modifiers" and any(child.type == "private" for child in first.children)


def _type(mark: str) -> Define:
    def define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
        heirs = [source.field(node, "superclass"), source.field(node, "interfaces")]
        heirs += [source.text(child) for child in node.named_children if child.type == "extends_interfaces"]
        words = ", ".join(one.removeprefix("extends ").removeprefix("implements ") for one in heirs if one)
        name = "" if _is_private(node) else source.field(node, "name")
        yield Symbol(mark, name, bases(words), is_closed=not name)

    return define


def _method(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = "" if _is_private(node) else source.field(node, "name")
    yield Symbol("m", name, _signature(node, source), is_closed=True)


def _field(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    if not _is_private(node):
        for one in node.children_by_field_name("declarator"):
            yield Symbol(VALUE, source.field(one, "name"), is_closed=True)


def _import(node: Node, source: Source) -> Iterator[Import]:
    words = source.text(node, 300).removeprefix("import ").removeprefix("static ").rstrip("; ").replace(" ", "")
    name = words.rpartition(".")[2]
    yield Import(words, (name,) if name[:1].isupper() else ())


RULES = Rules(
    definitions={
        "class_declaration": _type("c"),
        "interface_declaration": _type("i"),
        "annotation_type_declaration": _type("i"),
        "enum_declaration": _type("e"),
        "record_declaration": named("t", _signature, is_closed=False),
        "method_declaration": _method,
        "constructor_declaration": _method,
        "annotation_type_element_declaration": _method,
        "field_declaration": _field,
        "constant_declaration": _field,
        "enum_constant": named(VALUE),
    },
    imports={"import_declaration": _import},
    names=frozenset({"identifier", "type_identifier"}),
)

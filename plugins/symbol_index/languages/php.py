"""PHP: classes, interfaces, traits, enums, functions, methods, properties and constants."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.braces import written_out
from plugins.symbol_index.languages.signatures import bases, first_named, named, signature

_VARIABLE = re.compile(r"(\.\.\.)?+\$(\w++)(\s*+=)?+")
_QUOTED = re.compile(r"""['"]([^'"]++)['"]""")
_HERITAGE = frozenset({"base_clause", "class_interface_clause"})


def _bases(node: Node, source: Source) -> str:
    heirs = [source.text(child) for child in node.named_children if child.type in _HERITAGE]
    return bases(", ".join(one.removeprefix("extends ").removeprefix("implements ") for one in heirs))


def _name(text: str) -> str:
    found = _VARIABLE.search(text)
    return (found[1] or "") + found[2] + ("?" if found[3] else "") if found else ""


_signature = signature(_name)


def _is_private(node: Node, source: Source) -> bool:
    return any(
        child.type == "visibility_modifier" and source.text(child) == "private" for child in node.named_children[:6]
    )


def _method(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = "" if _is_private(node, source) else source.field(node, "name")
    yield Symbol("m", name, _signature(node, source), is_closed=True)


def _properties(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    if not _is_private(node, source):
        for child in node.named_children:
            if child.type == "property_element":
                yield Symbol(VALUE, source.text(first_named(child)).removeprefix("$"), is_closed=True)
            elif child.type == "const_element":
                yield Symbol(VALUE, source.text(first_named(child)), is_closed=True)


def _define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """``define('NAME', value)``"""
    if source.field(node, "function", 8) == "define":
        found = _QUOTED.search(source.field(node, "arguments"))
        if found:
            yield Symbol(VALUE, found[1])


def _use(node: Node, source: Source) -> Iterator[Import]:
    words = source.text(node, 2_000).removeprefix("use ").rstrip("; ")
    for path in written_out(words.removeprefix("function ").removeprefix("const "), "\\"):
        yield Import(path.strip("\\"), (path.rpartition("\\")[2],))


def _include(node: Node, source: Source) -> Iterator[Import]:
    found = _QUOTED.search(source.text(node, 300))
    if found:
        yield Import(found[1])


RULES = Rules(
    definitions={
        "class_declaration": named("c", _bases, is_closed=False),
        "interface_declaration": named("i", _bases, is_closed=False),
        "trait_declaration": named("i", _bases, is_closed=False),
        "enum_declaration": named("e", _bases, is_closed=False),
        "enum_case": named(VALUE),
        "function_definition": named("f", _signature),
        "method_declaration": _method,
        "property_declaration": _properties,
        "const_declaration": _properties,
        "namespace_definition": named("n", is_closed=False, is_public=False),
        "function_call_expression": _define,
    },
    imports={
        "namespace_use_declaration": _use,
        "require_expression": _include,
        "require_once_expression": _include,
        "include_expression": _include,
        "include_once_expression": _include,
    },
    names=frozenset({"name"}),
)

"""Rust: types with their public fields, enums, traits, implementations, modules, functions, macros and constants."""

from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.braces import written_out
from plugins.symbol_index.languages.signatures import bases, named, signature


def _bounds(node: Node, source: Source) -> str:
    return bases(source.field(node, "bounds").removeprefix(":").strip())


def _implementation(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """The methods of a trait stand with the trait, so that an implementation of one is a line of its own."""
    trait = source.field(node, "trait")
    yield Symbol("c", source.field(node, "type"), bases(trait), is_closed=bool(trait), is_public=False)


def _module(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    if name == "tests":
        yield Symbol("", "", is_closed=True)
    elif node.child_by_field_name("body") is not None:
        yield Symbol("n", name)


def _is_public(node: Node, source: Source) -> bool:
    return source.text(node, 4).startswith("pub")


def _name(text: str) -> str:
    name = text.partition(":")[0].strip().removeprefix("mut ")
    return "()" if name.startswith("(") else "" if "self" in name else name


_signature = signature(_name)


def _function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name, is_public = source.field(node, "name"), _is_public(node, source)
    shown = _signature(node, source)
    if place.container in ("", "n"):
        yield Symbol("f", name, shown if is_public else "", is_closed=True, is_public=is_public)
    else:
        yield Symbol("m", name if is_public or place.container == "i" else "", shown, is_closed=True)


def _field(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    if _is_public(node, source):
        yield Symbol(VALUE, source.field(node, "name"), is_closed=True)


def _use(node: Node, source: Source) -> Iterator[Import]:
    for path in written_out(source.field(node, "argument", 2_000), "::"):
        name = path.rpartition("::")[2]
        yield Import(path, (name,) if name[:1].isupper() else ())


def _submodule(node: Node, source: Source) -> Iterator[Import]:
    if node.child_by_field_name("body") is None:
        yield Import(f"mod::{source.field(node, 'name')}")


RULES = Rules(
    definitions={
        "struct_item": named("t", _bounds, is_closed=False),
        "union_item": named("t", _bounds, is_closed=False),
        "enum_item": named("e", _bounds, is_closed=False),
        "trait_item": named("i", _bounds, is_closed=False),
        "type_item": named("t", _bounds),
        "impl_item": _implementation,
        "mod_item": _module,
        "function_item": _function,
        "function_signature_item": _function,
        "field_declaration": _field,
        "enum_variant": named(VALUE),
        "const_item": named(VALUE),
        "static_item": named(VALUE),
        "macro_definition": named("f", lambda _node, _source: "!"),
    },
    imports={"use_declaration": _use, "mod_item": _submodule},
    names=frozenset({"identifier", "type_identifier"}),
)

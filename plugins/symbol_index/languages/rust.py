"""Rust: types with their public fields, enums, traits, implementations, modules, functions, macros and constants."""

from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Define, Import, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.braces import written_out
from plugins.symbol_index.languages.signatures import bases, named, parameters, returned


def _type(mark: str, is_closed: bool = False) -> Define:
    def define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
        bounds = source.field(node, "bounds").removeprefix(":").strip()
        yield Symbol(mark, source.field(node, "name"), bases(bounds), is_closed)

    return define


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


def _function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name, is_public = source.field(node, "name"), _is_public(node, source)
    taken = parameters(node.child_by_field_name("parameters"), source, _name, frozenset())
    signature = taken + returned(source.field(node, "return_type"))
    if place.container in ("", "n"):
        yield Symbol("f", name, signature if is_public else "", is_closed=True, is_public=is_public)
    else:
        yield Symbol("m", name if is_public or place.container == "i" else "", signature, is_closed=True)


def _field(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    if _is_public(node, source):
        yield Symbol(VALUE, source.field(node, "name"), is_closed=True)


def _macro(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    yield Symbol("f", source.field(node, "name"), "!", is_closed=True)


def _use(node: Node, source: Source) -> Iterator[Import]:
    for path in written_out(source.field(node, "argument", 2_000), "::"):
        name = path.rpartition("::")[2]
        yield Import(path, (name,) if name[:1].isupper() else ())


def _submodule(node: Node, source: Source) -> Iterator[Import]:
    if node.child_by_field_name("body") is None:
        yield Import(f"mod::{source.field(node, 'name')}")


RULES = Rules(
    definitions={
        "struct_item": _type("t"),
        "union_item": _type("t"),
        "enum_item": _type("e"),
        "trait_item": _type("i"),
        "type_item": _type("t", is_closed=True),
        "impl_item": _implementation,
        "mod_item": _module,
        "function_item": _function,
        "function_signature_item": _function,
        "field_declaration": _field,
        "enum_variant": named(VALUE),
        "const_item": named(VALUE),
        "static_item": named(VALUE),
        "macro_definition": _macro,
    },
    imports={"use_declaration": _use, "mod_item": _submodule},
    names=frozenset({"identifier", "type_identifier"}),
)

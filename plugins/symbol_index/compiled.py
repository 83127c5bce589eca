"""C and C++, Go, Java and Rust: which nodes of their grammars are symbols, imports and names."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import (
    VALUE,
    Define,
    Import,
    Place,
    Rules,
    Source,
    Symbol,
    first_named,
    heirs,
    imported_path,
    is_constant,
    last_name,
    named,
    parameters,
    returned,
    signature,
    written_out,
)

_C_MOST_NESTED = 8
_c_heirs = heirs("base_class_clause")
_C_POINTER_TO_FUNCTION = re.compile(r"\(\s*+\*\s*+(\w++)")
_C_NONE = frozenset({"void"})


def _c_name(text: str) -> str:
    found = _C_POINTER_TO_FUNCTION.search(text)
    return found[1] if found else last_name(text)


def _c_declared(node: Node | None, source: Source) -> tuple[str, str, Node | None]:
    """The name within a declarator, the stars in front of it, and the declarator of its function, if it is one."""
    stars, function = "", None
    for _ in range(_C_MOST_NESTED):
        if node is None:
            return "", "", None
        if node.type in ("function_declarator", "preproc_function_def"):
            function = function or node
        elif function is None and node.type in ("pointer_declarator", "reference_declarator"):
            stars += "*" if node.type == "pointer_declarator" else "&"
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type in ("parenthesized_declarator", "reference_declarator"):
            inner = first_named(node)
        if inner is None:
            return source.text(node), stars, function
        node = inner
    return "", "", None


def _c_function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    """A function, if the node declares one. Destructors are left out, because they say nothing."""
    name, stars, function = _c_declared(node.child_by_field_name("declarator"), source)
    if function is None:
        return
    taken = parameters(function.child_by_field_name("parameters"), source, _c_name, _C_NONE)
    kind = source.field(node, "type").replace("auto", "")
    given = returned(kind + stars if kind else "")
    is_member = place.container not in ("", "n")
    if source.text(node, 7).startswith("static") and not is_member:
        yield Symbol("f", name, is_closed=True, is_public=False)
    else:
        shown = "" if name.startswith("~") else name
        yield Symbol("m" if is_member else "f", shown, taken + given, is_closed=True)


def _c_declaration(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    found = list(_c_function(node, source, place))
    yield from found
    if found:
        return
    is_told = place.container not in ("", "n") or source.text(node, 7).startswith("extern")
    for one in node.children_by_field_name("declarator"):
        name, _, function = _c_declared(one, source)
        if function is None and (is_told or is_constant(name)):
            yield Symbol(VALUE, name)


def _c_type(mark: str) -> Define:
    def define(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
        if node.child_by_field_name("body") is not None and (place.container != "t" or mark == "c"):
            yield Symbol(mark, source.field(node, "name"), _c_heirs(node, source))

    return define


def _c_typedef(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name, _, _ = _c_declared(node.child_by_field_name("declarator"), source)
    yield Symbol("t", name)


def _c_macro(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """A macro. A macro without a value is left out: it only says that a header was read."""
    name = source.field(node, "name")
    if node.type == "preproc_function_def":
        yield Symbol("f", name, source.field(node, "parameters", 60).replace(" ", ""), is_closed=True)
    elif node.child_by_field_name("value") is not None:
        yield Symbol(VALUE, name)


def _c_hides(node: Node, source: Source, place: Place) -> bool | None:
    """Whether the members that follow in a class are private. The first members of a class are private."""
    if place.container not in ("c", "t"):
        return None
    is_start = node.type == "field_declaration_list"
    return place.container == "c" if is_start else source.text(node).startswith("private")


C = Rules(
    definitions={
        "function_definition": _c_function,
        "declaration": _c_declaration,
        "field_declaration": _c_declaration,
        "class_specifier": _c_type("c"),
        "struct_specifier": _c_type("t"),
        "union_specifier": _c_type("t"),
        "enum_specifier": _c_type("e"),
        "enumerator": named(VALUE, is_closed=False),
        "type_definition": _c_typedef,
        "alias_declaration": named("t"),
        "namespace_definition": named("n", is_closed=False),
        "preproc_def": _c_macro,
        "preproc_function_def": _c_macro,
    },
    imports={"preproc_include": imported_path},
    names=frozenset({"identifier", "type_identifier"}),
    switches={"access_specifier": _c_hides, "field_declaration_list": _c_hides},
)


_GO_NAMES = re.compile(r"\A(\w++(?:\s*+,\s*+\w++)*+)\s++\S")
_GO_MARKS = {"struct_type": "t", "interface_type": "i"}


def _go_name(text: str) -> str:
    found = _GO_NAMES.match(text)
    return found[1].replace(" ", "") if found else text


_go_signature = signature(_go_name, frozenset({"_"}), result="result")


def _go_type(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    kind = node.child_by_field_name("type")
    mark = _GO_MARKS.get(kind.type) if kind is not None else None
    yield Symbol(mark or "t", source.field(node, "name"), is_closed=mark is None)


def _go_field(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    names = [source.text(name) for name in node.children_by_field_name("name")] if place.container == "t" else []
    yield from (Symbol(VALUE, name) for name in names if name[:1].isupper())


def _go_function(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    yield Symbol("f", name, _go_signature(node, source) if name[:1].isupper() else "", is_closed=True)


def _go_method(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    receiver = source.field(node, "receiver").strip("()").rpartition(" ")[2].lstrip("*")
    shown = f"{receiver}.{name}" if name[:1].isupper() else ""
    yield Symbol("m", shown, _go_signature(node, source), is_closed=True, is_public=False)


def _go_values(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    names = [source.text(name) for name in node.children_by_field_name("name")]
    yield from (Symbol(VALUE, name, is_closed=True) for name in names if name[:1].isupper())


GO = Rules(
    definitions={
        "type_spec": _go_type,
        "type_alias": _go_type,
        "field_declaration": _go_field,
        "method_elem": named("m", _go_signature),
        "function_declaration": _go_function,
        "method_declaration": _go_method,
        "const_spec": _go_values,
        "var_spec": _go_values,
    },
    imports={"import_spec": imported_path},
    names=frozenset({"identifier", "type_identifier", "field_identifier"}),
)


_java_signature = signature(last_name, result="type")
_java_heirs = heirs("superclass", "super_interfaces", "extends_interfaces")


def _java_is_private(node: Node, _source: Source) -> bool:
    first = first_named(node)
    return first is not None and first.type == "modifiers" and any(child.type == "private" for child in first.children)


def _java_field(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    if not _java_is_private(node, source):
        for one in node.children_by_field_name("declarator"):
            yield Symbol(VALUE, source.field(one, "name"), is_closed=True)


def _java_import(node: Node, source: Source) -> Iterator[Import]:
    words = source.text(node, 300).removeprefix("import ").removeprefix("static ").rstrip("; ").replace(" ", "")
    name = words.rpartition(".")[2]
    yield Import(words, (name,) if name[:1].isupper() else ())


JAVA = Rules(
    definitions={
        "class_declaration": named("c", _java_heirs, unless=_java_is_private, is_closed=False),
        "interface_declaration": named("i", _java_heirs, unless=_java_is_private, is_closed=False),
        "annotation_type_declaration": named("i", _java_heirs, unless=_java_is_private, is_closed=False),
        "enum_declaration": named("e", _java_heirs, unless=_java_is_private, is_closed=False),
        "record_declaration": named("t", _java_signature, is_closed=False),
        "method_declaration": named("m", _java_signature, unless=_java_is_private),
        "constructor_declaration": named("m", _java_signature, unless=_java_is_private),
        "annotation_type_element_declaration": named("m", _java_signature, unless=_java_is_private),
        "field_declaration": _java_field,
        "constant_declaration": _java_field,
        "enum_constant": named(VALUE),
    },
    imports={"import_declaration": _java_import},
    names=frozenset({"identifier", "type_identifier"}),
)


_rust_bounds = heirs("trait_bounds")


def _rust_implementation(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """An implementation. The methods of a trait are shown with the trait, so an implementation of a trait is only one
    line."""
    trait = source.field(node, "trait")
    yield Symbol("c", source.field(node, "type"), f"({trait})" if trait else "", is_closed=bool(trait), is_public=False)


def _rust_module(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    if name == "tests":
        yield Symbol("", "", is_closed=True)
    elif node.child_by_field_name("body") is not None:
        yield Symbol("n", name)


def _rust_is_private(node: Node, source: Source) -> bool:
    return not source.text(node, 4).startswith("pub")


def _rust_name(text: str) -> str:
    name = text.partition(":")[0].strip().removeprefix("mut ")
    return "()" if name.startswith("(") else "" if "self" in name else name


_rust_signature = signature(_rust_name)


def _rust_function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name, is_public = source.field(node, "name"), not _rust_is_private(node, source)
    shown = _rust_signature(node, source)
    if place.container in ("", "n"):
        yield Symbol("f", name, shown if is_public else "", is_closed=True, is_public=is_public)
    else:
        yield Symbol("m", name if is_public or place.container == "i" else "", shown, is_closed=True)


def _rust_use(node: Node, source: Source) -> Iterator[Import]:
    for path in written_out(source.field(node, "argument", 2_000), "::"):
        name = path.rpartition("::")[2]
        yield Import(path, (name,) if name[:1].isupper() else ())


def _rust_submodule(node: Node, source: Source) -> Iterator[Import]:
    if node.child_by_field_name("body") is None:
        yield Import(f"mod::{source.field(node, 'name')}")


RUST = Rules(
    definitions={
        "struct_item": named("t", _rust_bounds, is_closed=False),
        "union_item": named("t", _rust_bounds, is_closed=False),
        "enum_item": named("e", _rust_bounds, is_closed=False),
        "trait_item": named("i", _rust_bounds, is_closed=False),
        "type_item": named("t", _rust_bounds),
        "impl_item": _rust_implementation,
        "mod_item": _rust_module,
        "function_item": _rust_function,
        "function_signature_item": _rust_function,
        "field_declaration": named(VALUE, unless=_rust_is_private),
        "enum_variant": named(VALUE),
        "const_item": named(VALUE),
        "static_item": named(VALUE),
        "macro_definition": named("f", lambda _node, _source: "!"),
    },
    imports={"use_declaration": _rust_use, "mod_item": _rust_submodule},
    names=frozenset({"identifier", "type_identifier"}),
)

"""C and C++: types and their members, functions and prototypes, macros, enums, namespaces and constants."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import VALUE, Define, Place, Rules, Source, Symbol
from plugins.symbol_index.languages.signatures import (
    bases,
    first_named,
    imported_path,
    is_constant,
    last_name,
    named,
    parameters,
    returned,
)

_MOST_NESTED = 8
_ACCESS = re.compile(r"\b(?:public|private|protected|virtual) ")
_POINTER_TO_FUNCTION = re.compile(r"\(\s*+\*\s*+(\w++)")
_NONE = frozenset({"void"})


def _name(text: str) -> str:
    found = _POINTER_TO_FUNCTION.search(text)
    return found[1] if found else last_name(text)


def _declared(node: Node | None, source: Source) -> tuple[str, str, Node | None]:
    """The name within a declarator, the stars in front of it, and the declarator of its function, if it is one."""
    stars, function = "", None
    for _ in range(_MOST_NESTED):
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


def _function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    """A function, where the node declares one. A destructor says nothing."""
    name, stars, function = _declared(node.child_by_field_name("declarator"), source)
    if function is None:
        return
    taken = parameters(function.child_by_field_name("parameters"), source, _name, _NONE)
    kind = source.field(node, "type").replace("auto", "")
    given = returned(kind + stars if kind else "")
    is_member = place.container not in ("", "n")
    if source.text(node, 7).startswith("static") and not is_member:
        yield Symbol("f", name, is_closed=True, is_public=False)
    else:
        shown = "" if name.startswith("~") else name
        yield Symbol("m" if is_member else "f", shown, taken + given, is_closed=True)


def _declaration(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    found = list(_function(node, source, place))
    yield from found
    if found:
        return
    is_told = place.container not in ("", "n") or source.text(node, 7).startswith("extern")
    for one in node.children_by_field_name("declarator"):
        name, _, function = _declared(one, source)
        if function is None and (is_told or is_constant(name)):
            yield Symbol(VALUE, name)


def _type(mark: str) -> Define:
    def define(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
        if node.child_by_field_name("body") is None or (place.container == "t" and mark != "c"):
            return
        heirs = next((source.text(child) for child in node.named_children if child.type == "base_class_clause"), "")
        yield Symbol(mark, source.field(node, "name"), bases(_ACCESS.sub("", heirs).removeprefix(":").strip()))

    return define


def _typedef(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name, _, _ = _declared(node.child_by_field_name("declarator"), source)
    yield Symbol("t", name)


def _macro(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """A macro without a value only says that a header was read."""
    name = source.field(node, "name")
    if node.type == "preproc_function_def":
        yield Symbol("f", name, source.field(node, "parameters", 60).replace(" ", ""), is_closed=True)
    elif node.child_by_field_name("value") is not None:
        yield Symbol(VALUE, name)


def _hides(node: Node, source: Source, place: Place) -> bool | None:
    """What follows in a class is private, or not. The members of a class begin as private ones."""
    if place.container not in ("c", "t"):
        return None
    is_start = node.type == "field_declaration_list"
    return place.container == "c" if is_start else source.text(node).startswith("private")


RULES = Rules(
    definitions={
        "function_definition": _function,
        "declaration": _declaration,
        "field_declaration": _declaration,
        "class_specifier": _type("c"),
        "struct_specifier": _type("t"),
        "union_specifier": _type("t"),
        "enum_specifier": _type("e"),
        "enumerator": named(VALUE, is_closed=False),
        "type_definition": _typedef,
        "alias_declaration": named("t"),
        "namespace_definition": named("n", is_closed=False),
        "preproc_def": _macro,
        "preproc_function_def": _macro,
    },
    imports={"preproc_include": imported_path},
    names=frozenset({"identifier", "type_identifier"}),
    switches={"access_specifier": _hides, "field_declaration_list": _hides},
)

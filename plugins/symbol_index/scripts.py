"""JavaScript and TypeScript, PHP, Python and Ruby: which nodes of their grammars are symbols, imports and names."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import (
    VALUE,
    Import,
    Place,
    Rules,
    Source,
    Symbol,
    first_named,
    heirs,
    is_constant,
    leading_name,
    named,
    parameters,
    signature,
    written_out,
)

_JS_FUNCTIONS = frozenset({"arrow_function", "function_expression", "function", "generator_function"})
_js_heirs = heirs("class_heritage", "extends_type_clause", "extends_clause")
_js_several = signature(leading_name, frozenset({"this"}))


def _js_signature(node: Node, source: Source) -> str:
    single = node.child_by_field_name("parameter")
    return f"({source.text(single)})" if single is not None else _js_several(node, source)


_js_function = named("f", _js_signature)


def _js_method(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    words = source.text(node, 60)
    if place.container == "" or name.startswith(("#", "_")) or words.startswith("private "):
        yield Symbol("", "", is_closed=True)
    elif words.startswith(("get ", "static get ")):
        yield Symbol(VALUE, name, is_closed=True)
    else:
        yield Symbol("m", name, _js_signature(node, source), is_closed=True)


def _js_member(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    """A field of a class, or a property of an interface. A field that holds a function is a method."""
    name = source.field(node, "name") or source.field(node, "property")
    value = node.child_by_field_name("value")
    if place.container == "" or name.startswith(("#", "_")) or source.text(node, 60).startswith("private "):
        return
    if value is not None and value.type in _JS_FUNCTIONS:
        yield Symbol("m", name, _js_signature(value, source), is_closed=True)
    else:
        yield Symbol(VALUE, name)


def _js_variable(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or name.type != "identifier":
        return
    words = source.text(name)
    if value is not None and value.type in _JS_FUNCTIONS:
        yield Symbol("f", words, _js_signature(value, source), is_closed=True)
    elif is_constant(words) or place.wrapper:
        yield Symbol(VALUE, words, is_closed=True)


def _js_assigned(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """``exports.name = function ...`` and ``Type.prototype.name = function ...``."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is not None and right is not None and left.type == "member_expression" and right.type in _JS_FUNCTIONS:
        name = source.text(left).removeprefix("module.").removeprefix("exports.").replace(".prototype.", ".")
        yield Symbol("f", name, _js_signature(right, source), is_closed=True)


def _js_enum_body(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    for child in node.named_children:
        if child.type in ("property_identifier", "enum_assignment"):
            yield Symbol(VALUE, source.field(child, "name") or source.text(child))


def _js_import(node: Node, source: Source) -> Iterator[Import]:
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


def _js_call(node: Node, source: Source) -> Iterator[Import]:
    """``require("x")`` and ``import("x")``."""
    called = node.child_by_field_name("function")
    if called is None or called.end_byte - called.start_byte > 7 or source.text(called) not in ("require", "import"):
        return
    first = first_named(node.child_by_field_name("arguments"))
    if first is not None and first.type == "string":
        yield Import(source.text(first).strip("'\"`"))


JAVASCRIPT = Rules(
    definitions={
        "class_declaration": named("c", _js_heirs, otherwise="default", is_closed=False),
        "abstract_class_declaration": named("c", _js_heirs, otherwise="default", is_closed=False),
        "class": named("c", _js_heirs, otherwise="default", is_closed=False),
        "interface_declaration": named("i", _js_heirs, otherwise="default", is_closed=False),
        "enum_declaration": named("e", _js_heirs, otherwise="default", is_closed=False),
        "enum_body": _js_enum_body,
        "type_alias_declaration": named("t", _js_heirs, otherwise="default"),
        "internal_module": named("n", _js_heirs, otherwise="default", is_closed=False),
        "module": named("n", _js_heirs, otherwise="default", is_closed=False),
        "function_declaration": _js_function,
        "generator_function_declaration": _js_function,
        "function_signature": _js_function,
        "method_definition": _js_method,
        "method_signature": _js_method,
        "abstract_method_signature": _js_method,
        "public_field_definition": _js_member,
        "field_definition": _js_member,
        "property_signature": _js_member,
        "variable_declarator": _js_variable,
        "assignment_expression": _js_assigned,
    },
    imports={
        "import_statement": _js_import,
        "export_statement": _js_import,
        "call_expression": _js_call,
    },
    names=frozenset({"identifier", "type_identifier", "shorthand_property_identifier"}),
    wrappers={"export_statement": lambda _node, _source: "export"},
)


_PHP_VARIABLE = re.compile(r"(\.\.\.)?+\$(\w++)(\s*+=)?+")
_PHP_QUOTED = re.compile(r"""['"]([^'"]++)['"]""")
_php_bases = heirs("base_clause", "class_interface_clause")


def _php_name(text: str) -> str:
    found = _PHP_VARIABLE.search(text)
    return (found[1] or "") + found[2] + ("?" if found[3] else "") if found else ""


_php_signature = signature(_php_name)


def _php_is_private(node: Node, source: Source) -> bool:
    return any(
        child.type == "visibility_modifier" and source.text(child) == "private" for child in node.named_children[:6]
    )


def _php_properties(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    if not _php_is_private(node, source):
        for child in node.named_children:
            if child.type in ("property_element", "const_element"):
                yield Symbol(VALUE, source.text(first_named(child)).removeprefix("$"), is_closed=True)


def _php_define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    """``define('NAME', value)``"""
    if source.field(node, "function", 8) == "define":
        found = _PHP_QUOTED.search(source.field(node, "arguments"))
        if found:
            yield Symbol(VALUE, found[1])


def _php_use(node: Node, source: Source) -> Iterator[Import]:
    words = source.text(node, 2_000).removeprefix("use ").rstrip("; ")
    for path in written_out(words.removeprefix("function ").removeprefix("const "), "\\"):
        yield Import(path.strip("\\"), (path.rpartition("\\")[2],))


def _php_include(node: Node, source: Source) -> Iterator[Import]:
    found = _PHP_QUOTED.search(source.text(node, 300))
    if found:
        yield Import(found[1])


PHP = Rules(
    definitions={
        "class_declaration": named("c", _php_bases, is_closed=False),
        "interface_declaration": named("i", _php_bases, is_closed=False),
        "trait_declaration": named("i", _php_bases, is_closed=False),
        "enum_declaration": named("e", _php_bases, is_closed=False),
        "enum_case": named(VALUE),
        "function_definition": named("f", _php_signature),
        "method_declaration": named("m", _php_signature, unless=_php_is_private),
        "property_declaration": _php_properties,
        "const_declaration": _php_properties,
        "namespace_definition": named("n", is_closed=False, is_public=False),
        "function_call_expression": _php_define,
    },
    imports={
        "namespace_use_declaration": _php_use,
        "require_expression": _php_include,
        "require_once_expression": _php_include,
        "include_expression": _php_include,
        "include_once_expression": _php_include,
    },
    names=frozenset({"name"}),
)


_python_signature = signature(leading_name, left_out=frozenset({"self", "cls", "*", "/"}))
_python_heirs = heirs("argument_list")
_PYTHON_SHOWN_DUNDERS = frozenset({"__init__", "__call__", "__enter__", "__aenter__", "__iter__", "__getitem__"})
_PYTHON_PROPERTIES = frozenset({"property", "cached_property", "functools.cached_property", "abstractproperty"})


def _python_class(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    yield Symbol("c", name, _python_heirs(node, source), is_public=not name.startswith("_"))


def _python_function(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    name = source.field(node, "name")
    is_method = place.container == "c"
    is_dunder = name.startswith("__") and name.endswith("__")
    if is_method and name.startswith("_") and not (is_dunder and name in _PYTHON_SHOWN_DUNDERS):
        yield Symbol("", "", is_closed=True)
    elif is_method and place.wrapper:
        yield Symbol(VALUE, name, is_closed=True)
    elif name.startswith("_") and not is_dunder:
        yield Symbol("f", name, is_closed=True, is_public=False)
    else:
        yield Symbol("m" if is_method else "f", name, _python_signature(node, source), is_closed=True)


def _python_decorators(node: Node, source: Source) -> str:
    texts = [source.text(child).removeprefix("@") for child in node.named_children if child.type == "decorator"]
    return next((text for text in texts if text in _PYTHON_PROPERTIES), "")


def _python_assignment(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    left = node.child_by_field_name("left")
    if left is None or left.type != "identifier":
        return
    name = source.text(left)
    is_field = place.container == "c" and node.child_by_field_name("type") is not None
    if not name.startswith("_") and (is_field or is_constant(name)):
        yield Symbol(VALUE, name)


def _python_import(node: Node, source: Source) -> Iterator[Import]:
    yield from (Import(_python_plain(name, source)) for name in node.children_by_field_name("name"))


def _python_import_from(node: Node, source: Source) -> Iterator[Import]:
    names = tuple(_python_plain(name, source) for name in node.children_by_field_name("name"))
    yield Import(source.field(node, "module_name").replace(" ", ""), names)


def _python_plain(node: Node, source: Source) -> str:
    """The name of ``name as other``."""
    return source.field(node, "name") if node.type == "aliased_import" else source.text(node)


PYTHON = Rules(
    definitions={
        "class_definition": _python_class,
        "function_definition": _python_function,
        "assignment": _python_assignment,
        "type_alias_statement": named("t", field="left"),
    },
    imports={"import_statement": _python_import, "import_from_statement": _python_import_from},
    names=frozenset({"identifier"}),
    wrappers={"decorated_definition": _python_decorators},
)


_ruby_bases = heirs("superclass")
_RUBY_ATTRIBUTES = frozenset({"attr_reader", "attr_accessor", "attr_writer"})
_RUBY_REQUIRES = frozenset({"require", "require_relative", "load"})


def _ruby_method(node: Node, source: Source, place: Place) -> Iterator[Symbol]:
    taken = node.child_by_field_name("parameters")
    owner = source.field(node, "object")
    name = "" if place.wrapper == "private" else source.field(node, "name")
    shown = f"{owner}.{name}" if owner and name else name
    signature = parameters(taken, source, leading_name) if taken is not None else ""
    yield Symbol("m" if place.container else "f", shown, signature, is_closed=True)


def _ruby_assignment(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    left = node.child_by_field_name("left")
    if left is not None and left.type == "constant":
        yield Symbol(VALUE, source.text(left))


def _ruby_attributes(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
    arguments = node.child_by_field_name("arguments")
    if arguments is not None and source.field(node, "method") in _RUBY_ATTRIBUTES:
        for one in arguments.named_children:
            if one.type == "simple_symbol":
                yield Symbol(VALUE, source.text(one).removeprefix(":"))


def _ruby_called(node: Node, source: Source) -> str:
    return source.field(node, "method") or "call"


def _ruby_require(node: Node, source: Source) -> Iterator[Import]:
    method, arguments = source.field(node, "method"), node.child_by_field_name("arguments")
    first = first_named(arguments) if method in _RUBY_REQUIRES else None
    if first is not None and first.type == "string":
        target = source.text(first, 300).strip("'\"")
        yield Import(f"./{target}" if method == "require_relative" and not target.startswith(".") else target)


def _ruby_hides(node: Node, source: Source, place: Place) -> bool | None:
    """Whether the methods that follow are private. A ``private`` that is alone applies to all methods behind it."""
    if place.wrapper or place.container not in ("c", "n") or node.end_byte - node.start_byte > 9:
        return None
    return {"private": True, "protected": True, "public": False}.get(source.text(node))


RUBY = Rules(
    definitions={
        "class": named("c", _ruby_bases, is_closed=False),
        "module": named("n", _ruby_bases, is_closed=False),
        "method": _ruby_method,
        "singleton_method": _ruby_method,
        "assignment": _ruby_assignment,
        "call": _ruby_attributes,
    },
    imports={"call": _ruby_require},
    names=frozenset({"constant"}),
    wrappers={"call": _ruby_called},
    switches={"identifier": _ruby_hides},
)

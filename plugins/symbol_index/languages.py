"""The languages: which nodes of their grammars are symbols, imports and names."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import (
    VALUE,
    Define,
    GrammarRules,
    Import,
    NodePlace,
    SourceText,
    Symbol,
    first_named,
    heirs,
    imported_path,
    is_constant,
    last_name,
    leading_name,
    named,
    parameters,
    returned,
    signature,
    written_out,
)

_C_MOST_NESTED = 8
_c_heirs = heirs("base_class_clause")
_C_POINTER_TO_FUNCTION = re.compile(r"\(\s*+\*\s*+(\w++)")


def _c_name(text: str) -> str:
    found = _C_POINTER_TO_FUNCTION.search(text)
    return found[1] if found else last_name(text)


def _c_declared(node: Node | None, source: SourceText) -> tuple[str, str, Node | None]:
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


def _c_function(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    """A function, if the node declares one. Destructors are left out, because they say nothing."""
    name, stars, function = _c_declared(node.child_by_field_name("declarator"), source)
    if function is None:
        return
    taken = parameters(function.child_by_field_name("parameters"), source, _c_name, frozenset({"void"}))
    kind = source.field(node, "type").replace("auto", "")
    given = returned(kind + stars if kind else "")
    is_member = place.container not in ("", "n")
    if source.text(node, 7).startswith("static") and not is_member:
        yield Symbol("f", name, is_closed=True, is_public=False)
    else:
        shown = "" if name.startswith("~") else name
        yield Symbol("m" if is_member else "f", shown, taken + given, is_closed=True)


def _c_declaration(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
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
    def define(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
        if node.child_by_field_name("body") is not None and (place.container != "t" or mark == "c"):
            yield Symbol(mark, source.field(node, "name"), _c_heirs(node, source))

    return define


def _c_typedef(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    name, _, _ = _c_declared(node.child_by_field_name("declarator"), source)
    yield Symbol("t", name)


def _c_macro(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    """A macro. A macro without a value is left out: it only says that a header was read."""
    name = source.field(node, "name")
    if node.type == "preproc_function_def":
        yield Symbol("f", name, source.field(node, "parameters", 60).replace(" ", ""), is_closed=True)
    elif node.child_by_field_name("value") is not None:
        yield Symbol(VALUE, name)


def _c_hides(node: Node, source: SourceText, place: NodePlace) -> bool | None:
    """Whether the members that follow in a class are private. The first members of a class are private."""
    if place.container not in ("c", "t"):
        return None
    is_start = node.type == "field_declaration_list"
    return place.container == "c" if is_start else source.text(node).startswith("private")


C = GrammarRules(
    definitions={
        "function_definition": _c_function,
        **dict.fromkeys(("declaration", "field_declaration"), _c_declaration),
        "class_specifier": _c_type("c"),
        **dict.fromkeys(("struct_specifier", "union_specifier"), _c_type("t")),
        "enum_specifier": _c_type("e"),
        "enumerator": named(VALUE, is_closed=False),
        "type_definition": _c_typedef,
        "alias_declaration": named("t"),
        "namespace_definition": named("n", is_closed=False),
        **dict.fromkeys(("preproc_def", "preproc_function_def"), _c_macro),
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


def _go_type(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    kind = node.child_by_field_name("type")
    mark = _GO_MARKS.get(kind.type) if kind is not None else None
    yield Symbol(mark or "t", source.field(node, "name"), is_closed=mark is None)


def _go_function(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    name = source.field(node, "name")
    yield Symbol("f", name, _go_signature(node, source) if name[:1].isupper() else "", is_closed=True)


def _go_method(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    name = source.field(node, "name")
    receiver = source.field(node, "receiver").strip("()").rpartition(" ")[2].lstrip("*")
    shown = f"{receiver}.{name}" if name[:1].isupper() else ""
    yield Symbol("m", shown, _go_signature(node, source), is_closed=True, is_public=False)


def _go_values(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    """Constants and variables, and the fields of a struct."""
    is_field = node.type == "field_declaration"
    names = map(source.text, node.children_by_field_name("name")) if place.container == "t" or not is_field else ()
    yield from (Symbol(VALUE, name, is_closed=not is_field) for name in names if name[:1].isupper())


GO = GrammarRules(
    definitions={
        **dict.fromkeys(("type_spec", "type_alias"), _go_type),
        "method_elem": named("m", _go_signature),
        "function_declaration": _go_function,
        "method_declaration": _go_method,
        **dict.fromkeys(("const_spec", "var_spec", "field_declaration"), _go_values),
    },
    imports={"import_spec": imported_path},
    names=frozenset({"identifier", "type_identifier", "field_identifier"}),
)


_java_signature = signature(last_name, result="type")
_java_heirs = heirs("superclass", "super_interfaces", "extends_interfaces")


def _java_is_private(node: Node, _source: SourceText) -> bool:
    first = first_named(node)
    return first is not None and first.type == "modifiers" and any(child.type == "private" for child in first.children)


def _java_field(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    if not _java_is_private(node, source):
        for one in node.children_by_field_name("declarator"):
            yield Symbol(VALUE, source.field(one, "name"), is_closed=True)


def _java_import(node: Node, source: SourceText) -> Iterator[Import]:
    words = source.text(node, 300).removeprefix("import ").removeprefix("static ").rstrip("; ").replace(" ", "")
    name = words.rpartition(".")[2]
    yield Import(words, (name,) if name[:1].isupper() else ())


JAVA = GrammarRules(
    definitions={
        "class_declaration": named("c", _java_heirs, unless=_java_is_private, is_closed=False),
        **dict.fromkeys(
            ("interface_declaration", "annotation_type_declaration"),
            named("i", _java_heirs, unless=_java_is_private, is_closed=False),
        ),
        "enum_declaration": named("e", _java_heirs, unless=_java_is_private, is_closed=False),
        "record_declaration": named("t", _java_signature, is_closed=False),
        **dict.fromkeys(
            ("method_declaration", "constructor_declaration", "annotation_type_element_declaration"),
            named("m", _java_signature, unless=_java_is_private),
        ),
        **dict.fromkeys(("field_declaration", "constant_declaration"), _java_field),
        "enum_constant": named(VALUE),
    },
    imports={"import_declaration": _java_import},
    names=frozenset({"identifier", "type_identifier"}),
)


_rust_bounds = heirs("trait_bounds")


def _rust_implementation(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    """An implementation. The methods of a trait are shown with the trait, so an implementation of a trait is only one
    line."""
    trait = source.field(node, "trait")
    yield Symbol("c", source.field(node, "type"), f"({trait})" if trait else "", is_closed=bool(trait), is_public=False)


def _rust_module(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    name = source.field(node, "name")
    if name == "tests":
        yield Symbol("", "", is_closed=True)
    elif node.child_by_field_name("body") is not None:
        yield Symbol("n", name)


def _rust_is_private(node: Node, source: SourceText) -> bool:
    return not source.text(node, 4).startswith("pub")


def _rust_name(text: str) -> str:
    name = text.partition(":")[0].strip().removeprefix("mut ")
    return "()" if name.startswith("(") else "" if "self" in name else name


_rust_signature = signature(_rust_name)


def _rust_function(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    name, is_public = source.field(node, "name"), not _rust_is_private(node, source)
    shown = _rust_signature(node, source)
    if place.container in ("", "n"):
        yield Symbol("f", name, shown if is_public else "", is_closed=True, is_public=is_public)
    else:
        yield Symbol("m", name if is_public or place.container == "i" else "", shown, is_closed=True)


def _rust_use(node: Node, source: SourceText) -> Iterator[Import]:
    for path in written_out(source.field(node, "argument", 2_000), "::"):
        name = path.rpartition("::")[2]
        yield Import(path, (name,) if name[:1].isupper() else ())


def _rust_submodule(node: Node, source: SourceText) -> Iterator[Import]:
    if node.child_by_field_name("body") is None:
        yield Import(f"mod::{source.field(node, 'name')}")


RUST = GrammarRules(
    definitions={
        **dict.fromkeys(("struct_item", "union_item"), named("t", _rust_bounds, is_closed=False)),
        "enum_item": named("e", _rust_bounds, is_closed=False),
        "trait_item": named("i", _rust_bounds, is_closed=False),
        "type_item": named("t", _rust_bounds),
        "impl_item": _rust_implementation,
        "mod_item": _rust_module,
        **dict.fromkeys(("function_item", "function_signature_item"), _rust_function),
        "field_declaration": named(VALUE, unless=_rust_is_private),
        **dict.fromkeys(("enum_variant", "const_item", "static_item"), named(VALUE)),
        "macro_definition": named("f", lambda _node, _source: "!"),
    },
    imports={"use_declaration": _rust_use, "mod_item": _rust_submodule},
    names=frozenset({"identifier", "type_identifier"}),
)


_JS_FUNCTIONS = frozenset({"arrow_function", "function_expression", "function", "generator_function"})
_js_heirs = heirs("class_heritage", "extends_type_clause", "extends_clause")
_js_several = signature(leading_name, frozenset({"this"}))


def _js_signature(node: Node, source: SourceText) -> str:
    single = node.child_by_field_name("parameter")
    return f"({source.text(single)})" if single is not None else _js_several(node, source)


def _js_method(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    name = source.field(node, "name")
    words = source.text(node, 60)
    if place.container == "" or name.startswith(("#", "_")) or words.startswith("private "):
        yield Symbol("", "", is_closed=True)
    elif words.startswith(("get ", "static get ")):
        yield Symbol(VALUE, name, is_closed=True)
    else:
        yield Symbol("m", name, _js_signature(node, source), is_closed=True)


def _js_member(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    """A field of a class, or a property of an interface. A field that holds a function is a method."""
    name = source.field(node, "name") or source.field(node, "property")
    value = node.child_by_field_name("value")
    if place.container == "" or name.startswith(("#", "_")) or source.text(node, 60).startswith("private "):
        return
    if value is not None and value.type in _JS_FUNCTIONS:
        yield Symbol("m", name, _js_signature(value, source), is_closed=True)
    else:
        yield Symbol(VALUE, name)


def _js_variable(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or name.type != "identifier":
        return
    words = source.text(name)
    if value is not None and value.type in _JS_FUNCTIONS:
        yield Symbol("f", words, _js_signature(value, source), is_closed=True)
    elif is_constant(words) or place.wrapper:
        yield Symbol(VALUE, words, is_closed=True)


def _js_assigned(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    """``exports.name = function ...`` and ``Type.prototype.name = function ...``."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is not None and right is not None and left.type == "member_expression" and right.type in _JS_FUNCTIONS:
        name = source.text(left).removeprefix("module.").removeprefix("exports.").replace(".prototype.", ".")
        yield Symbol("f", name, _js_signature(right, source), is_closed=True)


def _js_enum_body(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    for child in node.named_children:
        if child.type in ("property_identifier", "enum_assignment"):
            yield Symbol(VALUE, source.field(child, "name") or source.text(child))


def _js_import(node: Node, source: SourceText) -> Iterator[Import]:
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


def _js_call(node: Node, source: SourceText) -> Iterator[Import]:
    """``require("x")`` and ``import("x")``."""
    called = node.child_by_field_name("function")
    if called is None or called.end_byte - called.start_byte > 7 or source.text(called) not in ("require", "import"):
        return
    first = first_named(node.child_by_field_name("arguments"))
    if first is not None and first.type == "string":
        yield Import(source.text(first).strip("'\"`"))


JAVASCRIPT = GrammarRules(
    definitions={
        **dict.fromkeys(
            ("class_declaration", "abstract_class_declaration", "class"),
            named("c", _js_heirs, otherwise="default", is_closed=False),
        ),
        "interface_declaration": named("i", _js_heirs, otherwise="default", is_closed=False),
        "enum_declaration": named("e", _js_heirs, otherwise="default", is_closed=False),
        "enum_body": _js_enum_body,
        "type_alias_declaration": named("t", _js_heirs, otherwise="default"),
        **dict.fromkeys(("internal_module", "module"), named("n", _js_heirs, otherwise="default", is_closed=False)),
        **dict.fromkeys(
            ("function_declaration", "generator_function_declaration", "function_signature"), named("f", _js_signature)
        ),
        **dict.fromkeys(("method_definition", "method_signature", "abstract_method_signature"), _js_method),
        **dict.fromkeys(("public_field_definition", "field_definition", "property_signature"), _js_member),
        "variable_declarator": _js_variable,
        "assignment_expression": _js_assigned,
    },
    imports={
        **dict.fromkeys(("import_statement", "export_statement"), _js_import),
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


def _php_is_private(node: Node, source: SourceText) -> bool:
    return any(
        child.type == "visibility_modifier" and source.text(child) == "private" for child in node.named_children[:6]
    )


def _php_properties(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    if not _php_is_private(node, source):
        for child in node.named_children:
            if child.type in ("property_element", "const_element"):
                yield Symbol(VALUE, source.text(first_named(child)).removeprefix("$"), is_closed=True)


def _php_define(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    """``define('NAME', value)``"""
    if source.field(node, "function", 8) == "define":
        found = _PHP_QUOTED.search(source.field(node, "arguments"))
        if found:
            yield Symbol(VALUE, found[1])


def _php_use(node: Node, source: SourceText) -> Iterator[Import]:
    words = source.text(node, 2_000).removeprefix("use ").rstrip("; ")
    for path in written_out(words.removeprefix("function ").removeprefix("const "), "\\"):
        yield Import(path.strip("\\"), (path.rpartition("\\")[2],))


def _php_include(node: Node, source: SourceText) -> Iterator[Import]:
    found = _PHP_QUOTED.search(source.text(node, 300))
    if found:
        yield Import(found[1])


PHP = GrammarRules(
    definitions={
        "class_declaration": named("c", _php_bases, is_closed=False),
        **dict.fromkeys(("interface_declaration", "trait_declaration"), named("i", _php_bases, is_closed=False)),
        "enum_declaration": named("e", _php_bases, is_closed=False),
        "enum_case": named(VALUE),
        "function_definition": named("f", _php_signature),
        "method_declaration": named("m", _php_signature, unless=_php_is_private),
        **dict.fromkeys(("property_declaration", "const_declaration"), _php_properties),
        "namespace_definition": named("n", is_closed=False, is_public=False),
        "function_call_expression": _php_define,
    },
    imports={
        "namespace_use_declaration": _php_use,
        **dict.fromkeys(
            ("require_expression", "require_once_expression", "include_expression", "include_once_expression"),
            _php_include,
        ),
    },
    names=frozenset({"name"}),
)


_python_signature = signature(leading_name, left_out=frozenset({"self", "cls", "*", "/"}))
_python_heirs = heirs("argument_list")
_PYTHON_SHOWN_DUNDERS = frozenset({"__init__", "__call__", "__enter__", "__aenter__", "__iter__", "__getitem__"})
_PYTHON_PROPERTIES = frozenset({"property", "cached_property", "functools.cached_property", "abstractproperty"})


def _python_class(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    name = source.field(node, "name")
    yield Symbol("c", name, _python_heirs(node, source), is_public=not name.startswith("_"))


def _python_function(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
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


def _python_decorators(node: Node, source: SourceText) -> str:
    texts = [source.text(child).removeprefix("@") for child in node.named_children if child.type == "decorator"]
    return next((text for text in texts if text in _PYTHON_PROPERTIES), "")


def _python_assignment(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    left = node.child_by_field_name("left")
    if left is None or left.type != "identifier":
        return
    name = source.text(left)
    is_field = place.container == "c" and node.child_by_field_name("type") is not None
    if not name.startswith("_") and (is_field or is_constant(name)):
        yield Symbol(VALUE, name)


def _python_import(node: Node, source: SourceText) -> Iterator[Import]:
    yield from (Import(_python_plain(name, source)) for name in node.children_by_field_name("name"))


def _python_import_from(node: Node, source: SourceText) -> Iterator[Import]:
    names = tuple(_python_plain(name, source) for name in node.children_by_field_name("name"))
    yield Import(source.field(node, "module_name").replace(" ", ""), names)


def _python_plain(node: Node, source: SourceText) -> str:
    """The name of ``name as other``."""
    return source.field(node, "name") if node.type == "aliased_import" else source.text(node)


PYTHON = GrammarRules(
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


_RUBY_ATTRIBUTES = frozenset({"attr_reader", "attr_accessor", "attr_writer"})
_RUBY_REQUIRES = frozenset({"require", "require_relative", "load"})


def _ruby_method(node: Node, source: SourceText, place: NodePlace) -> Iterator[Symbol]:
    taken = node.child_by_field_name("parameters")
    owner = source.field(node, "object")
    name = "" if place.wrapper == "private" else source.field(node, "name")
    shown = f"{owner}.{name}" if owner and name else name
    signature = parameters(taken, source, leading_name) if taken is not None else ""
    yield Symbol("m" if place.container else "f", shown, signature, is_closed=True)


def _ruby_assignment(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    left = node.child_by_field_name("left")
    if left is not None and left.type == "constant":
        yield Symbol(VALUE, source.text(left))


def _ruby_attributes(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
    arguments = node.child_by_field_name("arguments")
    if arguments is not None and source.field(node, "method") in _RUBY_ATTRIBUTES:
        for one in arguments.named_children:
            if one.type == "simple_symbol":
                yield Symbol(VALUE, source.text(one).removeprefix(":"))


def _ruby_called(node: Node, source: SourceText) -> str:
    return source.field(node, "method") or "call"


def _ruby_require(node: Node, source: SourceText) -> Iterator[Import]:
    method, arguments = source.field(node, "method"), node.child_by_field_name("arguments")
    first = first_named(arguments) if method in _RUBY_REQUIRES else None
    if first is not None and first.type == "string":
        target = source.text(first, 300).strip("'\"")
        yield Import(f"./{target}" if method == "require_relative" and not target.startswith(".") else target)


def _ruby_hides(node: Node, source: SourceText, place: NodePlace) -> bool | None:
    """Whether the methods that follow are private. A ``private`` that is alone applies to all methods behind it."""
    if place.wrapper or place.container not in ("c", "n") or node.end_byte - node.start_byte > 9:
        return None
    return {"private": True, "protected": True, "public": False}.get(source.text(node))


RUBY = GrammarRules(
    definitions={
        "class": named("c", heirs("superclass"), is_closed=False),
        "module": named("n", is_closed=False),
        **dict.fromkeys(("method", "singleton_method"), _ruby_method),
        "assignment": _ruby_assignment,
        "call": _ruby_attributes,
    },
    imports={"call": _ruby_require},
    names=frozenset({"constant"}),
    wrappers={"call": _ruby_called},
    switches={"identifier": _ruby_hides},
)

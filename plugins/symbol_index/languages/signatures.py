"""Rules that several languages share: how a definition, its parameters and its result are shown.

Types and defaults of parameters are left out, because a block is a map and not the source.
"""

import re
from collections.abc import Callable, Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import Define, Import, Place, Source, Symbol

_MOST_PARAMETERS = 12
_MOST_TYPE_CHARS = 24
_LEADING_NAME = re.compile(r"(?:(?:public|private|protected|readonly|override)\s++)*+((?:\.\.\.|\*{1,2}|&)?+[\w$]++)")
_LAST_NAME = re.compile(r"(?<![\w$])(\$?+[^\W\d]\w*+)(?=[\s\[\])(]*+(?:=|\Z))")

_NO_BASE = re.compile(r"\A(?:extends |implements |[:<]\s*+)|\b(?:public|private|protected|virtual) ")

Detail = Callable[[Node, Source], str]
"""Makes the text that follows the name of a definition."""


def parameters(
    node: Node | None, source: Source, name_of: Callable[[str], str], left_out: frozenset[str] = frozenset()
) -> str:
    """The parameters' names in brackets, an optional one with a question mark. Those in ``left_out`` are not shown."""
    if node is None:
        return "()"
    names = []
    for child in node.named_children:
        if "comment" in child.type:
            continue
        name = name_of(source.text(child))
        if name and name.rstrip("?") not in left_out:
            names.append(name)
        if len(names) > _MOST_PARAMETERS:
            names[-1] = "…"
            break
    return f"({','.join(names)})"


def signature(
    name_of: Callable[[str], str], left_out: frozenset[str] = frozenset(), result: str = "return_type"
) -> Detail:
    """The rule that shows the parameters of a function, and its result, which is in the field ``result``."""

    def detail(node: Node, source: Source) -> str:
        taken = parameters(node.child_by_field_name("parameters"), source, name_of, left_out)
        return taken + returned(source.field(node, result))

    return detail


def named(
    mark: str,
    detail: Detail | None = None,
    field: str = "name",
    *,
    otherwise: str = "",
    unless: Callable[[Node, Source], bool] | None = None,
    is_closed: bool = True,
    is_public: bool = True,
) -> Define:
    """The rule for a definition that is shown by its name, or by ``otherwise`` if it has no name, and by its ``detail``
    if it has one. It is not shown if ``unless``."""

    def define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
        name = "" if unless is not None and unless(node, source) else source.field(node, field) or otherwise
        yield Symbol(mark, name, detail(node, source) if detail is not None else "", is_closed, is_public)

    return define


def imported_path(node: Node, source: Source) -> Iterator[Import]:
    """The import of a path in quotes."""
    yield Import(source.field(node, "path", 300).strip('"`'))


def leading_name(text: str) -> str:
    """The name of ``name: type = default``."""
    found = _LEADING_NAME.match(text)
    if found is None:
        return "{}" if text.startswith("{") else "[]" if text.startswith("[") else ""
    is_optional = "=" in text or text.startswith("?", found.end())
    return found[1] + "?" * is_optional


def last_name(text: str) -> str:
    """The name of ``type name``, or the text itself if it is one word."""
    found = _LAST_NAME.search(text)
    return found[1] + "?" * ("=" in text) if found else text


def returned(text: str) -> str:
    """The result type of a function, as it is shown behind its parameters. Nothing is shown if it is long or says
    little."""
    text = text.removeprefix(":").removeprefix("->").strip()
    return f">{text}" if text and text not in ("None", "void", "()") and len(text) <= _MOST_TYPE_CHARS else ""


def heirs(*kinds: str) -> Detail:
    """The rule that shows the bases of a type in brackets: the children of these kinds."""

    def detail(node: Node, source: Source) -> str:
        found = [source.text(child) for child in node.named_children if child.type in kinds]
        found = [one[1:].removesuffix(")") if one.startswith("(") else _NO_BASE.sub("", one) for one in found]
        text = ", ".join(one.replace(" implements ", ", ") for one in found if one)
        return f"({text})" if text else ""

    return detail


def is_constant(name: str) -> bool:
    """Whether a name is written like a constant."""
    return len(name) > 1 and name.isupper()


def first_named(node: Node | None) -> Node | None:
    """The first named child of a node; None if there is none."""
    return node.named_child(0) if node is not None and node.named_child_count else None


_MOST_PATHS = 64


def written_out(text: str, separator: str) -> Iterator[str]:
    """The paths of a list in braces, without their other names (``a as b``). At most 64 of them are given."""
    prefixes, word, given = [""], "", 0
    for char in text + ",":
        if char == "{":
            prefixes.append((prefixes[-1] + word.strip())[:300])
            word = ""
        elif char in ",}":
            name = word.partition(" as ")[0].strip()
            if name and given < _MOST_PATHS:
                given += 1
                path = prefixes[-1] + name
                yield path.removesuffix(f"{separator}self").removesuffix(f"{separator}*")
            word = ""
            if char == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            word += char

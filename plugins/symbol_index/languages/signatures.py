"""The names of parameters, in brackets: types and defaults are left out, as the block is a map and not the source."""

import re
from collections.abc import Callable, Iterator

from tree_sitter import Node

from plugins.symbol_index.extract import Define, Place, Source, Symbol

_MOST_PARAMETERS = 12
_MOST_TYPE_CHARS = 24
_LEADING_NAME = re.compile(r"(?:(?:public|private|protected|readonly|override)\s++)*+((?:\.\.\.|\*{1,2}|&)?+[\w$]++)")
_LAST_NAME = re.compile(r"(?<![\w$])(\$?+[^\W\d]\w*+)(?=[\s\[\])(]*+(?:=|\Z))")


def parameters(node: Node | None, source: Source, name_of: Callable[[str], str], left_out: frozenset[str]) -> str:
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


def named(mark: str, field: str = "name", *, is_closed: bool = True) -> Define:
    """The rule for a definition that is shown by its name, and by nothing else."""

    def define(node: Node, source: Source, _place: Place) -> Iterator[Symbol]:
        yield Symbol(mark, source.field(node, field), is_closed=is_closed)

    return define


def leading_name(text: str) -> str:
    """The name of ``name: type = default``."""
    found = _LEADING_NAME.match(text)
    if found is None:
        return "{}" if text.startswith("{") else "[]" if text.startswith("[") else ""
    is_optional = "=" in text or text.startswith("?", found.end())
    return found[1] + "?" * is_optional


def last_name(text: str) -> str:
    """The name of ``type name``, or the text itself where it is one word."""
    found = _LAST_NAME.search(text)
    return found[1] + "?" * ("=" in text) if found else text


def returned(text: str) -> str:
    """What a function returns, as it is shown behind its parameters; nothing where it is long or says little."""
    text = text.removeprefix(":").removeprefix("->").strip()
    return f">{text}" if text and text not in ("None", "void", "()") and len(text) <= _MOST_TYPE_CHARS else ""


def bases(text: str) -> str:
    """The bases of a class, in brackets."""
    return f"({text})" if text else ""


def is_constant(name: str) -> bool:
    """Whether a name is written as constants are."""
    return len(name) > 1 and name.isupper()


def first_named(node: Node | None) -> Node | None:
    """The first named child of a node; None without one."""
    return node.named_child(0) if node is not None and node.named_child_count else None

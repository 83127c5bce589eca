"""Reads one text alone: its block without the path, its definitions, its imports and the names it uses.

First come the values: what is found in a text, and the rules by which the nodes of a grammar are read. Then come the
rules that several languages share: how a definition, its parameters and its result are shown. Types and defaults of
parameters are left out, because a block is a map and not the source. At the end, the tree of a text is walked once, by
the rules of its grammar.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from tree_sitter import Node, Tree

from proxy.kit.value import dataclass, field, replace

_MOST_LINES = 400
_MOST_LINE_CHARS = 160
_MOST_NAMES = 4_000
_MOST_IMPORTS = 500
_MOST_LEVEL = 4
_FEWEST_NAME_CHARS = 3
_MOST_NAME_BYTES = 80
_BLANKS = re.compile(r"\s+")
IMPORTS, VALUE = "<", "v"
"""The marks of the line of imports, and of the line that constants and fields share."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a text: the ``target`` as it is written, and the names that are taken from there."""

    target: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extract:
    """The symbols of one text. ``body`` is the block without its first line, the path; it is empty if there is
    nothing to say. ``definitions`` are the names that other files may use; ``uses`` are the names that the text does
    not define itself."""

    body: str = ""
    definitions: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()
    uses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition. ``mark`` is its kind's letter; ``detail`` follows the name without a space. If it ``is_closed``,
    its content is not shown."""

    mark: str
    name: str
    detail: str = ""
    is_closed: bool = False
    is_public: bool = True


@dataclass(frozen=True, slots=True)
class SourceText:
    """The bytes of a text, and the words of its nodes."""

    data: bytes

    def text(self, node: Node | None, most_bytes: int = _MOST_NAME_BYTES) -> str:
        """A node's text with blanks joined, cut off behind ``most_bytes``; empty without a node."""
        if node is None:
            return ""
        begin, end = node.start_byte, node.end_byte
        words = self.data[begin : min(end, begin + most_bytes)].decode("utf-8", "replace")
        words = _BLANKS.sub(" ", words).strip()
        return words + "…" if end - begin > most_bytes else words

    def field(self, node: Node, name: str, most_bytes: int = _MOST_NAME_BYTES) -> str:
        """The text of one field of a node; empty if the node does not have the field."""
        return self.text(node.child_by_field_name(name), most_bytes)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The place of a node. ``container`` is the mark of the symbol around it, empty at the top. ``is_hidden``: it is
    inside of a closed symbol. ``wrapper`` is the information from a node around it, a decorator or an export."""

    container: str = ""
    level: int = 0
    is_hidden: bool = False
    wrapper: str = ""


# The place inside of a definition that is not shown.
_INSIDE = NodePlace("-", is_hidden=True)

Define = Callable[[Node, SourceText, NodePlace], Iterator[Symbol]]
Ask = Callable[[Node, SourceText], Iterator[Import]]


@dataclass(frozen=True, slots=True)
class GrammarRules:
    """How a grammar's nodes are read: the nodes that define, the nodes that import, and the nodes that are used names.
    ``wrappers`` are nodes with information about the definition inside them. A node's parent is never asked for,
    because that would take time for each sibling. ``switches`` are nodes that say whether the nodes behind them in the
    same place are hidden, or None if they say nothing about it."""

    definitions: Mapping[str, Define]
    imports: Mapping[str, Ask]
    names: frozenset[str]
    wrappers: Mapping[str, Callable[[Node, SourceText], str]] = field(default_factory=dict)
    switches: Mapping[str, Callable[[Node, SourceText, NodePlace], bool | None]] = field(default_factory=dict)


_MOST_PARAMETERS = 12
_MOST_TYPE_CHARS = 24
_LEADING_NAME = re.compile(r"(?:(?:public|private|protected|readonly|override)\s++)*+((?:\.\.\.|\*{1,2}|&)?+[\w$]++)")
_LAST_NAME = re.compile(r"(?<![\w$])(\$?+[^\W\d]\w*+)(?=[\s\[\])(]*+(?:=|\Z))")

_NO_BASE = re.compile(r"\A(?:extends |implements |[:<]\s*+)|\b(?:public|private|protected|virtual) ")

Detail = Callable[[Node, SourceText], str]
"""Makes the text that follows the name of a definition."""


def parameters(
    node: Node | None, source: SourceText, name_of: Callable[[str], str], left_out: frozenset[str] = frozenset()
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

    def detail(node: Node, source: SourceText) -> str:
        taken = parameters(node.child_by_field_name("parameters"), source, name_of, left_out)
        return taken + returned(source.field(node, result))

    return detail


def named(
    mark: str,
    detail: Detail | None = None,
    field: str = "name",
    *,
    otherwise: str = "",
    unless: Callable[[Node, SourceText], bool] | None = None,
    is_closed: bool = True,
    is_public: bool = True,
) -> Define:
    """The rule for a definition that is shown by its name, or by ``otherwise`` if it has no name, and by its ``detail``
    if it has one. It is not shown if ``unless``."""

    def define(node: Node, source: SourceText, _place: NodePlace) -> Iterator[Symbol]:
        name = "" if unless is not None and unless(node, source) else source.field(node, field) or otherwise
        yield Symbol(mark, name, detail(node, source) if detail is not None else "", is_closed, is_public)

    return define


def imported_path(node: Node, source: SourceText) -> Iterator[Import]:
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

    def detail(node: Node, source: SourceText) -> str:
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


def extract(tree: Tree, data: bytes, rules: GrammarRules) -> Extract:
    """Walks the tree once, without recursion."""
    return _Walk(SourceText(data), rules).run(tree)


class _Walk:
    def __init__(self, source: SourceText, rules: GrammarRules) -> None:
        self._source = source
        self._rules = rules
        self._lines: list[tuple[int, str, str]] = []
        self._left_out = 0
        self._defined: dict[str, None] = {}
        self._own: set[str] = set()
        self._used: dict[str, None] = {}
        self._imports: dict[Import, None] = {}

    def run(self, tree: Tree) -> Extract:
        cursor = tree.walk()
        # The places of the open nodes that opened one, each with the depth of its node.
        places: list[tuple[int, NodePlace]] = [(-1, NodePlace())]
        depth, switches = 0, self._rules.switches
        while True:
            node = cursor.node
            assert node is not None
            if (
                node.type in switches
                and (is_hidden := switches[node.type](node, self._source, places[-1][1])) is not None
            ):
                places[-1] = (places[-1][0], replace(places[-1][1], is_hidden=is_hidden))
            inner = self._visit(node, places[-1][1])
            if inner is not None:
                places.append((depth, inner))
            if cursor.goto_first_child():
                depth += 1
                continue
            while True:
                if places[-1][0] == depth:
                    places.pop()
                if cursor.goto_next_sibling():
                    break
                if not cursor.goto_parent():
                    return self._result()
                depth -= 1

    def _visit(self, node: Node, place: NodePlace) -> NodePlace | None:
        """Takes the node's information. Returns the place of the node's content, if that is a different place."""
        kind, rules = node.type, self._rules
        if kind in rules.names:
            if len(self._used) < _MOST_NAMES and node.end_byte - node.start_byte >= _FEWEST_NAME_CHARS:
                self._used[self._source.text(node)] = None
            return None
        define = rules.definitions.get(kind)
        if define is not None and (inner := self._define(define, node, place)) is not None:
            return inner
        if (ask := rules.imports.get(kind)) is not None:
            for one in ask(node, self._source):
                if one.target and len(self._imports) < _MOST_IMPORTS:
                    self._imports[one] = None
        wrap = rules.wrappers.get(kind)
        return replace(place, wrapper=wrap(node, self._source)) if wrap is not None else None

    def _define(self, define: Define, node: Node, place: NodePlace) -> NodePlace | None:
        if not node.is_named:
            return None
        if place.is_hidden:
            return _INSIDE
        inner = None
        for symbol in define(node, self._source, place):
            if symbol.mark and symbol.name:
                self._show(symbol, place)
            if symbol.mark != VALUE or symbol.is_closed:
                is_closed = symbol.is_closed or not symbol.name
                inner = NodePlace(symbol.mark, min(place.level + 1, _MOST_LEVEL), is_closed)
        return inner

    def _show(self, symbol: Symbol, place: NodePlace) -> None:
        if symbol.is_public and symbol.name and place.container in ("", "n"):
            self._defined[symbol.name] = None
        self._own.add(symbol.name)
        text = (symbol.name + symbol.detail)[:_MOST_LINE_CHARS]
        if symbol.mark == VALUE and self._lines:
            level, mark, before = self._lines[-1]
            if (level, mark) == (place.level, VALUE) and len(before) + len(text) < _MOST_LINE_CHARS:
                self._lines[-1] = (level, mark, f"{before} {text}")
                return
        if self._lines and self._lines[-1] == (place.level, symbol.mark, text):
            return
        if len(self._lines) < _MOST_LINES:
            self._lines.append((place.level, symbol.mark, text))
        else:
            self._left_out += 1

    def _result(self) -> Extract:
        lines = [f"{' ' * level}{mark} {text}" for level, mark, text in self._lines]
        if self._left_out:
            lines.append(f"… {self._left_out} more")
        targets = " ".join(dict.fromkeys(one.target for one in self._imports))
        if len(targets) > _MOST_LINE_CHARS:
            targets = targets[:_MOST_LINE_CHARS].rpartition(" ")[0] + " …"
        if targets:
            lines.insert(0, f"{IMPORTS} {targets}")
        return Extract(
            "\n".join(lines),
            tuple(self._defined),
            tuple(self._imports),
            tuple(name for name in self._used if name not in self._own),
        )

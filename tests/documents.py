"""The pages of the repository: their headings, links, sentences, and the blocks that a reader copies."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
_FOLDERS = ("", "grafana", "deploy", "plugins", "prompts", "proxy", "tests")
_MARKDOWN = MarkdownIt("commonmark").enable("table")
# A full stop ends a sentence before a blank and a capital; one within a name (`a.py`, "e.g. this") does not.
_END = re.compile(r"(?<=[.!?])[)\"”]*\s+(?=[A-Z`(\"“0-9])")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the words behind it in the info string, and the line on which it begins."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page, whose path is from the root of the repository."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def text(self) -> str:
        return (ROOT / self.path).read_text("utf-8")

    def blocks(self) -> list[Block]:
        """The fenced blocks, in order."""
        found = []
        for token in self._tokens():
            if token.type == "fence":
                language, *marks = token.info.split() or [""]
                found.append(Block(language, tuple(marks), token.content, (token.map or [0])[0] + 1))
        return found

    def anchors(self) -> set[str]:
        """The anchors of the headings: the texts behind ``#`` in a link, as GitHub makes them."""
        return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in self.headings()}

    def row(self, name: str) -> list[str]:
        """The cells of the table row that begins with this name, without the name and without emphasis."""
        rows, tokens = list[list[str]](), self._tokens()
        for at, token in enumerate(tokens):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                rows[-1].append(tokens[at + 1].content.strip("*"))
        (found,) = [cells for first, *cells in rows if first == name]
        return found

    def headings(self) -> list[str]:
        """The texts of the headings, in order."""
        tokens = self._tokens()
        return [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]

    def bare_headings(self) -> list[str]:
        """Headings with nothing below them."""
        tokens = self._tokens()
        ends = [at for at, token in enumerate(tokens) if token.type == "heading_close"]
        return [
            tokens[at - 1].content
            for at in ends
            if at + 1 == len(tokens) or (tokens[at + 1].type == "heading_open" and tokens[at + 1].tag <= tokens[at].tag)
        ]

    def links(self) -> list[str]:
        """The targets of its links and pictures."""
        inline = (child for token in self._tokens() for child in token.children or ())
        return [str(child.attrGet("href") or child.attrGet("src")) for child in inline if child.type in _LINKS]

    def sentences(self) -> Iterator[str]:
        """Its sentences, including those of lists and tables. A text in backticks is one word."""
        for token in self._tokens():
            if token.type == "inline":
                yield from (one for one in _END.split(_plain(token)) if one.strip())

    def _tokens(self) -> list[Token]:
        return _parsed(self.text)


_LINKS = ("link_open", "image")


@cache
def _parsed(text: str) -> list[Token]:
    return _MARKDOWN.parse(text)


def _plain(token: Token) -> str:
    """The words of a paragraph, a heading, an item or a cell."""
    said = {"softbreak": " ", "hardbreak": " ", "code_inline": "`code`"}
    return "".join(
        said.get(child.type, child.content if child.type == "text" else "") for child in token.children or ()
    )


def pages() -> list[Page]:
    """All pages for readers. The files of ``prompts``, which are sent to models, do not count."""
    found = []
    for folder in _FOLDERS:
        paths = (ROOT / folder).rglob("*.md") if folder else ROOT.glob("*.md")
        for path in paths:
            is_prompt = path.is_relative_to(ROOT / "prompts") and path.name != "README.md"
            if "node_modules" not in path.parts and not is_prompt:
                found.append(Page(path.relative_to(ROOT)))
    return sorted(found, key=str)

"""The symbol indexer. It keeps results for texts by their digests, and for whole repositories by their paths.

Every kept value is a pure function of texts and paths. So the answer is always that of an index from scratch, whatever
was asked before, in any order and by any thread. The kept values only make it quicker.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from plugins.symbol_index.extract import Extract, extract
from plugins.symbol_index.languages import RULES
from plugins.symbol_index.modules import FAMILIES
from plugins.symbol_index.parsing import MOST_BYTES, Budget, Parsers, grammar_of
from plugins.symbol_index.references import Entry, References
from proxy.core.lru import Bounded
from proxy.core.structured.context import ContextFile
from proxy.core.structured.symbols import SymbolMap, shorten
from proxy.core.value import dataclass


@cache
def _notation() -> str:
    """The text of ``prompts/symbol_legend.md`` without its front matter."""
    return files("prompts").joinpath("symbol_legend.md").read_text("utf-8").split("---\n", 2)[2].strip()


def legend(aliases: Mapping[str, str]) -> str:
    """The notation, and one line for each alias in the order in which they were given: a new alias is appended."""
    if not aliases:
        return _notation()
    lines = [f"{alias}={directory}" for directory, alias in aliases.items()]
    return "\n".join([_notation(), "", "Directories (write paths in full when you name files):", *lines])


MOST_TEXT_BYTES = 96 << 20
"""The most memory for the results of texts. A repository of 2,000 files takes about a tenth of it."""
MOST_REPOSITORY_BYTES = 32 << 20
"""The most memory for answers about whole repositories. A request in which nothing has changed costs a comparison."""
MOST_CALL_CHARS = 32 << 20
"""The most text of one request that is read. Files behind it have no symbols."""

Found = Extract | None
"""Symbols of a text. None: it is not a text, its language is not known, it is too long, or the parser gave up."""


@dataclass(frozen=True, slots=True)
class _Repository:
    """The last answer for a list of paths, and the inputs from which it was made. The digest of a file without a text
    is empty. ``weight`` is about how many bytes the answer holds."""

    digests: tuple[str, ...]
    aliases: Mapping[str, str]
    answer: SymbolMap
    weight: int


class TreeSitterIndexer:
    """Makes symbol maps with tree-sitter. It may be called in several threads at once."""

    name = "tree-sitter"
    priority = 100

    def __init__(self, text_bytes: int = MOST_TEXT_BYTES, repository_bytes: int = MOST_REPOSITORY_BYTES) -> None:
        self._lock = threading.Lock()
        self._parsers = Parsers()
        self._texts: Bounded[tuple[str, str], Found] = Bounded(text_bytes, _text_bytes)
        self._repositories: Bounded[tuple[str, ...], _Repository] = Bounded(
            repository_bytes, lambda repository: repository.weight
        )

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """See ``proxy.core.structured.symbols.SymbolIndexer``."""
        paths = tuple(file.path for file in files)
        digests = tuple(file.digest if file.text is not None else "" for file in files)
        with self._lock:
            before = self._repositories.get(paths)
        if before is not None and before.digests == digests and before.aliases == aliases:
            return before.answer
        budget = Budget()
        entries = list(self._entries(files, budget))
        blocks = {one.path: f"{shorten(one.path, aliases)}\n{one.extract.body}" for one in entries if one.extract.body}
        answer = SymbolMap(blocks, legend(aliases), References(entries))
        if not budget.is_spent:  # if it is spent, the missing files are read for the next request
            repository = _Repository(digests, dict(aliases), answer, _weight(blocks, entries, paths))
            with self._lock:
                self._repositories.put(paths, repository)
        return answer

    def _entries(self, files: Sequence[ContextFile], budget: Budget) -> Iterator[Entry]:
        """The files that can be read, as long as the ``budget`` lasts."""
        left = MOST_CALL_CHARS
        for file in files:
            text = file.text or ""
            left -= len(text)
            grammar = grammar_of(file.path, text) if file.text is not None and left >= 0 else None
            found = self._found(grammar, file.digest, text, budget) if grammar is not None else None
            if grammar is not None and found is not None:
                yield Entry(file.path, FAMILIES[grammar], found)

    def _found(self, grammar: str, digest: str, text: str, budget: Budget) -> Found:
        key = (grammar, digest)
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        budget.grow(len(text))
        found = None if budget.is_spent else self._read(grammar, text, budget)
        if found is not None or not budget.is_spent:
            with self._lock:
                self._texts.put(key, found)
        return found

    def _read(self, grammar: str, text: str, budget: Budget) -> Found:
        data = text.encode("utf-8", "replace") if len(text) <= MOST_BYTES else None
        if data is None or len(data) > MOST_BYTES:
            return None
        tree = self._parsers.parse(grammar, data, budget)
        return extract(tree, data, RULES[grammar]) if tree is not None else None


def _text_bytes(one: Found) -> int:
    if one is None:
        return 400
    names = sum(len(name) + 57 for name in (*one.definitions, *one.uses))
    imports = sum(len(one.target) + 160 + sum(len(name) + 57 for name in one.names) for one in one.imports)
    return 1_000 + len(one.body) + names + imports


def _weight(blocks: Mapping[str, str], entries: Sequence[Entry], paths: tuple[str, ...]) -> int:
    """About how much memory an answer takes with its references: about ten edges a file, and the tables by which they
    are found."""
    texts = sum(sys.getsizeof(block) + 2 * len(path) + 400 for path, block in blocks.items())
    ends = sum(one.path.count("/") * (len(one.path) + 400) + 3_150 for one in entries)
    names = sum(250 * len(one.extract.definitions) for one in entries)
    return 1_000 + texts + ends + names + 200 * len(paths)

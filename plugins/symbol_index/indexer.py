"""The symbol indexer: what it has learnt of texts by their digests, and of whole repositories by their paths.

Every value that is kept is a pure function of texts and paths. So whatever was asked before, in whatever order and by
whatever thread, the answer is that of an index from scratch; what is kept only makes it quicker.
"""

import sys
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from plugins.symbol_index.extract import Extract, extract
from plugins.symbol_index.grammars import grammar_of
from plugins.symbol_index.languages import RULES
from plugins.symbol_index.legend import legend
from plugins.symbol_index.modules import FAMILIES
from plugins.symbol_index.parsing import MOST_BYTES, Budget, Parsers
from plugins.symbol_index.references import Entry, References, mentions, references
from proxy.core.lru import Bounded
from proxy.core.structured.context import ContextFile
from proxy.core.structured.symbols import SymbolMap, shorten

MOST_TEXT_BYTES = 96 << 20
"""The most memory for what was learnt of texts. A repository of 2,000 files takes about a tenth of it."""
MOST_REPOSITORY_BYTES = 32 << 20
"""The most memory for answers about whole repositories. A request in which nothing has changed costs a comparison."""
MOST_CALL_CHARS = 32 << 20
"""The most text of one request that is read. Files behind it have no symbols."""

Found = Extract | None
"""What a text says. None: it is no text, it is in no language that is known, it is too long, or the parser gave up."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Repository:
    """The last answer for a list of paths, and what it was made of. The digest of a file without a text is empty.
    ``weight`` is about how many bytes the answer and the tables hold."""

    digests: tuple[str, ...]
    aliases: Mapping[str, str]
    entries: Mapping[str, Entry]
    tables: References
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

    @property
    def kept_bytes(self) -> int:
        """About how much memory is held by what is kept."""
        return self._texts.bytes + self._repositories.bytes

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """See ``proxy.core.structured.symbols.SymbolIndexer``."""
        paths = tuple(file.path for file in files)
        digests = tuple(file.digest if file.text is not None else "" for file in files)
        budget = Budget()
        with self._lock:
            before = self._repositories.get(paths)
        if before is not None and before.digests == digests and before.aliases == aliases:
            return before.answer
        if before is not None and before.aliases == aliases and sum(map(_chars, files)) <= MOST_CALL_CHARS:
            pairs = zip(files, before.digests, digests, strict=True)
            found = dict(self._found_all([file for file, old, new in pairs if old != new], budget))
        else:
            before, found = None, dict(self._found_all(files, budget))
        repository = _repository(found, paths, digests, dict(aliases), before)
        if not budget.is_spent:  # what is missing is read for the next request
            with self._lock:
                self._repositories.put(paths, repository)
        return repository.answer

    def _found_all(self, files: Sequence[ContextFile], budget: Budget) -> Iterator[tuple[str, tuple[str, Found]]]:
        left = MOST_CALL_CHARS
        for file in files:
            left -= _chars(file)
            yield file.path, self._found(file, budget) if left >= 0 else ("", None)

    def _found(self, file: ContextFile, budget: Budget) -> tuple[str, Found]:
        """The file's grammar, and what its text says; nothing where the ``budget`` is spent."""
        if file.text is None:
            return "", None
        grammar = grammar_of(file.path, file.text)
        if grammar is None:
            return "", None
        key = (grammar, file.digest)
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return grammar, self._texts[key]
        budget.grow(len(file.text))
        found = None if budget.is_spent else self._read(grammar, file.text, budget)
        if found is not None or not budget.is_spent:
            with self._lock:
                self._texts.put(key, found)
        return grammar, found

    def _read(self, grammar: str, text: str, budget: Budget) -> Found:
        data = text.encode("utf-8", "replace") if len(text) <= MOST_BYTES else None
        if data is None or len(data) > MOST_BYTES:
            return None
        tree = self._parsers.parse(grammar, data, budget)
        return extract(tree, data, RULES[grammar]) if tree is not None else None


def _chars(file: ContextFile) -> int:
    return len(file.text or "")


def _repository(
    found: Mapping[str, tuple[str, Found]],
    paths: tuple[str, ...],
    digests: tuple[str, ...],
    aliases: dict[str, str],
    before: _Repository | None,
) -> _Repository:
    """The answer for all paths. ``found`` says what is in the texts that have changed since ``before``, or in all texts
    where there is nothing before."""
    entries, blocks = _said(found, aliases)
    if before is None:
        tables = references(list(entries.values()))
        edges = {path: tables.of(entry) for path, entry in entries.items()}
        answer = SymbolMap(blocks, legend(aliases), _some(edges))
        return _Repository(digests, aliases, entries, tables, answer, _weight(answer, entries, paths))
    merged = _merged(paths, found, before.entries, entries)
    if merged.keys() == before.entries.keys() and all(
        before.entries[path].family is entry.family for path, entry in entries.items()
    ):
        tables, names = before.tables.redefined((before.entries[path], entry) for path, entry in entries.items())
        again = [entry for path, entry in merged.items() if path in entries or (names and mentions(entry, names))]
    else:
        tables, again = references(list(merged.values())), list(merged.values())
    edges = {**before.answer.references, **{entry.path: tables.of(entry) for entry in again}}
    answer = SymbolMap(
        _merged(paths, found, before.answer.blocks, blocks),
        before.answer.legend,
        _some({path: edges[path] for path in merged if path in edges}),
    )
    weight = (
        _weight(answer, merged, paths) if len(again) > len(entries) else before.weight + _growth(before, answer, found)
    )
    return _Repository(digests, aliases, merged, tables, answer, weight)


def _growth(before: _Repository, now: SymbolMap, changed: Iterable[str]) -> int:
    """How many bytes the blocks of these files have grown by."""
    return sum(len(now.blocks.get(path, "")) - len(before.answer.blocks.get(path, "")) for path in changed)


def _said(
    found: Mapping[str, tuple[str, Found]], aliases: Mapping[str, str]
) -> tuple[dict[str, Entry], dict[str, str]]:
    """The files that could be read, and the blocks of those that have symbols."""
    entries, blocks = {}, {}
    for path, (grammar, one) in found.items():
        if one is not None:
            entries[path] = Entry(path, FAMILIES[grammar], one)
            if one.body:
                blocks[path] = f"{shorten(path, aliases)}\n{one.body}"
    return entries, blocks


def _merged(paths: tuple[str, ...], found: Container[str], old: Mapping[str, T], new: Mapping[str, T]) -> dict[str, T]:
    """The old values, with the new ones of those that were found again, in the order of the paths."""
    known = {**old, **new}
    if old.keys() >= new.keys() and all(path in new for path in old if path in found):
        return known
    return {path: known[path] for path in paths if path in new or (path in old and path not in found)}


def _some(edges: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {path: some for path, some in edges.items() if some}


def _text_bytes(one: Found) -> int:
    if one is None:
        return 400
    names = sum(len(name) + 57 for name in (*one.definitions, *one.uses))
    imports = sum(len(one.target) + 160 + sum(len(name) + 57 for name in one.names) for one in one.imports)
    return 1_000 + len(one.body) + names + imports


def _weight(answer: SymbolMap, entries: Mapping[str, Entry], paths: tuple[str, ...]) -> int:
    blocks = sum(sys.getsizeof(block) + 2 * len(path) + 400 for path, block in answer.blocks.items())
    edges = sum(len(some) * 80 + 350 for some in answer.references.values())
    ends = sum(path.count("/") * (len(path) + 400) + 2_000 for path in entries)
    names = sum(250 * len(entry.extract.definitions) for entry in entries.values())
    return 1_000 + blocks + edges + ends + names + 200 * len(paths)

"""The indexer: what is kept never shows in an answer, and no text can break or stop it."""

import random
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.symbol_index.indexer import TreeSitterIndexer
from proxy.context import SymbolIndexer
from proxy.hookspecs import build_plugin_manager, symbol_indexer
from tests.growth import assert_linear
from tests.symbols import make_indexer, source, symbols

SUFFIXES = ("py", "js", "ts", "tsx", "go", "rs", "java", "c", "h", "cpp", "rb", "php")
PIECES = (
    "class A(B):\n    x: int\n    def m(self, a=1): return B\n",
    "from .b import B\nimport a.c\n",
    "def f(x): return LIMIT\n",
    "LIMIT = 3\n",
    "export class A extends B { m(x) { return LIMIT; } }\n",
    'import { B } from "./b";\n',
    'struct A { int x; };\n#include "b.h"\n',
    "use super::b::B; mod c; impl A { pub fn m(&self) {} }\n",
    "require_relative 'b'\nmodule M\n private\n def x; end\nend\n",
    "<?php namespace A; use B\\C; class A { private $x; function m() {} }\n",
    "package a; import b.c.D; public class A { int x; }\n",
    'package a\nimport "x.y/a/b"\ntype A struct { X int }\nfunc (a A) M() {}\n',
    "((((",
    "}}}",
    "'''",
    "\0\ud800é",
)
texts = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
repositories = st.dictionaries(
    st.builds("{}{}.{}".format, st.sampled_from(["", "a/", "a/b/"]), st.sampled_from("abc"), st.sampled_from(SUFFIXES)),
    texts,
    max_size=6,
)


@pytest.fixture
def indexer() -> SymbolIndexer:
    return make_indexer()


def test_the_plugin_registers_the_indexer() -> None:
    make_indexer()
    found = symbol_indexer(build_plugin_manager())
    assert found.name == "tree-sitter"


def test_a_block_begins_with_the_alias_of_its_path(indexer: SymbolIndexer) -> None:
    found = indexer.index([source("src/app/a.py", "def f(): pass")], {"src/app": "@1"})
    assert found.blocks == {"src/app/a.py": "@1/a.py\nf f()"}
    assert found.legend.endswith("\n@1=src/app")


def test_what_has_no_symbols_has_no_block() -> None:
    files = {"a.py": "x = 1", "b.txt": "text", "c.py": "x = 1\n" * 100_000, "Makefile": "all:", "d.js": '"' * 60_001}
    assert symbols(files).blocks == {}
    assert make_indexer().index([source("e.py", None)], {}).blocks == {}


def test_an_edit_inside_a_function_leaves_the_block_as_it_is(indexer: SymbolIndexer) -> None:
    before = symbols({"a.py": "def f(x):\n    return x\n"}, indexer).blocks
    assert symbols({"a.py": "\n\n# more\ndef f(x):\n    y = x + 1\n    return y\n"}, indexer).blocks == before


@settings(deadline=None)
@given(st.lists(repositories, min_size=1, max_size=5))
def test_an_index_that_has_seen_much_answers_as_a_new_one(requests: list[dict[str, str]]) -> None:
    used = make_indexer()
    for repository in [*requests, *requests[::-1]]:
        assert symbols(repository, used) == symbols(repository)


@settings(deadline=None)
@given(repositories, st.data())
def test_one_changed_file_at_a_time_gives_the_index_from_scratch(
    repository: dict[str, str], data: st.DataObject
) -> None:
    used = make_indexer()
    for _ in range(4):
        found, anew = symbols(repository, used), symbols(repository)
        assert found == anew
        assert list(found.blocks) == list(anew.blocks)
        if repository:
            repository = {**repository, data.draw(st.sampled_from(sorted(repository))): data.draw(texts)}


@settings(deadline=None)
@given(repositories)
def test_a_block_depends_on_its_own_file_only(repository: dict[str, str]) -> None:
    together = symbols(repository).blocks
    alone = {path: symbols({path: text}).blocks.get(path) for path, text in repository.items()}
    assert together == {path: block for path, block in alone.items() if block}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".py", ".c"])
def test_memory_is_bounded(suffix: str) -> None:
    indexer = make_indexer(text_bytes=100_000, repository_bytes=50_000)

    def read(numbers: range) -> None:
        for number in numbers:
            names = (f"name_{number}_{one}" for one in range(100))
            symbols({f"a{number}{suffix}": "\n".join(f"def {name}(): pass" for name in names)}, indexer)
            symbols({f"b{number}{suffix}": f"{number}" + "(" * 3_000}, indexer)  # the parser gives it up

    read(range(1))
    tracemalloc.start()
    read(range(1, 60))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept <= 200_000


@pytest.mark.slow
def test_several_threads_get_the_same_answers(indexer: SymbolIndexer) -> None:
    some = [
        {f"f{number % 7}.{suffix}": piece * (number + 1)} for number, piece in enumerate(PIECES) for suffix in SUFFIXES
    ]
    expected = [symbols(repository) for repository in some]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            order = random.Random(5).sample(range(len(some)), len(some))
            found = list(pool.map(lambda number: symbols(some[number], indexer), order))
            assert found == [expected[number] for number in order]


HOSTILE: dict[str, Callable[[int], str]] = {
    "nested brackets": lambda n: "(" * n + ")" * n,
    "open brackets": lambda n: "[" * n,
    "one long line": lambda n: "a+" * n,
    "quotes": lambda n: '"' * (n + 1),
    "strings in strings": lambda n: 'f"{' * n,
    "less than": lambda n: "a<" * n,
    "nothing": lambda n: "\0" * n,
    "halves of pairs": lambda n: "\ud800" * n,
    "classes in classes": lambda n: "class A{" * n,
    "functions": lambda n: "def f(): pass\nfunction f(){}\n" * n,
    "exports": lambda n: "export const A = 1;\n" * n,
    "parameters": lambda n: "def f(" + "a," * n + "): pass",
    "imports": lambda n: "".join(f"import a.b{i}\n" for i in range(n)),
    "enum": lambda n: "enum A {" + "B," * n + "}",
    "decorators": lambda n: "@a\n" * n + "def f(): pass",
    "dots": lambda n: "from " + "." * n + "a import b\n",
    "uses in braces": lambda n: "use a::{" * n + ";",
    "list of uses": lambda n: "use a::{" + "b::C," * n + "};",
    "stars": lambda n: "int " + "*" * n + "x;",
    "declarators": lambda n: "int " + "a," * n + "b;",
    "fields": lambda n: "struct s { " + "int a; " * n + "};",
    "access": lambda n: "class s { " + "public: int a; private: int b; " * n + "};",
    "blocks of ruby": lambda n: "module A\n" * n + "end\n" * n,
    "heredocs": lambda n: "<<A\n" * n,
    "php": lambda n: "<?php " + "class A { public $x; }" * n,
    "blanks": lambda n: "import a" + " " * n + ".b",
}


def hostile(name: str, chars: int) -> str:
    """A hostile text of about so many characters."""
    return HOSTILE[name](chars * 100 // len(HOSTILE[name](100)))


# Every text in four languages: in every third one, from another one on.
_ROWS = [(name, suffix) for number, name in enumerate(HOSTILE) for suffix in SUFFIXES[number % 3 :: 3]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "suffix"), _ROWS)
def test_no_text_breaks_the_indexer_or_takes_more_than_linear_time(name: str, suffix: str) -> None:
    recursion = sys.getrecursionlimit()
    assert_linear(lambda text: symbols({f"a.{suffix}": text}), lambda n: hostile(name, n), 6_000)
    found = symbols({f"a.{suffix}": hostile(name, 60_000)})
    assert all(len(block) < 60_000 for block in found.blocks.values())
    assert sys.getrecursionlimit() == recursion


def test_a_text_that_has_no_symbols_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    indexer, reads = TreeSitterIndexer(), []
    monkeypatch.setattr(indexer, "_read", lambda grammar, text, budget: reads.append(text))
    for path in ("a.py", "b.py"):
        assert indexer.index([source(path, "x = 1")], {}).blocks == {}
    assert reads == ["x = 1"]

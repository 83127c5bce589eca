"""The reference graph: from imports and names to files, in each family of languages."""

import pytest

from tests.examples import for_every, sampled
from tests.growth import assert_linear
from tests.symbols import make_indexer, symbols

USES_B = "from .b import B\n"

GRAPHS = {
    "python: relative, absolute, below src, a submodule, a package": (
        {
            "src/shop/cart.py": "from .prices import Price\nfrom shop import stock\nimport shop.deep.orders, json",
            "src/shop/prices.py": "from ..shop.cart import x\nclass Price: ...",
            "src/shop/stock.py": "",
            "src/shop/__init__.py": "",
            "src/shop/deep/orders.py": "from .. import stock",
            "src/other/json.py": "",
        },
        {
            "src/shop/cart.py": {"prices.py", "stock.py", "__init__.py", "deep/orders.py"},
            "src/shop/prices.py": {"cart.py"},
            "src/shop/deep/orders.py": {"__init__.py", "stock.py"},
        },
    ),
    "python: a name that a package hands on": (
        {
            "src/shop/__init__.py": "from .deep.cart import Cart",
            "src/shop/deep/cart.py": "class Cart: ...",
            "src/shop/main.py": "from shop import Cart",
        },
        {"src/shop/__init__.py": {"deep/cart.py"}, "src/shop/main.py": {"__init__.py", "deep/cart.py"}},
    ),
    "typescript: beside, an index, a written suffix, an alias, a name": (
        {
            "src/shop/cart.ts": 'import a from "./prices";\nimport b from "../shop/deep";\nimport "./old.js";\n'
            'import c from "@/shop/stock";\nimport { Unusual } from "@company/lib";\nimport "react";',
            "src/shop/prices.tsx": "",
            "src/shop/deep/index.ts": "",
            "src/shop/old.ts": "",
            "src/shop/stock.ts": "",
            "src/shop/lib.ts": "export class Unusual {}",
            "src/shop/react.ts": "",
        },
        {"src/shop/cart.ts": {"prices.tsx", "deep/index.ts", "old.ts", "stock.ts", "lib.ts"}},
    ),
    "go: the files of a package that define what is used": (
        {
            "src/shop/cart.go": 'package shop\nimport "a.com/me/src/shop/deep"\nfunc F() { deep.Used(); beside() }',
            "src/shop/near.go": "package shop\nfunc beside() {}",
            "src/shop/deep/used.go": "package deep\nfunc Used() {}",
            "src/shop/deep/other.go": "package deep\nfunc Other() {}",
        },
        {"src/shop/cart.go": {"deep/used.go", "near.go"}},
    ),
    "rust: crate, super, self, modules": (
        {
            "src/shop/lib.rs": "mod cart; pub mod deep;",
            "src/shop/cart.rs": "use super::deep::{store::Store, self};\nuse crate::shop::other::Thing;",
            "src/shop/deep/mod.rs": "mod store;\nuse self::store::Store;",
            "src/shop/deep/store.rs": "pub struct Store;",
            "src/shop/other.rs": "pub struct Thing;",
        },
        {
            "src/shop/lib.rs": {"cart.rs", "deep/mod.rs"},
            "src/shop/cart.rs": {"deep/mod.rs", "deep/store.rs", "other.rs"},
            "src/shop/deep/mod.rs": {"deep/store.rs"},
        },
    ),
    "java: a class, a static import, a package, the same package": (
        {
            "src/shop/Cart.java": "import src.shop.deep.Store; import static src.shop.deep.Limits.MAX;\n"
            "class Cart { Near x; }",
            "src/shop/Near.java": "import src.shop.deep.*; class Near { Wild y; }",
            "src/shop/deep/Store.java": "public class Store {}",
            "src/shop/deep/Limits.java": "public class Limits {}",
            "src/shop/deep/Wild.java": "class Wild {}",
        },
        {
            "src/shop/Cart.java": {"deep/Store.java", "deep/Limits.java", "Near.java"},
            "src/shop/Near.java": {"deep/Wild.java"},
        },
    ),
    "c and c++: includes beside and below a root; a header and its source by a name": (
        {
            "src/shop/cart.c": '#include "cart.h"\n#include "deep/store.h"\n#include <stdio.h>\n'
            "int f(void) { return cart_sum(); }",
            "src/shop/cart.h": "int cart_total(void);",
            "src/shop/deep/store.h": "",
            "src/shop/stdio.h": "",
            "src/shop/sums.h": "int cart_sum(void);",
            "src/shop/sums.cpp": "#include <shop/sums.h>\nint cart_sum(void) { return 1; }",
        },
        {"src/shop/cart.c": {"cart.h", "deep/store.h", "sums.h", "sums.cpp"}, "src/shop/sums.cpp": {"sums.h"}},
    ),
    "ruby: relative, from lib, a constant": (
        {
            "src/shop/cart.rb": "require_relative 'prices'\nrequire 'shop/stock'\n"
            "class Cart; def a; OrderBook.new; end; end",
            "src/shop/prices.rb": "",
            "src/shop/stock.rb": "",
            "src/shop/deep/order_book.rb": "class OrderBook; end",
        },
        {"src/shop/cart.rb": {"prices.rb", "stock.rb", "deep/order_book.rb"}},
    ),
    "php: a namespace under another root, an included file": (
        {
            "src/shop/Cart.php": "<?php use App\\deep\\{Store, Log}; require __DIR__ . '/old.php';",
            "src/shop/deep/Store.php": "<?php class Store {}",
            "src/shop/deep/Log.php": "<?php class Log {}",
            "src/shop/old.php": "<?php ",
        },
        {"src/shop/Cart.php": {"deep/Store.php", "deep/Log.php", "old.php"}},
    ),
}


@for_every(GRAPHS)
def test_a_family_finds_what_it_imports(name: str) -> None:
    files, expected = GRAPHS[name]
    wanted = {path: {f"src/shop/{end}" for end in ends} for path, ends in expected.items()}
    assert dict(symbols(files).references) == wanted


def test_a_name_that_many_define_says_nothing() -> None:
    files = {f"d{number}/a.rb": "class Common; end" for number in range(5)}
    assert symbols({**files, "x.rb": "Common.new"}).references == {}


def test_of_two_that_define_a_name_the_one_beside_counts() -> None:
    files = {"a/one.rb": "class Common; end", "b/two.rb": "class Common; end", "b/x.rb": "Common.new"}
    assert symbols(files).references == {"b/x.rb": {"b/two.rb"}}


def test_an_ordinary_word_is_no_reference() -> None:
    files = {
        "a/one.c": "int read_all(void) { return 1; }\nint size(void) { return 1; }",
        "b/x.c": "int f(int size) { return size; }",
    }
    assert symbols(files).references == {}
    files["b/x.c"] = "int f(void) { return read_all(); }"
    assert symbols(files).references == {"b/x.c": {"a/one.c"}}


def test_of_files_that_end_alike_the_nearest_counts() -> None:
    files = {f"{root}/shop/prices.py": "" for root in ("one", "two", "three")}
    files["two/main.py"] = "import shop.prices"
    assert symbols(files).references == {"two/main.py": {"two/shop/prices.py"}}


def test_a_file_refers_to_other_files_only() -> None:
    assert symbols({"a.py": "from .a import x\nfrom .... import far"}).references == {}


@pytest.mark.parametrize(
    "make",
    sampled(
        [
            lambda n: {f"a/f{i}.rb": f"class Class{i}; def m; Class{(i * 7) % n}; end; end" for i in range(n)},
            lambda n: {f"d{i}/index.js": "import './x'; import '../d1';" for i in range(n)},
            lambda n: {f"p/f{i}.go": 'package p\nimport "x.y/p"\nfunc Same() { Same() }' for i in range(n)},
        ],
        3,
    ),
)
def test_the_work_is_linear_in_the_number_of_files(make) -> None:
    make_indexer()
    assert_linear(lambda files: symbols(files), make, 300)

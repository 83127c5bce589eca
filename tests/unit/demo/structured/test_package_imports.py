"""Which files import which."""

from proxy.demo.structured.package import neighbours


def test_imports_count_in_both_directions_and_in_every_form() -> None:
    files = {
        "shop/__init__.py": "from .orders import Order\n",
        "shop/orders.py": "import shop.prices\n",
        "shop/prices.py": "def f():\n    from ..shop import taxes\n    import json\n",
        "shop/taxes.py": "from shop.prices import f\n",
        "shop/api/__init__.py": "",
        "shop/api/v1.py": "from ..orders import Order\nfrom . import v2\n",
        "shop/api/v2.py": "",
        "shop/broken.py": "from shop import (\n",
        "notes.md": "import shop.orders\n",
    }
    assert neighbours(files) == {
        "shop/__init__.py": {"shop/orders.py"},
        "shop/orders.py": {"shop/__init__.py", "shop/prices.py", "shop/api/v1.py"},
        "shop/prices.py": {"shop/orders.py", "shop/taxes.py"},
        "shop/taxes.py": {"shop/prices.py"},
        "shop/api/__init__.py": set(),
        "shop/api/v1.py": {"shop/orders.py", "shop/api/v2.py"},
        "shop/api/v2.py": {"shop/api/v1.py"},
        "shop/broken.py": set(),
        "notes.md": set(),
    }


def test_a_folder_for_sources_is_no_part_of_a_module_name() -> None:
    files = {"src/shop/a.py": "import shop.b\n", "src/shop/b.py": "", "tests/test_a.py": "from shop.a import x\n"}
    assert neighbours(files)["src/shop/a.py"] == {"src/shop/b.py", "tests/test_a.py"}

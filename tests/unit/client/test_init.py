"""The helper is light: whoever imports it gets nothing of the proxy and no library."""

import subprocess
import sys

from proxy.client import Context


def test_the_helper_needs_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import proxy.client;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names));"
        "print(*sorted(name for name in sys.modules if name.startswith('proxy')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    libraries, modules = found.splitlines()
    assert libraries.split() == ["proxy"]
    assert modules.split() == ["proxy", "proxy.client"]


def test_an_empty_context_says_that_nothing_is_listed() -> None:
    assert Context().body() == {"files": []}

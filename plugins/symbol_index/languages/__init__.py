"""How the nodes of each grammar are read. A node of a tree comes in; symbols and imports go out."""

from collections.abc import Mapping

from plugins.symbol_index.extract import Rules
from plugins.symbol_index.languages.compiled import GO, JAVA, RUST, C
from plugins.symbol_index.languages.scripts import JAVASCRIPT, PHP, PYTHON, RUBY

RULES: Mapping[str, Rules] = {
    "python": PYTHON,
    "javascript": JAVASCRIPT,
    "typescript": JAVASCRIPT,
    "tsx": JAVASCRIPT,
    "go": GO,
    "rust": RUST,
    "java": JAVA,
    "c": C,
    "cpp": C,
    "ruby": RUBY,
    "php": PHP,
}
"""The rules by the name of the grammar."""

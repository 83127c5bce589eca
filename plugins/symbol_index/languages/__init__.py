"""How the nodes of each grammar are read. What comes in is a node of a tree; what goes out are symbols and imports."""

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

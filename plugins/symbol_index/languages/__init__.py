"""How the nodes of each grammar are read. What comes in is a node of a tree; what goes out are symbols and imports."""

from collections.abc import Mapping

from plugins.symbol_index.extract import Rules
from plugins.symbol_index.languages import c, go, java, javascript, php, python, ruby, rust

RULES: Mapping[str, Rules] = {
    "python": python.RULES,
    "javascript": javascript.RULES,
    "typescript": javascript.RULES,
    "tsx": javascript.RULES,
    "go": go.RULES,
    "rust": rust.RULES,
    "java": java.RULES,
    "c": c.RULES,
    "cpp": c.RULES,
    "ruby": ruby.RULES,
    "php": php.RULES,
}
"""The rules by the name of the grammar."""

"""How the nodes of each grammar are read. What comes in is a node of a tree; what goes out are symbols and imports."""

from collections.abc import Mapping

from plugins.symbol_index.extract import Rules
from plugins.symbol_index.languages import javascript, python

RULES: Mapping[str, Rules] = {
    "python": python.RULES,
    "javascript": javascript.RULES,
    "typescript": javascript.RULES,
    "tsx": javascript.RULES,
}
"""The rules by the name of the grammar."""

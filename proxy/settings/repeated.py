"""Finds keys that stand twice in a YAML mapping.

YAML forbids them, but PyYAML takes the last one without an error: a second ``stratiform`` section would undo the first,
with its teams and their keys, and leave the proxy open to everybody.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import yaml

from proxy.settings.environment import join


def repeated_keys(root: yaml.Node, path: Path) -> Iterator[str]:
    """A message for each repeated key."""
    waiting, seen = deque([(root, "")]), set[int]()
    while waiting:
        node, place = waiting.popleft()
        # A node with an anchor may stand in many places. It is reported at the first one.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, join(place, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            yield from _repeated_in(node, place, path)
            # A mapping or a list as a key is refused when the values are built.
            named = [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
            waiting += [(value, join(place, name)) for name, value in named]


def _repeated_in(mapping: yaml.MappingNode, place: str, path: Path) -> Iterator[str]:
    lines: dict[tuple[str, str], list[int]] = {}
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            lines.setdefault((key.tag, key.value), []).append(key.start_mark.line + 1)
    for (_, name), found in lines.items():
        if len(found) > 1:
            where = " and ".join(map(str, found))
            yield f"{join(place, name)}: stands {len(found)} times (lines {where} of {path}); keep one"

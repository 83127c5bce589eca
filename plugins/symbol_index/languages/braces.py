"""Lists of imports in braces, written out: ``a::{b::C, d}`` is ``a::b::C`` and ``a::d``."""

from collections.abc import Iterator

_MOST = 64


def written_out(text: str, separator: str) -> Iterator[str]:
    """The paths of a list in braces, without their other names (``a as b``). At most 64 of them are given."""
    prefixes, word, given = [""], "", 0
    for char in text + ",":
        if char == "{":
            prefixes.append((prefixes[-1] + word.strip())[:300])
            word = ""
        elif char in ",}":
            name = word.partition(" as ")[0].strip()
            if name and given < _MOST:
                given += 1
                path = prefixes[-1] + name
                yield path.removesuffix(f"{separator}self").removesuffix(f"{separator}*")
            word = ""
            if char == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            word += char

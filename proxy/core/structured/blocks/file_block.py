"""The text of one item, as it is sent. It depends on nothing but the item, so that its digest says when it changes."""

import re
from hashlib import sha256

from proxy.core.digest import DIGEST_BYTES

_TICKS = re.compile("`{3,}")


def fence_for(text: str) -> str:
    """The shortest fence of three or more backticks that the text does not contain."""
    if "```" not in text:
        return "```"
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    return "`" * (longest + 1)


def file_block(path: str, text: str) -> str:
    """A file: its path on a line, a fence without a language, the content, a line break, and the closing fence."""
    fence = fence_for(text)
    return f"{path}\n{fence}\n{text}\n{fence}"


def block_digest(block: str) -> bytes:
    """The digest of exactly the bytes of a block."""
    return sha256(block.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]

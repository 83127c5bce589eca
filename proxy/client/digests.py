"""The digests by which contents are named, as the proxy computes them."""

import json
from collections.abc import Mapping
from hashlib import sha256


def text_digest(text: str) -> str:
    """The SHA-256 of the text in UTF-8, as lower-case hexadecimal digits. Raises ValueError where the text holds half
    of a surrogate pair, which has no form in UTF-8."""
    return sha256(text.encode()).hexdigest()


def review_digest(review: Mapping[str, object]) -> str:
    """The same of a review's JSON object in the canonical form of RFC 8785. The object is taken exactly as it is sent:
    strings, arrays of strings, objects of strings, and None."""
    return text_digest(json.dumps(_ordered(review), ensure_ascii=False, separators=(",", ":")))


def _ordered(fields: Mapping[str, object]) -> dict[str, object]:
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    values = {name: fields[name] for name in names}
    return {name: _ordered(value) if isinstance(value, Mapping) else value for name, value in values.items()}

"""A code review: sent once, kept for the session until the client removes it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.structured.context import Review


@dataclass(frozen=True, slots=True)
class FormReview:
    """The field ``review`` of a request: a review, or the ``digest`` of one that an earlier request has sent, whose
    ``review`` is then None. ``text`` is the JSON whose digest that is."""

    digest: str
    review: Review | None = None
    text: str = field(default="", repr=False)


def review_json(fields: Mapping[str, object]) -> str:
    """The JSON object of a review in the canonical form of RFC 8785 (no white space; names in the order of their UTF-16
    code units; no needless escapes).

    The object is taken exactly as it was sent: fields that were left out stay out, and paths are not resolved.
    ``fields`` hold strings, arrays of strings, objects of strings and None.
    """
    return json.dumps(_ordered(fields), ensure_ascii=False, separators=(",", ":"))


def _ordered(fields: Mapping[str, object]) -> dict[str, object]:
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    values = {name: fields[name] for name in names}
    return {name: _ordered(value) if isinstance(value, Mapping) else value for name, value in values.items()}

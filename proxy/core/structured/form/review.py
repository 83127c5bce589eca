"""A code review: sent once, kept for the session until the client removes it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from proxy.core.structured.context import Review


class ReviewChange(Enum):
    """What a request without a review of its own does to the session's review."""

    KEEP = "keep"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class SentReview:
    """A review that stands in the request, and the digest by which later requests may name it. ``text`` is its JSON,
    whose digest that is."""

    review: Review
    digest: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NamedReview:
    """A review that an earlier request has sent, named by its digest."""

    digest: str


ReviewField = SentReview | NamedReview | ReviewChange
"""The field ``review`` of a request."""


def review_json(fields: Mapping[str, object]) -> str:
    """The JSON object of a review in the canonical form of RFC 8785 (no white space; names in the order of their UTF-16
    code units; no needless escapes).

    The object is taken exactly as it was sent: fields that were left out stay out, and paths are not resolved.
    ``fields`` hold strings, arrays of strings, objects of strings and None.
    """
    return json.dumps(_ordered(fields), ensure_ascii=False, separators=(",", ":"))


def retained(former: Review | None, sent: Review | ReviewChange) -> Review | None:
    """The review of the session from this request on: one that is sent takes the former one's place, a removal leaves
    none, and a request that does not speak of it changes nothing."""
    match sent:
        case ReviewChange.KEEP:
            return former
        case ReviewChange.REMOVE:
            return None
        case _:
            return sent


def _ordered(fields: Mapping[str, object]) -> dict[str, object]:
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    values = {name: fields[name] for name in names}
    return {name: _ordered(value) if isinstance(value, Mapping) else value for name, value in values.items()}

"""Figures and names as people read them."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from proxy.admin.spend import grouped

_MOST_CHARS = 64
_TURN, _VOLATILE = "turn:", "volatile:"
_PLACE = re.compile(r"^(?:[\w-]+:[\w-]+/)?(?:file|symbol|section):(?=.)")
# A document by its last attribute, in the form of keys (``/source:a.md``) or of the prompt (`` source="a.md"``).
_DOCUMENT = re.compile(r"^document:(?:.*[/ ])?[\w-]+[:=]\"?([^\"]+?)\"?(?::[0-9a-f]{12})?$")
_DOCUMENTS = re.compile(r"^documents?:([0-9a-f]{4})[0-9a-f]{8}$")
_VERBS = {
    "changed": "changed",
    "appeared": "appeared",
    "disappeared": "disappeared",
    "reordered": "moved",
    "compacted": "was compacted",
}


def usd(amount: float | None) -> str:
    """USD to the cent. An amount of less than a cent is shown with its first two digits."""
    if amount is None:
        return "unlimited"
    sign, size = "−" if amount < 0 else "", abs(amount)
    if 0 < size < 1e-4:
        return f"{sign}<$0.0001"
    return f"{sign}${size:.2g}" if 0 < size < 0.01 else f"{sign}${size:,.2f}"


def short(count: float) -> str:
    """A count of tokens in three digits."""
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next((f"{count / size:.3g}{unit}" for size, unit in units if abs(count) >= size), f"{count:g}")


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{share * 100:.1f}%"


def cut(name: Any, most: int = _MOST_CHARS) -> str:
    """A name that a client chose, without characters that no font shows, and cut to ``most`` characters."""
    text = "".join(char if char.isprintable() else "·" for char in str(name or "")[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def piece(key: Any) -> str:
    """The client's own name of a piece. In a key, the place and the kind of the piece precede that name."""
    name = cut(key, 200)
    if name.startswith(_TURN):
        return f"a turn of the {name[len(_TURN) :]}"
    if _VOLATILE in name:
        return "a line that changes"
    if found := _DOCUMENT.match(name):
        return found[1]
    return f"documents ({found[1]})" if (found := _DOCUMENTS.match(name)) else _PLACE.sub("", name)


def moment(at: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in UTC."""
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "unknown"


def times(count: int) -> str:
    """A number of times, in words."""
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def sentence(session: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> str:
    """The sentence above a session: its cost, its cost in the client's own layout, and the culprit."""
    count, cost, saved = session["requests"], session["cost_usd"], session["saved_usd"]
    instead = f" instead of {usd(cost + saved)}" if usd(cost + saved) != usd(cost) else ""
    worst = [f"; {blamed(one)}" for one in culprits(requests)[:1] if one["usd"] > 0]
    return f"{count:,} request{'' if count == 1 else 's'}, {usd(cost)}{instead}{''.join(worst)}."


def blamed(one: Mapping[str, Any]) -> str:
    """A clause about the cost of one culprit."""
    name, kind, breaks, cost = one["culprit"], one["kind"], times(one["breaks"]), usd(one["usd"])
    if not name:
        return f"the cache broke {breaks} ({kind}) and that cost {cost}"
    return f"{cut(piece(name))} {_VERBS.get(kind, 'broke the cache')} {breaks} and cost {cost}"


def culprits(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The culprits of breaks, the most expensive first."""
    broken = ({**one["break"], "breaks": 1} for one in requests if one["break"] is not None)
    return grouped(broken, ("culprit", "kind"), ("breaks", "lost_tokens", "usd"))

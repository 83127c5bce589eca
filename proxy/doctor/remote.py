"""What the ledger of a running proxy tells, as findings about each key.

Every entry has the usage and the cost of an exchange, and the kind and the loss of its break where the proxy diagnoses.
Which piece broke the cache stands in the proxy's log line of the exchange, and not in the ledger. Whatever a proxy of
another version does not tell is not known.
"""

from collections.abc import Mapping

from proxy.core.diagnosis.breaks import BreakKind
from proxy.core.response.usage import Usage
from proxy.doctor.findings import Culprit, Findings, Loss

Fields = Mapping[str, object]

NO_PIECES = "a proxy's ledger names kinds of breaks: the piece stands in the log line of each exchange"
NO_BREAKS = "this proxy's ledger tells no breaks: losses are not known"
NO_MODES = "what the modes of a running proxy have saved is told by: stratiform spend --url"
_RIGHTFUL = (BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM)
_LARGEST = 1e12


class Ledger:
    """Takes entries in the order of time. ``found`` are the findings by key, by team where a request had none."""

    def __init__(self) -> None:
        self.found: dict[str, Findings] = {}
        self.tells_breaks = False

    def add(self, entry: Fields) -> None:
        """Count one exchange."""
        client = self.found.setdefault(_text(entry, "key_id") or _text(entry, "team") or "(no key)", Findings())
        client.count(_text(entry, "model"), _number(entry, "at"), _usage(entry), _number(entry, "cost_usd"))
        self.tells_breaks = self.tells_breaks or "break_kind" in entry
        if kind := _text(entry, "break_kind"):
            is_waste = kind in tuple(BreakKind) and kind not in _RIGHTFUL
            loss = client.losses.setdefault(Culprit(kind, "", "", 0, "", is_waste), Loss())
            loss.breaks += 1
            loss.usd += _number(entry, "break_usd")


def _usage(entry: Fields) -> Usage:
    read, short, long, plain, output = (
        int(max(0.0, _number(entry, f"{name}_tokens"))) for name in ("read", "write_5m", "write_1h", "plain", "output")
    )
    return Usage(read + short + long + plain, output, read, short, long)


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Fields, name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) < _LARGEST else 0.0

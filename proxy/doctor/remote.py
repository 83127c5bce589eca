"""Findings about each key, from the data of a running proxy.

Every entry of its ledger has the usage and the cost of an exchange, and the kind and the loss of its break if the proxy
diagnoses breaks. The sessions of the last day also name the pieces. Facts that a proxy of another version does not send
stay unknown.
"""

from collections.abc import Mapping
from typing import cast

from proxy.core.diagnosis.breaks import Break, BreakKind
from proxy.core.response.usage import Usage
from proxy.doctor.findings import Client, Culprit

Fields = Mapping[str, object]

NO_PIECES = "a proxy's ledger names kinds of breaks: pieces are told of the sessions of the last day alone"
NO_BREAKS = "this proxy's ledger tells no breaks: losses are not known"
NO_MODES = "what the modes of a running proxy have saved is told by: stratiform spend --url"
_RIGHTFUL = (BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM)
_LARGEST = 1e12


def count_entry(clients: dict[str, Client], entry: Fields) -> None:
    """Count one exchange of the ledger. Exchanges come in the order of time. A client is a key, or the team if the
    request had no key."""
    client = clients.setdefault(
        _text(entry, "key_id") or _text(entry, "team") or "(no key)",
        Client(modes_untold=NO_MODES, notes=[NO_BREAKS]),
    )
    client.count(_text(entry, "model"), _number(entry, "at"), _usage(entry), _number(entry, "cost_usd"))
    if "break_kind" in entry:
        client.notes = [NO_PIECES]
    if kind := _text(entry, "break_kind"):
        client.lose(_break(kind, _number(entry, "break_usd")))


def name_pieces(clients: Mapping[str, Client], session: Fields) -> None:
    """Name the pieces of the breaks of a session, by its breakdown. The ledger knows these breaks already."""
    client = clients.get(_text(session, "key") or _text(session, "team") or "(no key)", Client())
    told = session.get("diagnosis")
    for entry in filter(lambda each: isinstance(each, dict), told if isinstance(told, list) else ()):
        kind, (piece_kind, _, piece) = _text(entry, "kind"), _text(entry, "culprit").partition(":")
        whole = Culprit(kind, "", "", 0, "", _break(kind, 0.0).is_waste)
        loss = client.losses.get(whole)
        if loss is None or not piece:
            continue
        named = Break(
            cast("BreakKind", kind),
            piece,
            piece_kind,
            line=int(_number(entry, "line")),
            lost=int(_number(entry, "lost")),
            usd=min(_number(entry, "usd"), loss.usd),
            is_waste=entry.get("is_waste") is True,
        )
        client.lose(named)
        loss.breaks, loss.usd = loss.breaks - 1, loss.usd - named.usd
        if not loss.breaks:
            del client.losses[whole]


def _break(kind: str, usd: float) -> Break:
    return Break(cast("BreakKind", kind), usd=usd, is_waste=kind in tuple(BreakKind) and kind not in _RIGHTFUL)


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

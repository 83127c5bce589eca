"""Sums ledger entries up for a report, for engines that cannot do that themselves."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from proxy.storage.port import GROUP_FIELDS, LedgerEntry, SpendGroup, SpendQuery, SpendRow


class Sums:
    """The sums of one report."""

    def __init__(self, query: SpendQuery) -> None:
        self._query = query
        self._sums: dict[tuple[str, ...], list[int]] = {}

    def add(self, entries: Iterable[LedgerEntry]) -> None:
        by, offset_s = self._query.by, self._query.utc_offset_s
        for entry in entries:
            if not _is_asked(entry, self._query):
                continue
            sums = self._sums.setdefault(tuple(_group(entry, name, offset_s) for name in by), [0] * 8)
            for index, value in enumerate(_values(entry)):
                sums[index] += value

    def rows(self) -> Sequence[SpendRow]:
        by = self._query.by
        rows = [SpendRow(dict(zip(by, names, strict=True)), *sums) for names, sums in self._sums.items()]
        return sorted(rows, key=lambda row: (-row.cost, *row.group.values()))


def _values(entry: LedgerEntry) -> tuple[int, ...]:
    """What is added up, in the order of ``SpendRow``."""
    return (
        1,
        entry.read_tokens,
        entry.write_5m_tokens + entry.write_1h_tokens,
        entry.plain_tokens,
        entry.output_tokens,
        entry.cost,
        entry.saved,
        int(entry.estimated),
    )


def _is_asked(entry: LedgerEntry, query: SpendQuery) -> bool:
    return (
        query.since <= entry.at < query.until
        and query.team in (None, entry.team)
        and query.key_id in (None, entry.key_id)
        and query.user in (None, entry.user)
        and query.model in (None, entry.model)
    )


def _group(entry: LedgerEntry, by: SpendGroup, utc_offset_s: int) -> str:
    if by == "day":
        return datetime.fromtimestamp(entry.at + utc_offset_s, UTC).strftime("%Y-%m-%d")
    return str(getattr(entry, GROUP_FIELDS[by]))

"""What each account was billed."""

from collections import Counter
from dataclasses import dataclass, field

from proxy.core.caches.prompt import Bill


@dataclass(slots=True)
class Ledger:
    """One account's totals. Tokens are billed from the first byte on, as the cache stores from there on.

    ``errors`` counts refusals by status, ``cancelled`` calls given up before their end, ``broken`` cut lines,
    ``empty`` answers without content.
    """

    requests: int = 0
    answered: int = 0
    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    plain: int = 0
    output: int = 0
    cancelled: int = 0
    broken: int = 0
    empty: int = 0
    errors: Counter[int] = field(default_factory=Counter)

    @property
    def prompt(self) -> int:
        """All prompt tokens."""
        return self.read + self.write_5m + self.write_1h + self.plain

    def add(self, bill: Bill) -> None:
        """Count an answered request."""
        self.answered += 1
        self.read += bill.read
        self.write_5m += bill.write_5m
        self.write_1h += bill.write_1h
        self.plain += bill.plain

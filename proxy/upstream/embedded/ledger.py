"""What each account was billed."""

from collections import Counter
from dataclasses import dataclass, field

from proxy.core.caches.prompt import BillSum


@dataclass(slots=True)
class Ledger(BillSum):
    """One account's totals. Tokens are billed from the first byte on, as the cache stores from there on.

    ``errors`` counts refusals by status, ``cancelled`` calls given up before their end, ``broken`` cut lines,
    ``empty`` answers without content.
    """

    requests: int = 0
    answered: int = 0
    output: int = 0
    cancelled: int = 0
    broken: int = 0
    empty: int = 0
    errors: Counter[int] = field(default_factory=Counter)

"""What does not work as it should, and whether requests are refused for it: for readiness probes."""

from collections.abc import Sequence
from typing import Literal

from proxy.access.directory import Directory
from proxy.ports import Fault
from proxy.spend.epochs import Epochs
from proxy.spend.store_client import StoreClient


class Condition:
    """The faults of now."""

    def __init__(
        self,
        store_client: StoreClient,
        epochs: Epochs,
        directory: Directory,
        on_store_error: Literal["allow", "deny"],
    ) -> None:
        self._store_client = store_client
        self._epochs = epochs
        self._directory = directory
        self._denies = on_store_error == "deny"

    def faults(self) -> Sequence[Fault]:
        """One for each part that does not work. A spool that cannot be written bars every request, a store that is away
        those under a hard budget; until the store has been read once, there may be one for anybody."""
        faults = []
        for part, why in self._store_client.troubles.items():
            if part == "store":
                refuses = self._denies and (not self._directory.is_loaded or self._has_hard_budgets())
                faults.append(Fault("store", f"the store is away: {why}", refuses))
            else:
                faults.append(Fault(part, f"what the store does not take cannot be kept: {why}", self._denies))
        if self._epochs.trouble:
            message = f"the store is not the one that was known: {self._epochs.trouble}"
            faults.append(Fault("epoch", message, self._denies and self._has_hard_budgets()))
        if self._directory.store_errors:
            message = "the store's teams and keys cannot be read: what was read last holds"
            faults.append(Fault("directory", message))
        return faults

    def _has_hard_budgets(self) -> bool:
        return any(budget.hard is not None for budget in self._directory.snapshot.budgets.values())

"""Lists the parts that do not work as they should, and whether requests are refused because of them: for readiness
probes."""

from collections.abc import Sequence
from typing import Literal

from proxy.access.directory import Directory
from proxy.ports import Fault
from proxy.spend.epochs import Epochs
from proxy.spend.store_client import StoreClient


def faults(
    store_client: StoreClient, epochs: Epochs, directory: Directory, on_store_error: Literal["allow", "deny"]
) -> Sequence[Fault]:
    """One fault for each part that does not work. Under ``deny``, a spool that cannot be written blocks every request.
    A store that is away blocks the requests under a hard budget. Until the store has been read once, any request may be
    under a hard budget."""
    denies = on_store_error == "deny"
    denies_some = denies and any(budget.hard is not None for budget in directory.snapshot.budgets.values())
    found = []
    for part, why in store_client.troubles.items():
        if part == "store":
            refuses = denies_some or (denies and not directory.is_loaded)
            found.append(Fault("store", f"the store is away: {why}", refuses))
        else:
            found.append(Fault(part, f"what the store does not take cannot be kept: {why}", denies))
    if epochs.trouble:
        found.append(Fault("epoch", f"the store is not the one that was known: {epochs.trouble}", denies_some))
    if directory.store_errors:
        found.append(Fault("directory", "the store's teams and keys cannot be read: what was read last holds"))
    return found

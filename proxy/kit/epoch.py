"""Tells whether a store is still the one that was known, or was emptied or exchanged.

A store carries an epoch: a random id that the first worker writes into it. Workers remember this id, also across
restarts. A store that shows another epoch, or none, does not hold the counters that were written before: its budgets
would begin anew. Such a store is not trusted until an operator has accepted it. A single budget counts again once its
counter was restored.

The store keeps all this as facts: small texts by name. Facts are only ever added or overwritten, so that workers of
several hosts may write them at once:

    epoch            the id
    heir             the epoch that was lost when this one began; absent if the store began empty for all workers
    lost:EPOCH       a worker knew that epoch, and this store has another one: empty until an operator accepts it, then
                     the id of the epoch that was accepted in its place
    restored:NAME    the epoch under which an operator has restored a counter
"""

from collections.abc import Mapping, Set

from proxy.kit.value import dataclass

EPOCH = "epoch"
_HEIR = "heir"
_LOST = "lost:"
_RESTORED = "restored:"

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoreEpoch:
    """The state of a store, as seen by a worker that knew an epoch. ``lost`` is the epoch whose place this store has
    taken. If ``lost`` is empty, the counters are those that were known, or an operator has accepted them. ``restored``
    names the counters that were restored meanwhile."""

    id: str
    lost: str = ""
    restored: Set[str] = frozenset()


def to_add(facts: Facts, known: str, fresh: str) -> dict[str, str]:
    """The facts that a worker adds to the store. ``known`` is the epoch that the worker knew, empty if it knew none.
    ``fresh`` becomes the id of a store that has none."""
    found = facts.get(EPOCH)
    added: dict[str, str] = {}
    if found is None:
        added[EPOCH] = fresh
        if known:
            added[_HEIR] = known
    if known and known != found and _LOST + known not in facts:
        added[_LOST + known] = ""
    return added


def read(facts: Facts, known: str) -> StoreEpoch:
    """The state of the store for a worker that knew the epoch ``known``. The facts must have an epoch."""
    epoch = facts[EPOCH]
    before = "" if known == epoch else known or facts.get(_HEIR, "")
    if not before or facts.get(_LOST + before) == epoch:
        return StoreEpoch(epoch)
    restored = [name for name, at in facts.items() if name.startswith(_RESTORED) and at == epoch]
    return StoreEpoch(epoch, before, frozenset(name.removeprefix(_RESTORED) for name in restored))


def to_replace(facts: Facts, fresh: str) -> dict[str, str]:
    """The facts to set after a part of the store was lost, so that a new epoch begins."""
    before = facts[EPOCH]
    return {EPOCH: fresh, _HEIR: before, _LOST + before: ""}


def not_accepted(facts: Facts) -> list[str]:
    """The epochs whose place the store has taken and that no operator has accepted."""
    epoch = facts.get(EPOCH, "")
    return sorted(name.removeprefix(_LOST) for name, by in facts.items() if name.startswith(_LOST) and by != epoch)


def to_accept(facts: Facts) -> dict[str, str]:
    """The facts to set when an operator accepts the store as it is."""
    return {_LOST + lost: facts[EPOCH] for lost in not_accepted(facts)}


def to_restore(facts: Facts, name: str) -> dict[str, str]:
    """The facts to set when an operator restores a counter; none if the store is in order."""
    return {_RESTORED + name: facts[EPOCH]} if not_accepted(facts) else {}

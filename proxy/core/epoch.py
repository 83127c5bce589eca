"""Whether a store is the one that was known, or was emptied or exchanged.

A store carries an epoch: a random id that the first worker writes into it. Workers remember it, also across restarts. A
store that shows another epoch, or none, does not hold the counters that were written before: its budgets would begin
anew. It is not trusted until an operator has accepted it; a single budget counts again once its counter was restored.

All this stands in the store as facts, small texts by name, which are only ever added or overwritten, so that workers of
several hosts may write them at once:

    epoch            the id
    heir             the epoch that was lost when this one began; absent where the store began empty for everybody
    lost:EPOCH       somebody knew that epoch, and this store has another one: empty until an operator accepts it, then
                     the id of the epoch that was accepted in its place
    restored:NAME    the epoch under which an operator has restored a counter
"""

from collections.abc import Mapping, Set

from proxy.core.value import dataclass

EPOCH = "epoch"
_HEIR = "heir"
_LOST = "lost:"
_RESTORED = "restored:"

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoreEpoch:
    """What a store says about itself to somebody who knew an epoch. ``lost`` is the epoch whose place it has taken;
    empty: its counters are those that were known, or were accepted. ``restored`` names the counters that were restored
    meanwhile."""

    id: str
    lost: str = ""
    restored: Set[str] = frozenset()


def to_add(facts: Facts, known: str, fresh: str) -> dict[str, str]:
    """What somebody who knew an epoch adds to the facts. ``fresh`` is the id of a store that has none; ``known`` is
    empty for who knows none."""
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
    """What the facts, which have an epoch, say to somebody who knew ``known``."""
    epoch = facts[EPOCH]
    before = "" if known == epoch else known or facts.get(_HEIR, "")
    if not before or facts.get(_LOST + before) == epoch:
        return StoreEpoch(epoch)
    restored = [name for name, at in facts.items() if name.startswith(_RESTORED) and at == epoch]
    return StoreEpoch(epoch, before, frozenset(name.removeprefix(_RESTORED) for name in restored))


def to_replace(facts: Facts, fresh: str) -> dict[str, str]:
    """A part of the store was lost: what is set, so that it begins an epoch anew."""
    before = facts[EPOCH]
    return {EPOCH: fresh, _HEIR: before, _LOST + before: ""}


def not_accepted(facts: Facts) -> list[str]:
    """The epochs that the store has taken the place of, and that nobody has accepted."""
    epoch = facts.get(EPOCH, "")
    return sorted(name.removeprefix(_LOST) for name, by in facts.items() if name.startswith(_LOST) and by != epoch)


def to_accept(facts: Facts) -> dict[str, str]:
    """What is set when an operator accepts the store as it is."""
    return {_LOST + lost: facts[EPOCH] for lost in not_accepted(facts)}


def to_restore(facts: Facts, name: str) -> dict[str, str]:
    """What is set when an operator restores a counter; nothing where the store is in order."""
    return {_RESTORED + name: facts[EPOCH]} if not_accepted(facts) else {}

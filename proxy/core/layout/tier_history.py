"""Turns in tiers: which leave active, and why none stands in a more stable tier than an older one."""

from collections.abc import Sequence

from proxy.core.layout.tier_state import TierState
from proxy.core.layout.tier_values import HISTORY, Change, ClassicPolicy, Tier, Tracked

Group = list[Tracked]
"""Turns that stay in one tier: one turn, and those that are joined to it."""


def groups_of(listed: Sequence[Tracked]) -> list[Group]:
    """The listed turns, oldest first, in groups."""
    groups: list[Group] = []
    for tracked in listed:
        if not tracked.key.startswith(HISTORY):
            continue
        if tracked.is_joined and groups:
            groups[-1].append(tracked)
        else:
            groups.append([tracked])
    return groups


def in_order(state: TierState, groups: Sequence[Group]) -> list[Change]:
    """Let turns fall that stand in a more stable tier than an older one, or than one of their group."""
    least, changes = Tier.L0, []
    for group in groups:
        least = max(least, *(state.items[turn.key].tier for turn in group))
        changes += [
            state.fall(turn.key, least, "behind an older turn")
            for turn in group
            if state.items[turn.key].tier is not least
        ]
    return changes


def graduating(state: TierState, policy: ClassicPolicy, groups: Sequence[Group], *, others_leave: bool) -> list[str]:
    """The active turns that enter L3. ``others_leave``: other pieces enter L3 with this response."""
    if policy.history == "stay" or policy.target_tokens <= 0:
        return []
    active = [group for group in groups if state.items[group[0].key].tier is Tier.ACTIVE]
    sizes = [sum(turn.tokens for turn in group) for group in active]
    is_carried = others_leave or state.is_l3_broken_by_others
    if not is_carried and policy.history == "piggyback":
        # Turns move along with other pieces, never for their own sake.
        return []
    takes_all = is_carried and policy.history_window != "newest"
    number = len(active) if takes_all else window_start(sizes, policy)
    return [turn.key for group in active[:number] for turn in group]


def window_start(sizes: Sequence[int], policy: ClassicPolicy) -> int:
    """The index of the first that stays active, of groups with these tokens, oldest first."""
    if policy.history_window == "remainder":
        return _remainder_start(sizes, policy.target_tokens)
    kept = 0
    for index in range(len(sizes) - 1, -1, -1):
        kept += sizes[index]
        if kept > policy.target_tokens:
            is_newest = index == len(sizes) - 1
            return index if is_newest and policy.oversize_turn == "stay" else index + 1
    return 0


def _remainder_start(sizes: Sequence[int], target: int) -> int:
    """The oldest leave one by one as long as the target or more remains; nothing leaves a sum up to the target."""
    rest = sum(sizes)
    if rest <= target:
        return 0
    for index, size in enumerate(sizes):
        if rest - size < target:
            return index
        rest -= size
    return len(sizes)


def movable(state: TierState, members: Sequence[str], ready: list[str]) -> list[str]:
    """Those of ``ready`` that may leave a tier upwards: turns only as the oldest of the tier, in whole groups."""
    items = state.items
    turns = sorted((key for key in members if key.startswith(HISTORY)), key=lambda key: items[key].seen)
    if not turns:
        return ready
    wanted, leaves = set(ready), 0
    for index, key in enumerate(turns):
        if not items[key].is_joined:
            leaves = index
        if key not in wanted:
            break
    else:
        leaves = len(turns)
    held = set(turns[leaves:])
    return [key for key in ready if key not in held]

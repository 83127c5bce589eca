"""What an operator may turn on and off about planning."""

from dataclasses import dataclass

from proxy.core.digest import digest
from proxy.core.prompts.turn_texts import Again

_BUCKETS = 1 << 32


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """``holdout`` is the share of sessions that are left as they come, as controls. ``routing_keys``: a provider that
    keeps a conversation's requests together by a key is sent one. ``steady_tools``: the same tools in another order or
    form go as they came first. ``texts_again`` says when the operator's text of an earlier turn is sent again.
    ``prices_mark``: what each request would have cost in mode mark is found out behind it."""

    holdout: float = 0.0
    routing_keys: bool = True
    steady_tools: bool = True
    texts_again: Again = Again.BY_PRICE
    prices_mark: bool = False

    def is_control(self, scope: str, opening: bytes) -> bool:
        """Whether a session is one of the controls: by the hash of whose it is and how it began, so that all its
        requests are, whichever process serves them."""
        drawn = int.from_bytes(digest(b"holdout", scope.encode(), opening)[:4])
        return drawn < self.holdout * _BUCKETS

"""What calls that were put off will charge. As long as the store does not know of it, it is added to what is spent.

A settlement whose reservation stands in the store counts only for what it charges beyond that reservation, because the
store holds the reserved amount against the limit already. A reservation that is put off counts until its exchange ends.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.storage.port import Balance, Charge, Granted, PutOff, Refused, Release, Reserve, Settle


class Backlog:
    """The sums of what is put off, by team and counter. It knows the calls of this worker only."""

    def __init__(self) -> None:
        self._sums: dict[str, Counter[str]] = {}
        self._reserved: dict[str, Counter[str]] = {}
        self._intents: dict[str, Reserve] = {}

    def add(self, call: PutOff, reserved: Sequence[Charge] = ()) -> None:
        """Count a call; ``reserved`` is what the store holds for its exchange."""
        match call:
            case Reserve():
                self._intents[call.exchange_id] = call
                self._count(call.team, _amounts(call.charges))
            case Settle(entry):
                self._end_intent(entry.exchange_id)
                if reserved:
                    self._reserved[entry.exchange_id] = _amounts(reserved)
                self._count(entry.team, self._beyond_reserved(call))
            case Release():
                self._end_intent(call.exchange_id)

    def remove(self, call: PutOff) -> None:
        """The store has carried a call out."""
        match call:
            case Reserve():
                self._end_intent(call.exchange_id)
            case Settle(entry):
                self._count(entry.team, self._beyond_reserved(call), -1)
                self._reserved.pop(entry.exchange_id, None)

    def _end_intent(self, exchange_id: str) -> None:
        intent = self._intents.pop(exchange_id, None)
        if intent is not None:
            self._count(intent.team, _amounts(intent.charges), -1)

    def _count(self, team: str, amounts: Mapping[str, int], sign: int = 1) -> None:
        """Add the amounts to the sums of a team, or take them away. No sum is kept that is not above zero."""
        sums = self._sums.setdefault(team, Counter())
        for account, amount in amounts.items():
            sums[account] += sign * amount
            if sums[account] <= 0:
                del sums[account]
        if not sums:
            del self._sums[team]

    def clear(self) -> None:
        self._sums.clear()
        self._reserved.clear()
        self._intents.clear()

    def lowered(self, ask: Reserve) -> Reserve:
        """The reservation to ask the store for: the same charges, under limits that are lowered by what is put off."""
        if ask.team not in self._sums:
            return ask
        charges = [
            charge if charge.limit is None else replace(charge, limit=charge.limit - self._pending(ask.team, charge))
            for charge in ask.charges
        ]
        return replace(ask, charges=charges)

    def counted(self, ask: Reserve, answer: Granted | Refused) -> Granted | Refused:
        """The store's answer, with what is put off added to what is spent."""
        if ask.team not in self._sums:
            return answer
        if isinstance(answer, Granted):
            pairs = zip(ask.charges, answer.balances, strict=True)
            return replace(answer, balances=[self._raised(ask.team, charge, balance) for charge, balance in pairs])
        return replace(answer, balance=self._raised(ask.team, answer.charge, answer.balance))

    def _raised(self, team: str, charge: Charge, balance: Balance) -> Balance:
        return replace(balance, spent=balance.spent + self._pending(team, charge))

    def _pending(self, team: str, charge: Charge) -> int:
        sums = self._sums.get(team, Counter[str]())
        return sum(sums[account] for account in (charge.account, *charge.within))

    def _beyond_reserved(self, call: Settle) -> Mapping[str, int]:
        return _amounts(call.final) - self._reserved.get(call.entry.exchange_id, Counter())


def _amounts(charges: Sequence[Charge]) -> Counter[str]:
    return Counter({charge.account: charge.amount for charge in charges})

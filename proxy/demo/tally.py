"""The cost of one form of a session, as the provider reported it."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson

from proxy.core.money.prices import Price, input_cost, uncached_cost
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass, field
from proxy.demo.fidelity import Wanted
from proxy.demo.sample import Request
from proxy.replay.baselines import SYSTEM_LAST, system_and_last
from proxy.replay.runner import Setting
from proxy.replay.totals import Account, Total

_LEARNING_TURNS = 10


@dataclass(frozen=True, slots=True)
class Sending(Request):
    """One request, and the content of it that must reach the provider."""

    wanted: Wanted


@dataclass(slots=True)
class FormTally:
    """One form of a session so far. ``key`` is the client's key: each form of each session is a separate account.

    ``usd`` is the cost of its prompts, and ``uncached_usd`` is their cost without a cache. ``late`` are the bills after
    the first ten turns. ``uploaded`` is the number of bytes of the bodies that the client has sent. If ``marks`` is
    given, that account at the provider bills the same requests with markers on the system prompt and the last message,
    sent without the proxy. ``marked_usd`` is their cost.
    """

    form: StrEnum
    key: str
    sendings: Sequence[Sending]
    setting: Setting
    price: Price
    headers: Mapping[str, str] = field(default_factory=dict)
    marks: Account | None = None
    total: Total = field(default_factory=Total)
    late: Total = field(default_factory=Total)
    usd: float = 0.0
    uncached_usd: float = 0.0
    marked_usd: float = 0.0
    uploaded: int = 0
    requests: int = 0
    most_live: int = 0
    most_prompt: int = 0
    losses: list[str] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """The input cost so far, in tokens at the plain price."""
        return self.total.cost(self.setting.profile)

    @property
    def share(self) -> float | None:
        """The cost so far as a share of no caching; None before anything was sent."""
        return self.usd / self.uncached_usd if self.uncached_usd else None

    def add(self, usage: Usage, sent: bytes) -> None:
        """Count the next answered request. ``usage`` is the reported usage; ``sent`` is the body that reached the
        provider. Raises ValueError if the provider refuses the same request with plain markers."""
        sending = self.sendings[self.requests]
        wanted = sending.wanted
        self.requests += 1
        self.total.add(usage)
        if sum(message["role"] == "user" for message in wanted.conversation) > _LEARNING_TURNS:
            self.late.add(usage)
        self.usd += input_cost(usage, self.price)
        self.uncached_usd += uncached_cost(usage, self.price)
        self.most_prompt = max(self.most_prompt, usage.prompt)
        if wanted.is_frozen:
            self.most_live = max(self.most_live, wanted.live_messages(sent))
        self._upload(sending)
        self.losses += [f"request {self.requests}: {text}" for text in wanted.losses(sent)]

    def _upload(self, request: Request) -> None:
        body = {**request.body}
        raw = orjson.dumps(body | body.pop("extra_body", {}))
        self.uploaded += len(raw)
        if self.marks is None:
            return
        bill = self.marks.send(system_and_last(raw, self.setting.profile.dialect), request.at)
        if bill is None:
            raise ValueError(f"the provider refused request {self.requests} of {self.key} as {SYSTEM_LAST}")
        self.marked_usd += input_cost(bill, self.price)


def losses_of(tallies: Mapping[Any, FormTally]) -> list[str]:
    """The faults of all requests, with the form's key in front."""
    return [f"{tally.key}: {text}" for tally in tallies.values() for text in tally.losses]
